# SPDX-License-Identifier: Apache-2.0
"""The agreement of a World's ranks on process sets that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpccoll import _core, objects
from hpccoll.compared import digest
from hpccoll.outside import check_inside

__all__ = ["Exchange", "Made", "agree"]

Exchange = Callable[[str, np.ndarray], np.ndarray]
"""An allgather: takes a name and this rank's bytes (1-d uint8); returns those of all ranks."""
Made = tuple[int, int, tuple[int, ...], list[int]]
"""The number and the generation of the sets, the World ranks of this rank's set (none: it is in no set), and all ranks
that are in a set."""


def agree(
    world: Any,
    what: str,
    arguments: object,
    row: list[int],
    ranks: Sequence[int] = (),
    exchange: Exchange | None = None,
) -> Made | str:
    """Agree on a process set for each of several disjoint groups of ranks, all of one number.

    :param world: of whose ranks they are
    :param what: the operation of the program
    :param arguments: those that are the same on all ranks
    :param row: of this rank, as colors.row() makes it
    :param ranks: those that call this; none: all
    :param exchange: an allgather over them (default: operations of the World)
    :returns: the sets; "differ" if the arguments do, "unfit" if a row is
    :raises StartError: this rank is in too many process sets, ranks have not come, or a node has no memory
    """
    check_inside(world.core, what)
    base, core, among = world.base, world.core, ranks or range(world.size)
    made = _core.agree_on_sets(
        base.loop,
        f"hpccoll.{what}",
        tuple(core.members[r] for r in ranks) if ranks else core.members,
        among.index(world.rank),
        row,
        int(digest(repr(arguments).encode())[0]),
        exchange or partial(objects.exchange, core, seconds=base.settings.start_timeout),
    )
    if isinstance(made, str):
        return made
    number, generation, members, inside = made
    return number, generation, members, [among[i] for i in inside]
