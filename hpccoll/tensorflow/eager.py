# SPDX-License-Identifier: Apache-2.0
"""The plain allreduce of one tensor that exists now, by the shortest way: most of its time was Python's.

hpccoll.frontend.requests does the same for all operations, also of groups, in place, scaled. A call from another thread
with a name that is in flight is refused there by the call itself, and here when the operation ends.
"""

from __future__ import annotations

from typing import Any

from hpccoll import errors
from hpccoll._core import Buffer
from hpccoll.frontend import names
from hpccoll.frontend.called import called, in_its_words
from hpccoll.frontend.process_sets import world_of
from hpccoll.frontend.reductions import Adasum, reduction
from hpccoll.horovod.operations import Allreduce
from hpccoll.tensorflow.adapter import ADAPTER, code_of, memory_of, new_tensor

__all__ = ["allreduce", "begin", "can"]


def can(call: Allreduce) -> bool:
    """Say whether begin() can do this."""
    return not call.group and call.prescale == 1.0 == call.postscale and call.op is not Adasum


def begin(call: Allreduce, tensor: Any, *, waits: bool) -> tuple[Any, Any]:
    """Begin to reduce a tensor; return a handle, and the result, which is there when the handle's wait() returns.

    :param waits: the caller waits at once
    :raises HpccollError: see hpccoll.frontend.requests
    """
    try:
        source = ADAPTER.contiguous(tensor)
        dtype = code_of(source.dtype)
        memory, address, shape = memory_of(source)
        given = Buffer(address, dtype, shape, memory)
        target, address = new_tensor(dtype, shape)
        request = world_of(call.process_set).core.collective(
            "allreduce", given, names.request("allreduce", call.name), given.at(address, target), waits,
            reduction(call.op), compression=call.wire,
        )  # fmt: skip
    except errors.HpccollError as error:
        what = f"{called('allreduce')} of {call.name or 'an unnamed tensor'}"
        raise type(error)(f"{what}: {in_its_words(str(error))}") from None
    return request, target


def allreduce(call: Allreduce, tensor: Any) -> Any:
    """Reduce a tensor and return the result; see begin()."""
    request, target = begin(call, tensor, waits=True)
    request.wait()
    return target
