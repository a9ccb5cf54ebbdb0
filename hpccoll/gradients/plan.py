# SPDX-License-Identifier: Apache-2.0
"""Which requests carry the gradients: one each, or one a group, which is agreed, fused and reduced together."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpccoll import collectives, errors
from hpccoll.world import World

__all__ = ["Item", "check_names", "in_groups", "in_parts", "one_each"]


class Item(NamedTuple):
    """What one request carries."""

    name: str
    """Of the request, the same on all ranks."""
    members: tuple[int, ...]
    """Numbers of the gradients, each in the order in which the framework lists them."""


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidArgumentError if a name stands for two gradients."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise errors.InvalidArgumentError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )


def one_each(names: Sequence[str], first: int = 0) -> list[Item]:
    """Give each gradient a request of its own, to be fused by what is ready.

    :param first: number of the first gradient
    """
    return [Item(f"gradient.{name}", (first + at,)) for at, name in enumerate(names)]


def in_groups(names: Sequence[str], groups: Sequence[Sequence[int]], world: World) -> list[Item]:
    """Make a request of each group, and one of each gradient that is in none.

    All ranks of `world` call it together. MismatchError if they do not mean the same groups.

    :param groups: numbers of gradients, none in two groups
    """
    items = [_group(names, tuple(group)) for group in groups if group]
    grouped = {member for item in items for member in item.members}
    items += [item for item in one_each(names) if item.members[0] not in grouped]
    _check_agreed([" ".join(names[member] for member in item.members) for item in items], world)
    return items


def in_parts(names: Sequence[str], members: Sequence[int], parts: int, world: World) -> list[Item]:
    """Cut some gradients, in the order in which rank 0 lists them, into `parts` groups of about equal number.

    All ranks of `world` call it together. MismatchError if they do not have the same gradients.
    """
    number = {names[member]: member for member in members}
    _check_agreed([f"{parts} groups", *sorted(number)], world)
    order = [number[name] for name in collectives.broadcast_object(list(number), name=_AGREE, world=world)]
    cuts = np.array_split(np.array(order, np.int64), parts)
    groups = [_group(names, tuple(cut.tolist())) for cut in cuts if len(cut)]
    return groups + [item for item in one_each(names) if item.members[0] not in order]


_AGREE = "hpccoll.gradients"


def _group(names: Sequence[str], members: tuple[int, ...]) -> Item:
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return Item(f"gradient.{names[members[0]]}{more}", members)


def _check_agreed(lines: list[str], world: World) -> None:
    """Compare a digest over all ranks; only if it differs, everything is gathered to say where.

    The minimum of the digest and of its complement tells whether all are equal: 16 bytes, however many ranks.
    """
    digest = np.frombuffer(hashlib.sha256("\n".join(lines).encode()).digest()[:8], np.uint64)
    low, flipped_high = collectives.allreduce(
        np.concatenate([digest, ~digest]), collectives.MIN, name=_AGREE, world=world
    )
    if low == ~flipped_high:
        return
    said = collectives.allgather_object(lines, name=_AGREE, world=world)
    rank = next(r for r, other in enumerate(said) if other != said[0])
    at = next(
        (i for i, pair in enumerate(zip(said[0], said[rank], strict=False)) if pair[0] != pair[1]), None
    )
    if at is None:
        raise errors.MismatchError(
            f"gradients and their groups: rank 0 has {len(said[0])}, rank {rank} has {len(said[rank])}"
        )
    raise errors.MismatchError(
        f"gradients and their groups: rank 0 has {said[0][at]!r} where rank {rank} has {said[rank][at]!r}"
    )
