# SPDX-License-Identifier: Apache-2.0
"""Process sets: some ranks of the World, known by a number that all ranks agree on.

Horovod has a register of process sets; the library has Worlds. This is the register. It belongs to the default World,
so a new default World starts with an empty register.
"""

from collections.abc import Iterable
from typing import Any

from hpccoll import errors
from hpccoll.default_world import current, is_initialized
from hpccoll.rendezvous import CoordinatedRendezvous
from hpccoll.rendezvous.newcomer import Apart
from hpccoll.worlds import World

__all__ = [
    "ProcessSet", "add_process_set", "global_process_set", "has_peers", "process_set_by_id", "process_set_ids",
    "remove_process_set", "root_in", "world_of",
]  # fmt: skip


class ProcessSet:
    """Some ranks of the job that call operations together. Pass it to init() or to add_process_set()."""

    process_set_id: int | None = None
    """The number of the set; 0 for all ranks, None if it is not registered."""
    ranks: list[int] | None = None
    """Global ranks in the order of the set; None until a set given by a communicator is registered."""
    mpi_comm: Any = None
    own_world: World | None = None
    """The World of the set, for the library's own use; None if this rank is not in the set."""

    def __init__(self, ranks_or_comm: Any) -> None:
        """Describe a set, which is registered later.

        :param ranks_or_comm: global ranks, or an mpi4py communicator: on each rank one that it belongs to, or COMM_NULL
        :raises InvalidArgumentError: (a ValueError) it is neither
        """
        if hasattr(ranks_or_comm, "Get_rank"):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = _ascending(ranks_or_comm)

    @property
    def registered(self) -> bool:
        """Whether operations can use the set."""
        return self.process_set_id is not None and is_initialized()

    def size(self) -> int | None:
        """Return the number of ranks in the set; None if it is not registered."""
        return len(self.ranks or ()) if self.registered else None

    def rank(self) -> int | None:
        """Return the rank of this process in the set, from 0; None if the set is not registered.

        :raises InvalidArgumentError: (a ValueError) this process is not in the set
        """
        return world_of(self).rank if self.registered else None

    def included(self) -> bool | None:
        """Return whether this process is in the set; None if the set is not registered."""
        return self.own_world is not None if self.registered else None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the current default World."""

    process_set_id = 0

    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        """All ranks; an empty list while there is no World."""
        return list(range(current().size)) if is_initialized() else []

    @property
    def own_world(self) -> World | None:  # type: ignore[override]
        return current() if is_initialized() else None


global_process_set = _GlobalProcessSet()


class _Register:
    """The process sets of one World."""

    def __init__(self, of: World) -> None:
        self.of = of
        self.next_id = 1  # a number is never used again
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
    """Unregister the process sets of a World that has ended."""
    global _current
    for process_set in _current.sets.values() if _current else ():
        if process_set is not global_process_set:
            process_set.process_set_id, process_set.own_world = None, None
    _current = None


# ---- for users -----------------------------------------------------------------------------------------


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Register a process set; all ranks of the job call it together with the same ranks.

    :param process_set: a ProcessSet, or global ranks
    :returns: the set (`process_set` itself if it is one), which has a number now
    :raises InvalidArgumentError: (a ValueError) there is a set of these ranks already, or they are no ranks of the job
    :raises MismatchError: (a RuntimeError) the ranks name different sets
    """
    new = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    register = _register()
    if new.process_set_id is not None:
        raise errors.InvalidArgumentError(f"{new} is registered already")
    if new.mpi_comm is not None:
        _add_by_comm(new)
    else:
        _add_by_ranks(register, new)
    new.process_set_id = register.next_id
    register.sets[register.next_id] = new
    register.next_id += 1
    return new


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; all ranks of the job call it together.

    :param process_set: a registered set
    :returns: True; False for the global process set, which stays
    :raises InvalidArgumentError: (a ValueError) it is not registered
    :raises MismatchError: (a RuntimeError) the ranks name different sets
    """
    check_process_set(process_set)
    number = process_set.process_set_id
    if number == 0:
        return False
    if number is None or _register().sets.get(number) is not process_set:
        raise errors.InvalidArgumentError(f"{process_set} is not registered")
    numbers = current().allgather_object(number, name="hpccoll.remove_process_set")
    for rank, other in enumerate(numbers):
        if other != numbers[0]:
            raise errors.MismatchError(
                f"remove_process_set: rank 0 says process set {numbers[0]}, rank {rank} says {other}"
            )
    if process_set.own_world is not None:
        process_set.own_world.shutdown()
    del _register().sets[number]
    process_set.process_set_id, process_set.own_world = None, None
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """Return the registered process set of a number.

    :param process_set_id: the number
    :raises InvalidArgumentError: (a ValueError) there is none
    """
    sets = _register().sets
    if process_set_id not in sets:
        raise errors.InvalidArgumentError(f"no process set {process_set_id}: there are {sorted(sets)}")
    return sets[process_set_id]


def process_set_ids() -> list[int]:
    """Return the numbers of the registered process sets, in ascending order."""
    return sorted(_register().sets)


# ---- for the operations ----------------------------------------------------------------------------------


def check_process_set(process_set: Any) -> None:
    """Check the argument `process_set` of a call.

    :raises InvalidArgumentError: (a ValueError) it is something else
    """
    if not isinstance(process_set, ProcessSet):
        raise errors.InvalidArgumentError(
            f"process_set is {process_set!r}: use a ProcessSet of add_process_set(), or global_process_set"
        )


def world_of(process_set: ProcessSet) -> World:
    """Return the World in which operations of a process set run.

    :raises InvalidArgumentError: (a ValueError) this rank is not in it, or it is not registered
    """
    check_process_set(process_set)
    world = process_set.own_world
    if world is None:
        rank = _global().rank
        why = f"does not contain rank {rank}" if process_set.registered else "is not registered"
        raise errors.InvalidArgumentError(f"{process_set} {why}")
    return world


def has_peers(process_set: ProcessSet) -> bool:
    """Return whether this rank has others in the process set, or may get some, as in an elastic job.

    :raises InvalidArgumentError: (a ValueError) this rank is not in it, or it is not registered
    """
    world = world_of(process_set)
    return world.size > 1 or isinstance(world.base.rendezvous, Apart | CoordinatedRendezvous)


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """Return the rank in a process set of the global rank `root_rank`.

    :raises InvalidArgumentError: (a ValueError) it is not in the set
    """
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


def _add_by_ranks(register: _Register, new: ProcessSet) -> None:
    for other in register.sets.values():
        if other.ranks == new.ranks:
            raise errors.InvalidArgumentError(f"there is a process set of these ranks already: {other}")
    try:
        new.own_world = register.of.subset(new.ranks or []) or None
    except (errors.InvalidArgumentError, errors.MismatchError) as error:
        raise type(error)(f"add_process_set{str(error).removeprefix('subset')}") from None


def _add_by_comm(new: ProcessSet) -> None:
    """Make the sets of communicators. Ranks with the same communicator are a set; all these sets have one number."""
    from mpi4py import MPI

    mine = _global()
    color, key = None, 0
    if new.mpi_comm != MPI.COMM_NULL:
        members = new.mpi_comm.allgather(mine.rank)
        color, key = min(members), new.mpi_comm.Get_rank()
        new.ranks = members
    new.own_world = mine.split(color, key) or None
    new.ranks = new.ranks or []
