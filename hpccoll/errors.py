# SPDX-License-Identifier: Apache-2.0
"""One exception class for each status of the C tables (`HC_STATUSES` in `ext/core/hc.h`), and two base classes.

An error that one rank can see by itself is a ValueError as well, an error that arises between ranks a RuntimeError. The
page Errors of the documentation shows the docstrings.

    >>> try:
    ...     hpccoll.allreduce(np.zeros(3 + hpccoll.rank()), name="weights")
    ... except hpccoll.MismatchError as error:
    ...     assert "weights" in str(error)
"""

__all__ = [
    "BrokenWorldError",
    "DuplicateNameError",
    "ForkedError",
    "HpccollError",
    "InvalidArgumentError",
    "MembersChangedError",
    "MismatchError",
    "NotDefinedError",
    "ObjectError",
    "OutOfMemoryError",
    "PeerLostError",
    "ProtocolError",
    "RankError",
    "RecoverableError",
    "ResultSizeError",
    "RootJoinedError",
    "ShutDownError",
    "StallError",
    "StartError",
    "TransportError",
    "UnsupportedError",
]


class HpccollError(Exception):
    """The base class of all errors of hpccoll; the builtin `TimeoutError` of `Handle.wait(timeout)` is none of them."""


class RecoverableError(HpccollError, RuntimeError):
    """The World is broken but the process is sound: shut the World down and make a new one, or end the program."""


class MismatchError(HpccollError, RuntimeError):
    """Ranks asked for different things under one name. All ranks get the same text; no array was touched."""


class DuplicateNameError(HpccollError, ValueError):
    """A request of this name is still in flight in this World."""


class ShutDownError(HpccollError, RuntimeError):
    """The World was shut down, here or by another rank, before this request was agreed."""


class RootJoinedError(HpccollError, RuntimeError):
    """The root of a rooted operation has joined: no rank has the data."""


class PeerLostError(RecoverableError):
    """A rank of the World was lost: its process or its node died, or it was silent for too long."""


class StallError(RecoverableError):
    """Ranks were awaited for longer than `HPCCOLL_STALL_LIMIT`."""


class TransportError(RecoverableError):
    """Shared memory or the network failed."""


class InvalidArgumentError(HpccollError, ValueError):
    """An argument is wrong on this rank. Nothing was sent; the World goes on."""


class OutOfMemoryError(HpccollError, MemoryError):
    """A rank could not allocate memory; the text names it, its host, the tensor and the bytes, and what goes on.

    For a result or a copy that the call itself makes: at the call, on this rank; nothing was sent. For the result of an
    allgather or alltoall of more than 256 KiB: on all ranks, and the World goes on. Anything else breaks the World, on
    all ranks.
    """


class ProtocolError(RecoverableError):
    """A control message could not be decoded: a bug, or two versions of hpccoll in one job."""


class ForkedError(HpccollError, RuntimeError):
    """The process was forked after `init()`; the World is its parent's. Use the spawn start method."""


class BrokenWorldError(RecoverableError):
    """An earlier failure broke the World; the text says which."""


class UnsupportedError(HpccollError, TypeError, ValueError):
    """The combination of operation, reduction, dtype and memory is not defined; see the page Reductions."""


class NotDefinedError(UnsupportedError, NotImplementedError):
    """No such operation exists here, or for such tensors: Adasum for a reducescatter, say, or Max for IndexedSlices."""


class ResultSizeError(HpccollError, ValueError):
    """`out` does not have the size of the result, or a message is longer than the array that takes it."""


class ObjectError(HpccollError, RuntimeError):
    """Pickle refuses an object: all ranks get the same text. Or a rank cannot unpickle it, alone. The World goes on."""


class StartError(HpccollError, RuntimeError):
    """The World could not be made: ranks are missing, settings differ, or launcher and MPI contradict each other."""


class MembersChangedError(StartError, RecoverableError):
    """A rank of an elastic job was lost while the World was being made: the next `init()` makes one without it."""


class RankError(HpccollError, RuntimeError):
    """A function that `hpccoll.run`, Ray or Spark called raised on a rank, or the rank was lost.

    The attributes `rank`, `host` and `traceback` say where; the exception itself is the `__cause__`, where it could be
    pickled. `lost` is True if the process has ended without a result: then `traceback` says how.
    """

    def __init__(self, rank: int, host: str, traceback: str, *, lost: bool = False) -> None:
        """Describe the failure.

        :param traceback: as the rank would have printed it
        """
        super().__init__(f"rank {rank} (host {host}) {'was lost: ' if lost else f'raised:{chr(10)}'}{traceback}")
        self.rank, self.host, self.traceback, self.lost = rank, host, traceback, lost
