# SPDX-License-Identifier: Apache-2.0
"""hpccoll: collective operations for the ranks of a supercomputer job.

>>> hpccoll.init()
>>> total = hpccoll.allreduce(np.ones(4))
>>> hpccoll.shutdown()
"""

from importlib import metadata as _metadata

try:
    from hpccoll import _core as _core
except ImportError as _error:
    from hpccoll import unbuilt as _unbuilt

    raise _unbuilt.explain(_error) from None

from hpccoll import compression, config, errors
from hpccoll._core import DeviceArray
from hpccoll.collectives import (
    ANY_SOURCE,
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
    Handle,
    Reduction,
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
    recv,
    recv_async,
    reducescatter,
    reducescatter_async,
    send,
    send_async,
)  # fmt: skip
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
    RecoverableError,
    ResultSizeError,
    RootJoinedError,
    ShutDownError,
    StallError,
    StartError,
    TransportError,
    UnsupportedError,
)  # fmt: skip
from hpccoll.preemption import preemption
from hpccoll.world import World, init, is_initialized, shutdown
from hpccoll.world import current as world

__version__ = _metadata.version("hpccoll")


def rank() -> int:
    """Give the number of this process in the default World, from 0."""
    return world().rank


def size() -> int:
    """Ranks of the default World."""
    return world().size


def local_rank() -> int:
    """Give the number of this process among the ranks of its node, from 0."""
    return world().local_rank


def local_size() -> int:
    """Ranks on this node."""
    return world().local_size


def cross_rank() -> int:
    """Give the number of this process among the ranks of its local rank, one a node, from 0."""
    return world().cross_rank


def cross_size() -> int:
    """Ranks of this process's local rank, one a node."""
    return world().cross_size


__all__ = [
    "ANY_SOURCE", "AVERAGE", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MIN", "PRODUCT", "SUM",
    "BrokenWorldError", "DeviceArray", "DuplicateNameError", "ForkedError", "Handle", "HpccollError",
    "InvalidArgumentError", "MismatchError", "ObjectError", "OutOfMemoryError", "PeerLost", "ProtocolError",
    "RecoverableError", "Reduction", "ResultSizeError", "RootJoinedError", "ShutDownError", "StallError", "StartError",
    "TransportError", "UnsupportedError", "World",
    "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_async", "alltoall", "alltoall_async",
    "barrier", "barrier_async", "broadcast", "broadcast_async", "broadcast_object", "compression", "config",
    "cross_rank", "cross_size", "errors", "init", "is_initialized", "join", "join_async", "local_rank", "local_size",
    "preemption", "rank", "recv", "recv_async", "reducescatter", "reducescatter_async", "send", "send_async",
    "shutdown", "size", "world",
]  # fmt: skip
