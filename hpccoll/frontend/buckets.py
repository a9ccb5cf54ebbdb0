# SPDX-License-Identifier: Apache-2.0
"""Buckets of gradients: a bucket holds one gradient or a group, and is agreed, fused and reduced as one request."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from hpccoll import errors
from hpccoll.frontend.groups import AGREE, compare_groups, divided, named_groups, numbered
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
    return _named(names, groups, lambda given: compare_groups(given, world))


def buckets_in_parts(names: Sequence[str], members: Sequence[int], parts: int, world: World) -> list[Bucket]:
    """Divide some gradients, in the order of rank 0, into `parts` buckets with about equally many gradients.

    The gradients that are not in `members` get a bucket each. All ranks of `world` call it together.

    :raises MismatchError: the ranks have different gradients
    """
    number = {names[member]: member for member in members}
    compare_groups([numbered(parts), *([name] for name in sorted(number))], world)
    order = [number[name] for name in world.broadcast_object(list(number), name=AGREE)]
    return _named(names, divided(order, parts), lambda _: None)  # the gradients are compared, and rank 0 has divided


def _named(
    names: Sequence[str], groups: Sequence[Sequence[int]], compare: Callable[[list[list[str]]], None]
) -> list[Bucket]:
    grouped = {member for group in groups for member in group}
    parts = [*groups, *([member] for member in range(len(names)) if member not in grouped)]
    return [Bucket(f"gradient.{name}", tuple(part)) for name, part in named_groups(parts, names, compare)]
