# SPDX-License-Identifier: Apache-2.0
"""Horovod's init, rank, size, ... over the default World."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hpccoll import errors, inherited
from hpccoll.default_world import init as make_default_world
from hpccoll.default_world import is_initialized, place
from hpccoll.default_world import shutdown as end_default_world
from hpccoll.frontend.process_sets import (
    ProcessSet,
    add_process_set,
    forget_all,
    global_process_set,
    world_of,
)
from hpccoll.horovod import environment
from hpccoll.launch_protocol import Place
from hpccoll.observe import timeline
from hpccoll.rendezvous import CoordinatedRendezvous, Rendezvous
from hpccoll.rendezvous.newcomer import Apart
from hpccoll.text import say
from hpccoll.worlds import World

__all__ = [
    "at_shutdown", "barrier", "cross_rank", "cross_size", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "rank", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    through: Callable[[], Rendezvous] | None = None,
) -> None:
    """Make the World. All its ranks call this together; if there is a World already, nothing happens.

    :param comm: an mpi4py communicator, or a list of ranks of MPI.COMM_WORLD, each of which calls this; default: all
        ranks
    :param process_sets: sets to register at once, or "dynamic": more may be added later, which is always allowed here
    :param through: finds the other ranks, in place of a communicator
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or there is a World and arguments are given
    :raises StartError: (a RuntimeError) the World could not be made
    """
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise errors.InvalidArgumentError(f'process_sets is {process_sets!r}: a list of ProcessSet, or "dynamic"')
    at_once = [] if process_sets is None or isinstance(process_sets, str) else process_sets
    if is_initialized():
        if comm is not None or at_once:
            raise errors.InvalidArgumentError("hpccoll is initialised already; shut it down before init(...)")
        return
    found = environment.read(inherited.environment())
    with _communicator(comm) as chosen:
        made = make_default_world(chosen, rendezvous=through() if through else None, **found.knobs)
    if rank() == 0:
        for line in found.lines:
            say(f"hpccoll: {line}")
    if isinstance(made.base.rendezvous, CoordinatedRendezvous | Apart):
        _publish()
    if isinstance(made.base.rendezvous, Apart):
        return  # without process sets, as all ranks of an elastic job are after a change
    for process_set in at_once:
        add_process_set(process_set)


def _publish() -> None:
    """Set the variables that Horovod's launcher sets for each generation of an elastic job."""
    for function in (rank, size, local_rank, local_size, cross_rank, cross_size):
        inherited.publish(f"HOROVOD_{function.__name__.upper()}", str(function()))


@contextlib.contextmanager
def _communicator(comm: Any) -> Iterator[Any]:
    """Yield an mpi4py communicator for the argument of init(); None stays None."""
    if comm is None or hasattr(comm, "Get_rank"):
        yield comm
        return
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank not in comm:
        raise errors.InvalidArgumentError(
            f"comm is {list(comm)}: rank {MPI.COMM_WORLD.rank} of MPI.COMM_WORLD is not in it and must not call init()"
        )
    group = MPI.COMM_WORLD.group.Incl(comm)
    made = MPI.COMM_WORLD.Create_group(group)
    try:
        yield made
    finally:
        made.Free()
        group.Free()


_at_shutdown: list[Callable[[], None]] = []


def at_shutdown(function: Callable[[], None]) -> None:
    """Register a function of a front end, which each shutdown() calls, to free its cached resources.

    :param function: has no arguments; register it once
    """
    _at_shutdown.append(function)


def shutdown() -> None:
    """End the World and unregister its process sets. init() may make another World."""
    forget_all()
    end_default_world()
    for function in _at_shutdown:
        function()


def _place() -> World | Place:
    """See hpccoll.default_world.place.

    :raises InvalidArgumentError: there is no World
    """
    world_of(global_process_set)
    return place()


def rank() -> int:
    """Return the number of this process in the job, from 0.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().rank


def size() -> int:
    """Return the number of processes in the job.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().size


def local_rank() -> int:
    """Return the number of this process on its node, from 0.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().local_rank


def local_size() -> int:
    """Return the number of processes on this node.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().local_size


def cross_rank() -> int:
    """Return the number of this process among the processes with its local rank (one per node), from 0.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().cross_rank


def cross_size() -> int:
    """Return the number of processes with the local rank of this one (one per node).

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    return _place().cross_size


def is_homogeneous() -> bool:
    """Return whether all nodes have the same number of ranks.

    :raises InvalidArgumentError: (a ValueError) there is no World: call init() first
    """
    node_of = world_of(global_process_set).base.loop.node_of
    return len({node_of.count(node) for node in node_of}) == 1


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begin a timeline of this job for chrome://tracing. Rank 0 writes it; see hpccoll.observe.timeline.

    A timeline that is being written ends first; if it has the same file, it goes on, and nothing else happens.

    :param file_path: the file; if it contains "{rank}", every rank writes its own
    :param mark_cycles: mark the control messages, too; hpccoll has them in place of Horovod's cycles
    """
    world = world_of(global_process_set)
    running = world.base.timeline
    if running is not None:
        if running.path == timeline.path_of(world.base.loop.rank, file_path):
            return
        timeline.stop(world)
    timeline.start(world, file_path, mark_cycles)


def stop_timeline() -> None:
    """End the timeline; its file is complete when this returns."""
    timeline.stop(world_of(global_process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called this.

    :param process_set: the ranks that take part
    :raises HpccollError: a rank or the transport failed, or this rank is not in the process set
    """
    world_of(process_set).barrier()


def join(device: int = -1) -> int:
    """Announce that this rank has no more data, and wait until all ranks have joined.

    Until then this rank takes part in the operations of the others with neutral elements: it adds nothing to a sum,
    gives no rows to a gather, and Average divides by all ranks.

    :param device: for Horovod's signature; it is not used
    :returns: the rank that joined last
    :raises HpccollError: a rank or the transport failed
    """
    del device
    return world_of(global_process_set).join()
