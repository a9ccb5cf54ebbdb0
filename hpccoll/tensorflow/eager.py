# SPDX-License-Identifier: Apache-2.0
"""A fast path for the plain allreduce of one eager tensor; Python took most of the time of the general path.

hpccoll.frontend.requests is the general path: all operations, groups, results in place, scale factors. If another
thread calls with a name that is in flight, the general path raises the error at once; this one raises it when the
operation ends.
"""

from collections.abc import Callable
from typing import Any

from hpccoll import errors
from hpccoll._core import HOROVOD_WORDS, Buffer
from hpccoll.compression import Compression
from hpccoll.frontend import names
from hpccoll.frontend.called import called, of_call
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.frontend.reductions import Adasum, Reduction
from hpccoll.frontend.refused import tells
from hpccoll.tensorflow.adapter import code_of, memory_of, new_tensor, on_host

__all__ = ["Allreduces", "allreduce", "can"]


def can(call: Allreduce) -> bool:
    """Return whether Allreduces supports this call."""
    return not call.group and call.prescale == 1.0 == call.postscale and call.op is not Adasum


class Allreduces:
    """Begins allreduces with the same reduction and process set, which are looked up once."""

    def __init__(self, op: Reduction, process_set: ProcessSet) -> None:
        """
        :param op: not Adasum
        :param process_set: the ranks that take part
        """  # noqa: D205, D212
        self._op, self._process_set = op, process_set
        self._kind: tuple[Any, Any] | None = None

    def begin(
        self, name: str | None, tensor: Any, wire: Compression | None = None, *, waits: bool = False
    ) -> Callable[[], list[Any]]:
        """Begin to reduce a tensor; return a function that waits for the result and returns it in a list.

        :param name: None only below allreduce(), which tells the other ranks of a refusal
        :param tensor: a tensor that exists now
        :param wire: what float32 and float64 values travel as
        :param waits: the caller waits at once
        :raises HpccollError: see hpccoll.frontend.requests
        """
        try:
            if self._kind is None:
                self._kind = world_of(self._process_set).core, self._op
            core, op = self._kind
            source = on_host(tensor)
            dtype = code_of(source.dtype)
            memory, address, shape = memory_of(source)
            given = Buffer(address, dtype, shape, memory)
            target, address = new_tensor(dtype, shape)
            whole, out = names.request("allreduce", name), given.at(address, target)
            request = core.collective("allreduce", given, whole, out, waits, op, compression=wire, words=HOROVOD_WORDS)
        except errors.HpccollError as error:
            raise of_call(called("allreduce"), name, error) from None

        def wait() -> list[Any]:
            request.wait()
            return [target]

        return wait


@tells
def allreduce(
    name: str | None, tensor: Any, op: Reduction, process_set: ProcessSet, wire: Compression | None
) -> list[Any]:
    """Reduce a tensor and return the result, in a list; the arguments are those of Allreduces."""
    return Allreduces(op, process_set).begin(name, tensor, wire, waits=True)()
