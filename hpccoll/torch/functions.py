# SPDX-License-Identifier: Apache-2.0
"""horovod.torch.functions under its name: broadcasts of parameters, optimizers and objects."""

from hpccoll.torch.horovod import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_optimizer_state", "broadcast_parameters",
]  # fmt: skip
