# SPDX-License-Identifier: Apache-2.0
"""Buckets of gradients: a bucket holds one gradient or a group, and is agreed, fused and reduced as one request."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hpccoll import collectives, errors
from hpccoll.worlds import World

__all__ = ["Bucket", "buckets_in_parts", "buckets_of_groups", "check_names", "one_bucket_each"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Bucket:
    """The gradients of one request. A bucket is equal only to itself."""

    name: str
    """The name of the request, the same on all ranks."""
    members: tuple[int, ...]
    """Numbers of the gradients, each in the order in which the framework lists them."""


def check_names(names: Sequence[str]) -> None:
    """Check the names of gradients.

    :raises InvalidArgumentError: two gradients have the same name
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise errors.InvalidArgumentError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )


def one_bucket_each(names: Sequence[str], first: int = 0) -> list[Bucket]:
    """Make a bucket per gradient; the library fuses buckets that are ready together.

    :param first: number of the first gradient
    """
    return [Bucket(f"gradient.{name}", (first + at,)) for at, name in enumerate(names)]


def buckets_of_groups(names: Sequence[str], groups: Sequence[Sequence[int]], world: World) -> list[Bucket]:
    """Make a bucket of each group, and one of each gradient that is in no group.

    All ranks of `world` call it together.

    :param groups: numbers of gradients, none in two groups
    :raises MismatchError: the ranks have different groups
    """
    buckets = [_bucket(names, tuple(group)) for group in groups if group]
    grouped = {member for bucket in buckets for member in bucket.members}
    buckets += [bucket for bucket in one_bucket_each(names) if bucket.members[0] not in grouped]
    _check_agreed([" ".join(names[member] for member in bucket.members) for bucket in buckets], world)
    return buckets


def buckets_in_parts(names: Sequence[str], members: Sequence[int], parts: int, world: World) -> list[Bucket]:
    """Divide some gradients, in the order of rank 0, into `parts` buckets with about equally many gradients.

    The gradients that are not in `members` get a bucket each. All ranks of `world` call it together.

    :raises MismatchError: the ranks have different gradients
    """
    number = {names[member]: member for member in members}
    _check_agreed([f"{parts} groups", *sorted(number)], world)
    order = [number[name] for name in world.broadcast_object(list(number), name=_AGREE)]
    cuts = np.array_split(np.array(order, np.int64), parts)
    groups = [_bucket(names, tuple(cut.tolist())) for cut in cuts if len(cut)]
    return groups + [bucket for bucket in one_bucket_each(names) if bucket.members[0] not in order]


_AGREE = "hpccoll.gradients"


def _bucket(names: Sequence[str], members: tuple[int, ...]) -> Bucket:
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return Bucket(f"gradient.{names[members[0]]}{more}", members)


def _check_agreed(lines: list[str], world: World) -> None:
    """Compare a digest over all ranks; only if it differs, gather everything to report the difference.

    The minimum of the digest and that of its complement show whether all are equal: 16 bytes, however many ranks.
    """
    digest = np.frombuffer(hashlib.sha256("\n".join(lines).encode()).digest()[:8], np.uint64)
    low, flipped_high = world.allreduce(np.concatenate([digest, ~digest]), collectives.MIN, name=_AGREE)
    if low == ~flipped_high:
        return
    by_rank = world.allgather_object(lines, name=_AGREE)
    first = by_rank[0]
    rank, other = next((r, other) for r, other in enumerate(by_rank) if other != first)
    at = next((i for i, pair in enumerate(zip(first, other, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        raise errors.MismatchError(f"gradients and their groups: rank 0 has {len(first)}, rank {rank} has {len(other)}")
    raise errors.MismatchError(
        f"gradients and their groups: rank 0 has {first[at]!r} where rank {rank} has {other[at]!r}"
    )
