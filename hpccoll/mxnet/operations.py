# SPDX-License-Identifier: Apache-2.0
"""Horovod's functions for MXNet's arrays: those of hpccoll.horovod, with arguments in Horovod's order for MXNet.

`priority` has no effect: the ranks agree on the order of the operations. A group of no arrays is returned as it is.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hpccoll.frontend.compression import Compressors
from hpccoll.horovod.operations import Operations
from hpccoll.mxnet.adapter import ADAPTER

__all__ = [
    "Compression", "allgather", "allreduce", "allreduce_", "alltoall", "broadcast", "broadcast_",
    "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "grouped_reducescatter", "reducescatter",
]  # fmt: skip

OPERATIONS: Operations[Any] = Operations(ADAPTER)
Compression = Compressors(ADAPTER)


def _ordered(function: Callable[..., Any], order: str) -> Callable[..., Any]:
    """Let a function take its arguments in another order, `priority` among them."""
    own = inspect.signature(function).parameters
    priority = inspect.Parameter("priority", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=0)
    signature = inspect.Signature([priority if name == "priority" else own[name] for name in order.split()])

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        arguments.pop("priority", None)
        if "tensors" in arguments and len(arguments["tensors"]) == 0:
            return arguments["tensors"]
        return function(**arguments)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


_REDUCED = "average name priority prescale_factor postscale_factor process_set op"
_SCATTERED = "op name priority process_set prescale_factor postscale_factor"
allreduce = _ordered(OPERATIONS.allreduce, f"tensor {_REDUCED}")
allreduce_ = _ordered(OPERATIONS.allreduce_, f"tensor {_REDUCED}")
grouped_allreduce = _ordered(OPERATIONS.grouped_allreduce, f"tensors {_REDUCED}")
grouped_allreduce_ = _ordered(OPERATIONS.grouped_allreduce_, f"tensors {_REDUCED}")
allgather = _ordered(OPERATIONS.allgather, "tensor name priority process_set")
grouped_allgather = _ordered(OPERATIONS.grouped_allgather, "tensors name priority process_set")
broadcast = _ordered(OPERATIONS.broadcast, "tensor root_rank name priority process_set")
broadcast_ = _ordered(OPERATIONS.broadcast_, "tensor root_rank name priority process_set")
alltoall = _ordered(OPERATIONS.alltoall, "tensor splits name priority process_set")
reducescatter = _ordered(OPERATIONS.reducescatter, f"tensor {_SCATTERED}")
grouped_reducescatter = _ordered(OPERATIONS.grouped_reducescatter, f"tensors {_SCATTERED}")
