# SPDX-License-Identifier: Apache-2.0
"""Process sets: some ranks of the World, known by a number that all ranks agree on.

Horovod's are registered, ours are Worlds: this is the register. It belongs to the default World, so that a new one
starts with an empty register.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpccoll import collectives, errors
from hpccoll.world import World, current, is_initialized

__all__ = [
    "ProcessSet", "add_process_set", "global_process_set", "process_set_by_id", "process_set_ids", "remove_process_set",
    "root_in", "world_of",
]  # fmt: skip


class ProcessSet:
    """Some ranks of the job that do operations together: give it to init() or to add_process_set()."""

    process_set_id: int | None = None
    """0: all ranks; None: not registered."""
    ranks: list[int] | None = None
    """Global ranks in the order of the set; None until a set given by a communicator is registered."""
    mpi_comm: Any = None
    own_world: World | None = None
    """The library's own: the set as this rank sees it; None where this rank is not in it."""

    def __init__(self, ranks_or_comm: Any) -> None:
        """Describe a set; it is registered later.

        :param ranks_or_comm: global ranks, or an mpi4py communicator: on each rank one that it is in, or COMM_NULL
        """
        if hasattr(ranks_or_comm, "Get_rank"):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = _ascending(ranks_or_comm)

    @property
    def registered(self) -> bool:
        """Whether operations can name it."""
        return self.process_set_id is not None and is_initialized()

    def size(self) -> int | None:
        """Ranks of the set; None if it is not registered."""
        return len(self.ranks or ()) if self.registered else None

    def rank(self) -> int | None:
        """Rank of this process in the set, from 0; None if it is not registered. ValueError if it is not in it."""
        return world_of(self).rank if self.registered else None

    def included(self) -> bool | None:
        """Whether this process is in the set; None if it is not registered."""
        return self.own_world is not None if self.registered else None

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )


class _GlobalProcessSet(ProcessSet):
    """All ranks of the default World, whichever that is."""

    process_set_id = 0

    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        """All ranks; none while there is no World."""
        return list(range(current().size)) if is_initialized() else []

    @property
    def own_world(self) -> World | None:  # type: ignore[override]
        """See ProcessSet."""
        return current() if is_initialized() else None


global_process_set = _GlobalProcessSet()


class _Register:
    """The process sets of one World."""

    def __init__(self, of: World) -> None:
        self.of = of
        self.next_id = 1  # numbers are not used again
        self.sets: dict[int, ProcessSet] = {0: global_process_set}


_current: _Register | None = None


def _global() -> World:
    if not is_initialized():
        raise errors.InvalidArgumentError("hpccoll has not been initialized; use hvd.init()")
    return current()


def _register() -> _Register:
    global _current
    if _current is None or _current.of is not _global():
        forget_all()
        _current = _Register(_global())
    return _current


def forget_all() -> None:
    """The World has ended: its process sets are not registered any more."""
    global _current
    for one in _current.sets.values() if _current else ():
        if one is not global_process_set:
            one.process_set_id, one.own_world = None, None
    _current = None


# ---- for users -----------------------------------------------------------------------------------------


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Register a process set; all ranks of the job call it together with the same ranks.

    :returns: the set (`process_set` itself if it is one), which has a number now
    :raises ValueError: there is one of these ranks already, or they are no ranks of the job
    """
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    register = _register()
    if one.process_set_id is not None:
        raise errors.InvalidArgumentError(f"{one} is registered already")
    if one.mpi_comm is not None:
        _add_by_comm(one)
    else:
        _add_by_ranks(register, one)
    one.process_set_id = register.next_id
    register.sets[register.next_id] = one
    register.next_id += 1
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; all ranks of the job call it together.

    :returns: False for the global process set, which stays
    :raises MismatchError: the ranks name different sets
    """
    number = process_set.process_set_id
    if number == 0:
        return False
    if number is None or _register().sets.get(number) is not process_set:
        raise errors.InvalidArgumentError(f"{process_set} is not registered")
    said = collectives.allgather_object(number, name="hpccoll.remove_process_set")
    for rank, other in enumerate(said):
        if other != said[0]:
            raise errors.MismatchError(
                f"remove_process_set: rank 0 says process set {said[0]}, rank {rank} says {other}"
            )
    if process_set.own_world is not None:
        process_set.own_world.shutdown()
    del _register().sets[number]
    process_set.process_set_id, process_set.own_world = None, None
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """The registered process set of this number. ValueError if there is none."""
    sets = _register().sets
    if process_set_id not in sets:
        raise errors.InvalidArgumentError(f"no process set {process_set_id}: there are {sorted(sets)}")
    return sets[process_set_id]


def process_set_ids() -> list[int]:
    """The numbers of the registered process sets, ascending."""
    return sorted(_register().sets)


# ---- for the operations ----------------------------------------------------------------------------------


def world_of(process_set: ProcessSet) -> World:
    """The World in which operations of this set run. ValueError if this rank is not in it."""
    own = process_set.own_world
    if own is None:
        mine = _global().rank
        why = f"does not contain rank {mine}" if process_set.registered else "is not registered"
        raise errors.InvalidArgumentError(f"{process_set} {why}")
    return own


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """The rank in the set of a global rank. ValueError if it is not in it."""
    members = process_set.ranks or []
    if root_rank not in members:
        raise errors.InvalidArgumentError(f"root_rank is {root_rank}: the process set has ranks {members}")
    return members.index(root_rank)


# ---- making ------------------------------------------------------------------------------------------------


def _ascending(ranks: Any) -> list[int]:
    try:
        chosen = sorted(ranks)
    except TypeError:
        chosen = [None]
    if any(not isinstance(rank, int) for rank in chosen):
        raise errors.InvalidArgumentError(
            f"a process set is made of global ranks or of an mpi4py communicator, not of {ranks!r}"
        )
    return chosen


def _add_by_ranks(register: _Register, one: ProcessSet) -> None:
    for other in register.sets.values():
        if other.ranks == one.ranks:
            raise errors.InvalidArgumentError(f"there is a process set of these ranks already: {other}")
    one.own_world = register.of.subset(one.ranks or [])


def _add_by_comm(one: ProcessSet) -> None:
    """Each rank brings its own communicator: those that bring the same one are a set, under one number."""
    from mpi4py import MPI

    mine = _global()
    color, key = None, 0
    if one.mpi_comm != MPI.COMM_NULL:
        members = one.mpi_comm.allgather(mine.rank)
        color, key = min(members), one.mpi_comm.Get_rank()
        one.ranks = members
    one.own_world = mine.split(color, key)
    one.ranks = one.ranks or []
