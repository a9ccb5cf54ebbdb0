# SPDX-License-Identifier: Apache-2.0
"""The keys and colors of all ranks in split(), a row of numbers per rank, and the groups that they make."""

import operator
from collections.abc import Iterable, Sequence

from hpccoll import errors
from hpccoll.compared import Compared

__all__ = ["numbers", "place", "ranked", "row", "said"]

COLORED, KEY, COLOR = range(3)
"""The columns: whether there is a color (or MISFIT), the key, the color."""
MISFIT = -1
"""A key or color is no number of 64 bits."""
UNDEFINED = -32766
"""MPI_UNDEFINED of every MPI, and HPCCOLL_UNDEFINED of hpccoll.h: the color of a rank that gets no World."""


def said(color: int | None, key: int) -> list[int] | str:
    """Return [key, color] of a rank, or [key] if it gets no World; or text as `numbers` does."""
    if color is None:
        return numbers([key])
    both = numbers([key, color])
    return both[:1] if both[1:] == [UNDEFINED] else both


def numbers(values: Iterable[int]) -> list[int] | str:
    """Give the `values` as whole numbers; or as text, for an error that all ranks raise together."""
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        return repr(values)


def row(said: list[int] | str) -> list[int]:
    """Return the row of a rank.

    :param said: [key] or [key, color], or the text of a value of another type
    """
    if isinstance(said, str) or not all(-(1 << 63) <= n < 1 << 63 for n in said):
        return [MISFIT, 0, 0]
    return [len(said) - 1, *said, 0][: COLOR + 1]


def place(ranks: Sequence[int] | str, rank: int) -> list[int]:
    """Return the row of a rank: its color is 0 and its key its place if it is one of the `ranks`."""
    return [1, ranks.index(rank), 0] if not isinstance(ranks, str) and rank in ranks else [0, 0, 0]


def ranked(said: Compared[list[int] | str]) -> list[list[int]]:
    """Return rows with the places of keys and colors among those of all ranks, in place of numbers of any size.

    :raises InvalidArgumentError: a rank has a value of another type
    """
    everybody: list[list[int]] = []
    for rank, one in enumerate(said):
        if isinstance(one, str):
            raise errors.InvalidArgumentError(
                f"split: rank {rank} says {one} ([key, color]): both are whole numbers, or color is None"
            )
        everybody.append(one)
    keys = {key: i for i, key in enumerate(sorted({key for key, *_ in everybody}))}
    colors = {color: i for i, color in enumerate(sorted({color for _, *colored in everybody for color in colored}))}
    return [[len(one) - 1, keys[one[0]], colors[one[1]] if len(one) > 1 else 0] for one in everybody]
