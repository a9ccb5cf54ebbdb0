# SPDX-License-Identifier: Apache-2.0
"""The process sets of the calls; all ranks make them once, before the first program."""

from itertools import combinations
from typing import Any

import hpccoll

Members = tuple[int, ...] | None

_worlds: dict[Members, hpccoll.World] = {}
_sets: dict[Members, Any] = {}


def make(world: hpccoll.World, front_end: Any) -> None:
    """Make all sets of a front end, or of the World itself if it is None."""
    some = [members for n in range(1, world.size) for members in combinations(range(world.size), n)]
    if front_end is None:
        _worlds.update({None: world} | {members: world.subset(members) for members in some})
    elif not _sets:  # the front ends share them
        whole = {None: front_end.global_process_set}
        _sets.update(whole | {members: front_end.add_process_set(members) for members in some})


def world_of(members: Members) -> hpccoll.World:
    return _worlds[members]


def process_set_of(members: Members) -> Any:
    return _sets[members]


def all_worlds() -> dict[Members, hpccoll.World]:
    return _worlds


def global_rank(members: Members, rank: int) -> int:
    """Return the number in the job of a rank of a set."""
    return rank if members is None else members[rank]
