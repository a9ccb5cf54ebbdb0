# SPDX-License-Identifier: Apache-2.0
"""Groups of gradients: the argument `groups`, what it makes of gradients, names, and a comparison over the ranks."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from hpccoll import errors, reductions
from hpccoll.default_world import is_initialized
from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.worlds import World

__all__ = [
    "AGREE", "Groups", "Variables", "check_members", "checked_groups", "compare_groups", "compare_groups_once",
    "divided", "group_name", "is_number_of_groups", "members_of", "named_groups", "numbered",
]  # fmt: skip

P = TypeVar("P")

Groups = int | Sequence[Sequence[P]] | None
"""A number of groups, lists of variables, or None: no groups."""


class Variables(NamedTuple):
    """What a framework's variables are."""

    kind: str
    """The name of their type, for errors."""
    is_one: Callable[[Any], bool]
    """Tells whether an object is a variable."""
    key: Callable[[Any], int] = id
    """Tells variables apart."""


def is_number_of_groups(groups: object) -> bool:
    """Tell whether it is a positive integer."""
    return isinstance(groups, int | np.integer) and groups is not True and int(groups) > 0


def checked_groups(groups: Any, kind: Variables) -> int | list[list[Any]] | None:
    """Check the argument `groups` of a tape or an optimizer.

    :param kind: what it may hold
    :returns: the groups, in lists of their own
    :raises InvalidArgumentError: it is no Groups, or a variable is in two groups
    """
    if groups is None:
        return None
    if is_number_of_groups(groups):
        return int(groups)
    if not (isinstance(groups, list | tuple) and all(isinstance(group, list | tuple) for group in groups)):
        raise errors.InvalidArgumentError(
            f"groups is {groups!r}: groups should be a positive integer or a list of list of {kind.kind}"
        )
    variables = [variable for group in groups for variable in group]
    for variable in variables:
        if not kind.is_one(variable):
            raise errors.InvalidArgumentError(f"groups must consist of {kind.kind}: {variable!r} is in it")
    if len({kind.key(variable) for variable in variables}) < len(variables):
        raise errors.InvalidArgumentError(f"groups: a {kind.kind} can only appear once in groups")
    return [list(group) for group in groups]


def check_members(groups: Groups[Any], known: Collection[int], key: Callable[[Any], int] = id) -> None:
    """Check that all variables of `groups` are among those whose gradients are combined.

    :param known: the keys of these variables
    :raises InvalidArgumentError: one of them is not
    """
    for at, group in enumerate(groups if isinstance(groups, list) else ()):
        for place, variable in enumerate(group):
            if key(variable) not in known:
                name = getattr(variable, "path", None) or getattr(variable, "name", None)
                called = f"groups[{at}][{place}]" + (f", {name}," if name else "")
                raise errors.InvalidArgumentError(f"{called} is none of the variables whose gradients are combined")


def members_of(groups: Groups[Any], numbers: dict[int, int], key: Callable[[Any], int] = id) -> list[list[int]]:
    """Put gradients into groups. A gradient that is in none is a group of its own.

    :param groups: as checked_groups() returns it
    :param numbers: the number of each gradient that there is, by the key of its variable, in order
    :returns: the numbers of the gradients in each group; no group is empty
    """
    if isinstance(groups, int):
        return divided(list(numbers.values()), groups)
    parts = [[numbers[key(v)] for v in group if key(v) in numbers] for group in groups or ()]
    grouped = {number for part in parts for number in part}
    return [part for part in parts if part] + [[number] for number in numbers.values() if number not in grouped]


def divided(members: Sequence[int], parts: int) -> list[list[int]]:
    """Divide gradients, in order, into `parts` groups; where this leaves a rest, the first groups have one more.

    Horovod divides so. Where there are fewer gradients than groups, each is a group.
    """
    return [part.tolist() for part in np.array_split(np.array(members, np.int64), parts) if len(part)]


def numbered(parts: int) -> list[str]:
    """Return what the ranks compare before the groups themselves, so that an error names different numbers."""
    return [f"{parts} groups"]


def named_groups(
    parts: Sequence[Sequence[int]],
    names: Mapping[int, str] | Sequence[str],
    compare: Callable[[list[list[str]]], None],
) -> list[tuple[str, list[int]]]:
    """Name groups of gradients, after a comparison over the ranks.

    :param parts: the numbers of the gradients in each group
    :param names: of each gradient
    :param compare: compare_groups() or compare_groups_once(), with the names in each group
    :returns: names, each with the numbers of the gradients
    :raises MismatchError: the ranks have different groups
    """
    named = [[names[member] for member in part] for part in parts]
    compare(named)
    return [(group_name(members), list(part)) for members, part in zip(named, parts, strict=True)]


def group_name(names: Sequence[str]) -> str:
    """Name a group after its first gradient, and after all by a digest: other groups have other names on all ranks."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more ({_digest(names)[:4].hex()})"


def _digest(lines: Sequence[str]) -> bytes:
    return hashlib.sha256("\n".join(lines).encode()).digest()


AGREE = "hpccoll: the argument groups, which all ranks must give"
"""The name of the requests with which ranks compare their groups: a report of a stall has it if some have none."""

_compared: WeakKeyDictionary[World, set[tuple[tuple[str, ...], ...]]] = WeakKeyDictionary()
"""The groups that were found to be the same on all ranks."""


def compare_groups_once(what: str, groups: Sequence[Sequence[str]], process_set: ProcessSet) -> None:
    """Compare groups of gradients over the ranks of a process set, unless these were compared before.

    Without it, ranks with different groups would wait for each other until the stall limit, because their groups have
    different names.

    :param what: the name of the tape or the optimizer, the same on all ranks
    :param groups: the names of the gradients in each group
    :raises MismatchError: the ranks have different groups
    """
    if not is_initialized() or process_set.included() is False:
        return
    world = world_of(process_set)
    known, key = _compared.setdefault(world, set()), ((what,), *map(tuple, groups))
    if world.size > 1 and key not in known:
        compare_groups(groups, world, f"{AGREE} {what}")
        known.add(key)


def compare_groups(groups: Sequence[Sequence[str]], world: World, name: str = AGREE) -> None:
    """Compare groups over all ranks; only if they differ, gather them to report the difference.

    The minimum of a digest and that of its complement show whether all are equal: 16 bytes, however many ranks.

    :param groups: the names of the gradients in each group
    :raises MismatchError: they differ
    """
    lines = [" ".join(group) for group in groups]
    digest = np.frombuffer(_digest(lines)[:8], np.uint64)
    low, flipped_high = world.allreduce(np.concatenate([digest, ~digest]), reductions.MIN, name=name)
    if low == ~flipped_high:
        return
    by_rank = world.allgather_object(lines, name=name)
    first = by_rank[0]
    rank, other = next((r, other) for r, other in enumerate(by_rank) if other != first)
    at = next((i for i, pair in enumerate(zip(first, other, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        raise errors.MismatchError(f"gradients and their groups: rank 0 has {len(first)}, rank {rank} has {len(other)}")
    raise errors.MismatchError(
        f"gradients and their groups: rank 0 has {first[at]!r} where rank {rank} has {other[at]!r}"
    )
