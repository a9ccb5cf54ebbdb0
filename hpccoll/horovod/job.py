# SPDX-License-Identifier: Apache-2.0
"""Horovod's init, rank, size, ... over the default World."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from hpccoll import collectives, config, errors
from hpccoll.frontend.process_sets import (
    ProcessSet,
    add_process_set,
    forget_all,
    global_process_set,
    world_of,
)
from hpccoll.horovod import environment
from hpccoll.observe import timeline
from hpccoll.world import init as make_default_world
from hpccoll.world import is_initialized
from hpccoll.world import shutdown as end_default_world

__all__ = [
    "barrier", "cross_rank", "cross_size", "init", "is_homogeneous", "is_initialized", "join", "local_rank",
    "local_size", "rank", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Make the World; all its ranks call this together. While there is one, nothing happens.

    :param comm: an mpi4py communicator, or ranks of MPI.COMM_WORLD of which each calls this; default: all of them
    :param process_sets: to be registered at once, or "dynamic": there will be more of them later (always allowed here)
    :raises StartError: the World could not be made
    """
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise errors.InvalidArgumentError(
            f'process_sets is {process_sets!r}: a list of ProcessSet, or "dynamic"'
        )
    at_once = [] if process_sets is None or isinstance(process_sets, str) else process_sets
    if is_initialized():
        if comm is not None or at_once:
            raise errors.InvalidArgumentError("hpccoll is initialised already; shut it down before init(...)")
        return
    found = environment.read(config.environment())
    with _communicator(comm) as chosen:
        made = make_default_world(chosen, **found.knobs)
    if made.rank == 0:
        print(
            *(f"hpccoll: {line}" for line in found.lines),
            sep="\n",
            end="\n" * bool(found.lines),
            file=sys.stderr,
        )
    for process_set in at_once:
        add_process_set(process_set)


@contextlib.contextmanager
def _communicator(comm: Any) -> Iterator[Any]:
    """An mpi4py communicator for what init() was given; None stays None."""
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


def shutdown() -> None:
    """End the World and forget its process sets; init() may make another."""
    forget_all()
    end_default_world()


def rank() -> int:
    """Number of this process in the job, from 0."""
    return world_of(global_process_set).rank


def size() -> int:
    """Processes of the job."""
    return world_of(global_process_set).size


def local_rank() -> int:
    """Number of this process on its node, from 0."""
    return world_of(global_process_set).local_rank


def local_size() -> int:
    """Processes of the job on this node."""
    return world_of(global_process_set).local_size


def cross_rank() -> int:
    """Number of this process among those of its local rank, one a node, from 0."""
    return world_of(global_process_set).cross_rank


def cross_size() -> int:
    """Processes that have the local rank of this one, one a node."""
    return world_of(global_process_set).cross_size


def is_homogeneous() -> bool:
    """Whether all nodes have as many ranks."""
    node_of = world_of(global_process_set).base.loop.node_of
    return len({node_of.count(node) for node in node_of}) == 1


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begin a timeline of this job for chrome://tracing, which rank 0 writes; see hpccoll.observe.timeline.

    :param file_path: with "{rank}" in it every rank writes its own file
    :param mark_cycles: mark the control messages, too: what there is in place of cycles
    """
    timeline.start(world_of(global_process_set), file_path, mark_cycles)


def stop_timeline() -> None:
    """End the timeline; its file is complete when this returns."""
    timeline.stop(world_of(global_process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called this."""
    collectives.barrier(world=world_of(process_set))


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and wait until all ranks have said so.

    Until then it takes part in the operations of the others with neutral elements: nothing is added, a gather gets no
    rows of it, Average divides by all ranks.

    :param device: for Horovod's signature; there is nothing to choose
    :returns: the rank that joined last
    """
    del device
    return collectives.join(world=world_of(global_process_set))
