# SPDX-License-Identifier: Apache-2.0
"""The World of `init()`, and the functions of the package, which are its methods."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, cast

from hpccoll import _core, bootstrap, default_rendezvous, errors, programs
from hpccoll.launch_protocol import Place
from hpccoll.outside import Outside
from hpccoll.rendezvous import newcomer
from hpccoll.worlds import World

__all__ = ["cross_rank", "cross_size", "init", "is_initialized", "local_rank", "local_size", "rank", "shutdown", "size"]
# generated: names (make bindings)
__all__ += [
    "allgather", "allgather_async", "allgather_init", "allgather_object", "allreduce", "allreduce_async",
    "allreduce_init", "alltoall", "alltoall_async", "alltoall_init", "barrier", "barrier_async", "barrier_init",
    "broadcast", "broadcast_async", "broadcast_init", "broadcast_object", "capsule", "exscan", "exscan_async",
    "exscan_init", "gather", "gather_async", "gather_init", "gather_object", "iprobe", "join", "join_async", "probe",
    "recv", "recv_async", "recv_init", "recv_object", "reduce", "reduce_async", "reduce_init", "reducescatter",
    "reducescatter_async", "reducescatter_init", "scan", "scan_async", "scan_init", "scatter", "scatter_async",
    "scatter_init", "scatter_object", "send", "send_async", "send_init", "send_object", "sendrecv",
]  # fmt: skip
# end of generated

_NO_WORLD = "there is no World: call hpccoll.init() first"


class _Nowhere(Outside):
    """The process set of a missing default World."""

    text = "init() has not made it"

    def __init__(self) -> None:
        """There are no ranks to describe."""

    def refuse(self, operation: str) -> NoReturn:  # noqa: ARG002 - the text is the same for each
        """Raise ShutDownError."""
        raise errors.ShutDownError(_NO_WORLD)


class _Default(World):
    """The World whose methods are the functions of the package: it acts for the World of `init()`.

    So an operation is defined only once, as a method, and its function is as fast as the method.
    """

    world: World | None
    """The World that init() returned; None without a World."""

    def __init__(self) -> None:
        """Begin without a World."""
        self.become(None)

    def become(self, world: World | None) -> None:
        """Take the place of another World."""
        self.world = world
        self.core = cast("_core.Set", _Nowhere()) if world is None else world.core
        self.base = cast("bootstrap.Base", None) if world is None else world.base

    def __reduce__(self) -> str:
        """Pickle a function of the package by its name, as pickle does for functions."""
        return "default"


default = _Default()
when_made: list[Callable[[World], object]] = []
"""Functions of front ends whose compiled programs contain the rank and the size; init() calls them with a new World."""
_making = threading.RLock()
"""Held while init() makes the World: threads that call it at once get one World."""


def _forget_threads() -> None:
    """Make the lock anew in a forked child, which has none of the threads that may hold it."""
    global _making
    _making = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)


def init(comm: Any = None, **knobs: Any) -> World:
    """Make the default World, unless there is one already; all ranks call this together.

    A new rank of an elastic job that runs already gets a World of its own until `elastic.run()`: docs/elastic.md.

    :param comm: an mpi4py communicator; None: MPI.COMM_WORLD, or this process alone where there is no MPI
    :param knobs: `rendezvous=`, as for `World`, and fields of `hpccoll.config.Config`, which take precedence over the
        environment
    :returns: the default World
    :raises StartError: ranks are missing, settings differ, or shared memory or MPI failed
    :raises InvalidArgumentError: a knob is unknown or out of its bounds, or there is a World already and arguments are
        given
    """
    with _making:
        if default.world is None or default.world.core.closed:
            alone = default_rendezvous.apart() if comm is None and knobs.get("rendezvous") is None else None
            world = World(**{**knobs, **newcomer.KNOBS, "rendezvous": alone}) if alone else World(comm, **knobs)
            default.become(world)
            world.core.open_gate(is_world=True)
            for made in when_made:
                made(world)
            return world
        if comm is not None or knobs:
            raise errors.InvalidArgumentError(
                "hpccoll is initialised already; shut it down before init() with arguments"
            )
        return default.world


def shutdown(*, wait: bool = True) -> None:
    """End the default World, if there is one; `init()` may make another. See `World.shutdown`.

    It waits for the compiled programs that this thread has started, unless it is called while an exception is handled.

    :param wait: False: end the World now, without waiting for programs and for the other ranks
    """
    ending_world = default.world
    if ending_world is not None and wait and sys.exception() is None:
        programs.wait_for_programs()
    default.become(None)
    if ending_world is not None:
        ending_world.shutdown(wait=wait)


def is_initialized() -> bool:
    """Say whether there is a default World that was not shut down.

    :returns: True between `init()` and `shutdown()`
    """
    return default.world is not None and not default.world.core.closed


def current(world: World | None = None) -> World:
    """Give the default World.

    :param world: a World, which is then returned; None: the default World
    :returns: a World
    :raises ShutDownError: there is no default World
    :raises InvalidArgumentError: `world` is something else
    """
    if world is None and default.world is not None:
        return default.world
    if isinstance(world, World):
        return world
    if world is not None:
        raise errors.InvalidArgumentError(f"world is {world!r}: use a hpccoll.World, or None for that of init()")
    raise errors.ShutDownError(_NO_WORLD)


def place() -> World | Place:
    """Give what knows the numbers of this process in the job, such as its rank and the number of ranks.

    :returns: the default World; of a new rank of an elastic job that is not in yet, the place that it will have
    :raises ShutDownError: there is no default World
    """
    world = current()
    rendezvous = world.base.rendezvous
    return rendezvous.place if isinstance(rendezvous, newcomer.Apart) else world


def rank() -> int:
    """Give the number of this process in the default World.

    :returns: 0 to `size() - 1`
    :raises ShutDownError: there is no default World
    """
    return place().rank


def size() -> int:
    """Give the number of ranks of the default World.

    :raises ShutDownError: there is no default World
    """
    return place().size


def local_rank() -> int:
    """Give the number of this process among the ranks of its node.

    :returns: 0 to `local_size() - 1`
    :raises ShutDownError: there is no default World
    """
    return place().local_rank


def local_size() -> int:
    """Give the number of ranks of the default World on this node.

    :raises ShutDownError: there is no default World
    """
    return place().local_size


def cross_rank() -> int:
    """Return the number of this process among the ranks with its local rank; each node has at most one of them.

    :returns: 0 to `cross_size() - 1`; where all nodes have the same number of ranks, the number of the node
    :raises ShutDownError: there is no default World
    """
    return place().cross_rank


def cross_size() -> int:
    """Give the number of ranks with the local rank of this process.

    :returns: the number of nodes, where all have the same number of ranks
    :raises ShutDownError: there is no default World
    """
    return place().cross_size


# ---- the functions of the package: each method of a World that moves data ------------------------------------

# generated: functions (make bindings)
allreduce = default.allreduce
allreduce_async = default.allreduce_async
allgather = default.allgather
allgather_async = default.allgather_async
broadcast = default.broadcast
broadcast_async = default.broadcast_async
reducescatter = default.reducescatter
reducescatter_async = default.reducescatter_async
alltoall = default.alltoall
alltoall_async = default.alltoall_async
barrier = default.barrier
barrier_async = default.barrier_async
join = default.join
join_async = default.join_async
broadcast_object = default.broadcast_object
allgather_object = default.allgather_object
reduce = default.reduce
reduce_async = default.reduce_async
gather = default.gather
gather_async = default.gather_async
scatter = default.scatter
scatter_async = default.scatter_async
gather_object = default.gather_object
scatter_object = default.scatter_object
scan = default.scan
scan_async = default.scan_async
exscan = default.exscan
exscan_async = default.exscan_async
send = default.send
send_async = default.send_async
recv = default.recv
recv_async = default.recv_async
sendrecv = default.sendrecv
probe = default.probe
iprobe = default.iprobe
send_object = default.send_object
recv_object = default.recv_object
allreduce_init = default.allreduce_init
reduce_init = default.reduce_init
broadcast_init = default.broadcast_init
allgather_init = default.allgather_init
reducescatter_init = default.reducescatter_init
alltoall_init = default.alltoall_init
gather_init = default.gather_init
scatter_init = default.scatter_init
scan_init = default.scan_init
exscan_init = default.exscan_init
barrier_init = default.barrier_init
send_init = default.send_init
recv_init = default.recv_init
capsule = default.capsule
# end of generated
