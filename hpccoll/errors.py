# SPDX-License-Identifier: Apache-2.0
"""One exception class for each status of the C tables (``HC_STATUSES`` in ``ext/core/hc.h``), and two roots.

What one rank can see by itself is a ValueError as well, what happens among the ranks a RuntimeError. The docstring of
a class is what the error page of the documentation shows.
"""

from __future__ import annotations

__all__ = [
    "BrokenWorldError",
    "DuplicateNameError",
    "ForkedError",
    "HpccollError",
    "InvalidArgumentError",
    "MismatchError",
    "ObjectError",
    "OutOfMemoryError",
    "PeerLost",
    "ProtocolError",
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
    """Anything that hpccoll raises, but for the builtin ``TimeoutError`` of ``Handle.wait(timeout)``."""


class RecoverableError(HpccollError, RuntimeError):
    """The World is broken but the process is sound: make a new World, or end in order."""


class MismatchError(HpccollError, RuntimeError):
    """Ranks asked for different things under one name. The same text on all ranks; no buffer was touched."""


class DuplicateNameError(HpccollError, ValueError):
    """A request of this name is still in flight in this World."""


class ShutDownError(HpccollError, RuntimeError):
    """The World was shut down, here or by another rank, before this request was agreed."""


class RootJoinedError(HpccollError, RuntimeError):
    """The root of a broadcast had joined: nobody has the data."""


class PeerLost(RecoverableError):  # noqa: N818
    """A rank of the World is gone."""


class StallError(RecoverableError):
    """Ranks were awaited beyond the stall limit (``HPCCOLL_STALL_LIMIT``)."""


class TransportError(RecoverableError):
    """Shared memory or the network failed."""


class InvalidArgumentError(HpccollError, ValueError):
    """An argument makes no sense here. Raised before anything was sent; the World goes on."""


class OutOfMemoryError(HpccollError, MemoryError):
    """The library could not allocate."""


class ProtocolError(RecoverableError):
    """A control message could not be decoded: a bug, or two versions of hpccoll in one job."""


class ForkedError(HpccollError, RuntimeError):
    """The process was forked after ``init()``; the World is its parent's. Use the spawn start method."""


class BrokenWorldError(RecoverableError):
    """An earlier failure broke the World; its error tells why."""


class UnsupportedError(HpccollError, TypeError, ValueError):
    """The combination of operation, reduction, dtype and memory is not defined."""


class ResultSizeError(HpccollError, ValueError):
    """``out`` has not the size of the result."""


class ObjectError(HpccollError, RuntimeError):
    """A rank has an object that pickle refuses. The same text on all ranks; the World goes on."""


class StartError(HpccollError, RuntimeError):
    """The World could not be made: ranks are missing, settings differ, or the launch was not what it seems."""


def some_ranks(ranks: set[int]) -> str:
    """Name ranks in a sentence: "rank 3", "ranks 1, 2", never more than 16 of them."""
    shown = sorted(ranks)
    more = f" and {len(shown) - 16} more" if len(shown) > 16 else ""
    return f"rank{'s' if len(shown) > 1 else ''} {', '.join(map(str, shown[:16]))}{more}"
