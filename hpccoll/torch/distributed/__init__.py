# SPDX-License-Identifier: Apache-2.0
"""Backend "hpccoll" of torch.distributed, and a communication hook for DDP over any backend."""

from hpccoll.torch.distributed import ddp_hook
from hpccoll.torch.distributed.backend import register

__all__ = ["ddp_hook", "register"]
