# SPDX-License-Identifier: Apache-2.0
"""hpccoll: collective operations for the ranks of a supercomputer job.

    >>> world = hpccoll.init()
    >>> hpccoll.allreduce(np.ones(4))
    array([2., 2., 2., 2.])
    >>> hpccoll.shutdown()

The package has `init()` and `shutdown()`, the collective operations, point-to-point messages, the World and the errors.
`hpccoll.torch` is the interface for PyTorch, `hpccoll.testing` runs ranks as threads of one process.
"""

from importlib import metadata as _metadata

try:
    from hpccoll import _core as _core
except ImportError as _error:
    from hpccoll import unbuilt as _unbuilt

    raise _unbuilt.explain(_error) from None

from hpccoll import compression, config, errors
from hpccoll.collectives import (
    Handle,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    barrier_async,
    broadcast,
    broadcast_async,
    broadcast_object,
    join,
    join_async,
    reducescatter,
    reducescatter_async,
)
from hpccoll.device_arrays import DeviceArray
from hpccoll.errors import (
    BrokenWorldError,
    DuplicateNameError,
    ForkedError,
    HpccollError,
    InvalidArgumentError,
    MismatchError,
    ObjectError,
    OutOfMemoryError,
    PeerLost,
    ProtocolError,
    RankError,
    RecoverableError,
    ResultSizeError,
    RootJoinedError,
    ShutDownError,
    StallError,
    StartError,
    TransportError,
    UnsupportedError,
)  # fmt: skip
from hpccoll.p2p import ANY_SOURCE, recv, recv_async, send, send_async
from hpccoll.preemption import preemption
from hpccoll.prefix import exscan, exscan_async, scan, scan_async
from hpccoll.reductions import (
    AVERAGE,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Reduction,
)
from hpccoll.rooted import gather, gather_async, reduce, reduce_async, scatter, scatter_async
from hpccoll.tools.launch.function import run
from hpccoll.world import World, init, is_initialized, shutdown
from hpccoll.world import current as world

__version__ = _metadata.version("hpccoll")


def rank() -> int:
    """Give the number of this process in the default World.

    :returns: 0 to `size() - 1`
    :raises ShutDownError: there is no default World
    """
    return world().rank


def size() -> int:
    """Give the number of ranks of the default World.

    :raises ShutDownError: there is no default World
    """
    return world().size


def local_rank() -> int:
    """Give the number of this process among the ranks of its node.

    :returns: 0 to `local_size() - 1`
    :raises ShutDownError: there is no default World
    """
    return world().local_rank


def local_size() -> int:
    """Give the number of ranks of the default World on this node.

    :raises ShutDownError: there is no default World
    """
    return world().local_size


def cross_rank() -> int:
    """Give the number of this process among the ranks with its local rank, of which each node has one at most.

    :returns: 0 to `cross_size() - 1`; where all nodes have the same number of ranks, the number of the node
    :raises ShutDownError: there is no default World
    """
    return world().cross_rank


def cross_size() -> int:
    """Give the number of ranks with the local rank of this process.

    :returns: the number of nodes, where all have the same number of ranks
    :raises ShutDownError: there is no default World
    """
    return world().cross_size


__all__ = [
    "ANY_SOURCE", "AVERAGE", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MIN", "PRODUCT", "SUM",
    "BrokenWorldError", "DeviceArray", "DuplicateNameError", "ForkedError", "Handle", "HpccollError",
    "InvalidArgumentError", "MismatchError", "ObjectError", "OutOfMemoryError", "PeerLost", "ProtocolError",
    "RankError", "RecoverableError", "Reduction", "ResultSizeError", "RootJoinedError", "ShutDownError", "StallError",
    "StartError", "TransportError", "UnsupportedError", "World",
    "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_async", "alltoall", "alltoall_async",
    "barrier", "barrier_async", "broadcast", "broadcast_async", "broadcast_object", "compression", "config",
    "cross_rank", "cross_size", "errors", "exscan", "exscan_async", "gather", "gather_async", "init", "is_initialized",
    "join", "join_async", "local_rank", "local_size", "preemption", "rank", "recv", "recv_async", "reduce",
    "reduce_async", "reducescatter", "reducescatter_async", "run",
    "scan", "scan_async", "scatter", "scatter_async", "send", "send_async", "shutdown", "size", "world",
]  # fmt: skip

_MODULES = ("frontend", "net", "observe", "rendezvous", "testing", "torch")
"""The modules for programs that are not in __all__, because a program imports them where it needs them."""


def __dir__() -> list[str]:
    """Name what is there for programs, and not the modules that the library is made of."""
    given = {*__all__, *(module for module in _MODULES if module in globals())}
    return sorted(given | {name for name in globals() if name.startswith("__")})
