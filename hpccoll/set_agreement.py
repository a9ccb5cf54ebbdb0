# SPDX-License-Identifier: Apache-2.0
"""The agreement of a World's ranks on process sets that are made of them."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hpccoll import _core, agreements, objects
from hpccoll.compared import digest
from hpccoll.outside import check_inside

__all__ = ["Agreement", "Exchange", "Made", "turn"]

Exchange = Callable[[str, bytes], Any]
"""An allgather: takes a name and this rank's bytes; returns those of all ranks, one after the other, as a buffer."""
Made = tuple[int, int, tuple[int, ...], list[int]]
"""The number and the generation of the sets, the World ranks of this rank's set (none: it is in no set), and all ranks
that are in a set."""


@contextlib.contextmanager
def turn(world: Any, what: str) -> Iterator[bool]:
    """Let threads that make process sets of one World by the same operation wait for each other.

    :returns: has this thread waited? Then its call may meet that of another thread on another rank, so that the ranks
        must raise an error
    """
    check_inside(world.core, what)
    lock = world.core.turns.setdefault(what, threading.Lock())
    waited = not lock.acquire(blocking=False)
    if waited:
        lock.acquire()
    try:
        with agreements.whole():
            yield waited
    finally:
        lock.release()


@dataclass(frozen=True)
class Agreement:
    """How ranks agree on a process set for each of several disjoint groups of them, all of one number."""

    world: Any
    """The World whose ranks they are."""
    what: str
    """The operation of the program."""
    arguments: object
    """Those that are the same on all ranks."""
    crowded: bool = False
    """Has this thread waited for its turn? Then all ranks raise an error."""
    ranks: Sequence[int] = ()
    """Those that call this; none: all."""
    exchange: Exchange | None = None
    """An allgather over them; None: operations of the World."""

    def reach(self, row: list[int]) -> Made | str:
        """Agree with the other ranks.

        :param row: of this rank, as colors.row() makes it
        :returns: the sets; "differ" if the arguments do, "unfit" if a row is
        :raises StartError: this rank is in too many process sets, ranks have not come, or a node has no memory
        :raises InvalidArgumentError: several threads of a rank called this at once
        """
        base, core, among = self.world.base, self.world.core, self.ranks or range(self.world.size)
        made = _core.agree_on_sets(
            base.loop,
            f"hpccoll.{self.what}",
            tuple(core.members[r] for r in self.ranks) if self.ranks else core.members,
            among.index(self.world.rank),
            row,
            self.crowded,
            int(digest(repr(self.arguments).encode())[0]),
            self.exchange or partial(objects.exchange, core, seconds=base.settings.start_timeout),
        )
        if isinstance(made, str):
            return made
        number, generation, members, inside = made
        return number, generation, members, [among[i] for i in inside]
