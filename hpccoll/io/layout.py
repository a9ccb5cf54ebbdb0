# SPDX-License-Identifier: Apache-2.0
"""The places of the ranks' parts in the whole arrays of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from hpccoll import errors, objects
from hpccoll.halo import widths_of
from hpccoll.topology import Cart
from hpccoll.worlds import World

__all__ = ["Part", "escaped", "has_hdf5", "is_utf8", "pieces", "placed", "unescaped"]

MOST = 1 << 30
"""Bytes of a write by MPI. HDF5 1.10 refuses more than an int counts."""


@dataclass(frozen=True)
class Part:
    """The part of a distributed array that a rank has, and where it lies in the whole.

    Parts must not overlap. What none of them covers is zero in the file.

    >>> part = hpccoll.io.Part(np.ones(3), offset=(3 * hpccoll.rank(),), shape=(6,))
    """

    array: np.ndarray
    """The values; a view with strides is as good as any."""
    offset: Sequence[int]
    """The index, in the whole array, of the part's first element."""
    shape: Sequence[int]
    """The shape of the whole array; the same on all ranks."""

    @staticmethod
    def of_cart(cart: Cart, array: np.ndarray, width: int | Sequence[int] = 0) -> Part:
        """Describe the cells of a rank of a Cart, without their halo. All ranks call it.

        :param array: divided along its first dimensions, as for `Cart.halo_exchange`
        :param width: of the halo
        :returns: the part; extents may differ between the ranks, but not among those in one row of the grid
        :raises InvalidArgumentError: a rank has no such array; on all ranks
        """
        ndim = len(cart.dims)
        inside, said = array, ""
        try:
            widths = widths_of(width, ndim)
            inside = array[tuple(slice(w, n - w) for w, n in zip(widths, array.shape, strict=False))]
            if inside.ndim < ndim:
                said = f"an array of shape {array.shape} on a grid of {ndim} dimensions"
        except Exception as error:  # noqa: BLE001 - the other ranks must learn of any error
            said = f"{type(error).__name__}: {error}"
        everybody = objects.allgather(cart.world.core, said or inside.shape, None)
        for rank, other in enumerate(everybody):
            if isinstance(other, str):
                raise errors.InvalidArgumentError(f"checkpoint: Part.of_cart on rank {rank}: {other}")
        places = [cart.coords_of(rank) for rank in range(cart.size)]
        here, offset, shape = cart.coords, [0] * array.ndim, list(inside.shape)
        for d in range(ndim):
            extents = {place[d]: extent[d] for place, extent in zip(places, everybody, strict=True)}
            offset[d], shape[d] = sum(extents[at] for at in range(here[d])), sum(extents.values())
        return Part(inside, offset, shape)


def placed(own: World, arrays: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """List the arrays of this rank, and for each the dtype, the shape of the whole, and the ranks' parts."""
    mine, said = {}, {}
    for name, value in arrays.items():
        mine[name], said[name] = _described(name, value)
    everybody = objects.allgather(own.core, said, None)
    layout = {}
    for rank, other in enumerate(everybody):
        if list(other) != list(everybody[0]):
            raise errors.MismatchError(f"checkpoint: rank 0 has {list(everybody[0])}, rank {rank} has {list(other)}")
    for name in said:
        layout[name] = _whole(name, [other[name] for other in everybody])
    return mine, layout


def _described(name: str, value: Any) -> tuple[np.ndarray, tuple[Any, tuple[int, ...], Any]]:
    """Return an array, and its dtype, its shape and the place of a Part. A text as dtype: all ranks refuse it."""
    where = None
    try:
        if isinstance(value, Part):
            where = [index(at) for at in value.offset], [index(n) for n in value.shape]
        given = value.array if isinstance(value, Part) else value
        if isinstance(given, np.ma.MaskedArray):
            return np.zeros(0), ("it is a masked array, and masks are not written: use filled(value)", (), None)
        array = np.asarray(given)
    except Exception as error:  # noqa: BLE001 - the other ranks must learn of any error
        return np.zeros(0), (str(error), (), None)
    return array, (_dtype_of(name, array), array.shape, where)


def _dtype_of(name: str, array: np.ndarray) -> np.dtype[Any] | str:
    """The dtype of an array; as a text if it cannot be written, which all ranks refuse together."""
    kind = array.dtype
    if (type(kind) is np.dtypes.VoidDType and not kind.names) or not has_hdf5(kind):
        return f"HDF5 has no dtype {kind}"
    if not isinstance(name, str) or {"", ".", ".."} & set(name.split("/")) or not is_utf8(name):
        return "that is no name of an array"
    return kind


def has_hdf5(kind: np.dtype[Any]) -> bool:
    """Whether HDF5 gives values back as they are: not fields that share bytes, nor a bfloat16, which becomes bytes."""
    if not kind.names:
        return not kind.hasobject and kind.kind not in "UMm" and type(kind).__module__ == "numpy.dtypes"
    fields: Mapping[str, Any] = kind.fields or {}
    end = 0
    for field, offset, *_ in sorted((fields[name] for name in kind.names), key=lambda entry: entry[1]):
        if offset < end or not has_hdf5(field.base):
            return False
        end = offset + field.itemsize
    return True


def is_utf8(name: str) -> bool:
    """Whether HDF5 keeps a name as it is: in UTF-8, to the first zero."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def pieces(shape: Sequence[int], itemsize: int, most: int = MOST) -> Iterator[tuple[slice, ...]]:
    """Divide a part into pieces of at most `most` bytes, or one element, in the order of a C array; none if empty."""
    row = itemsize * math.prod(shape[1:])
    if not math.prod(shape):
        return
    if len(shape) == 1 or row <= most:
        rows = max(1, most // max(1, row))
        for first in range(0, shape[0], rows):
            yield (slice(first, min(first + rows, shape[0])), *(slice(0, n) for n in shape[1:]))
        return
    for first in range(shape[0]):
        for rest in pieces(shape[1:], itemsize, most):
            yield (slice(first, first + 1), *rest)


def escaped(text: str) -> str:
    """Write a name as HDF5 wants it in a virtual dataset, where `%b` counts blocks and `%%` is a percent sign."""
    return text.replace("%", "%%")


def unescaped(text: str) -> str:
    """Read a name of a virtual dataset."""
    return text.replace("%%", "%")


def _whole(name: str, said: list[Any]) -> tuple[Any, tuple[int, ...], list[tuple[list[int], list[int]]]]:
    """The dtype and shape of a whole array, and the offset and shape of each rank's part."""
    dtype, first, where = said[0]
    places, rows = [], 0
    shape = list(where[1]) if where else [sum(s[0] if s else 1 for _, s, _ in said), *first[1:]]
    for rank, (kind, part, place) in enumerate(said):
        if isinstance(kind, str):
            raise errors.InvalidArgumentError(f"checkpoint: {name!r} of rank {rank}: {kind}")
        part = list(part) or [1]
        if place and not len(part) == len(place[0]) == len(place[1]):
            raise errors.InvalidArgumentError(
                f"checkpoint: {name!r}: the part of rank {rank}, {part} at {place[0]}, has other dimensions than the "
                f"whole, {place[1]}"
            )
        offset = place[0] if place else [rows] + [0] * (len(part) - 1)
        rows += part[0]
        fits = kind == dtype and (place is None) == (where is None) and len(part) == len(shape) == len(offset)
        fits = fits and (part[1:] == shape[1:] if place is None else place[1] == shape)
        if not fits:
            raise errors.MismatchError(f"checkpoint: {name!r} is {said[0]} on rank 0 and {said[rank]} on rank {rank}")
        if any(at < 0 or at + n > whole for at, n, whole in zip(offset, part, shape, strict=True)):
            raise errors.InvalidArgumentError(
                f"checkpoint: {name!r}: the part of rank {rank}, {part} at {offset}, is not inside of {shape}"
            )
        places.append((offset, part))
    if where:
        _refuse_overlaps(name, places)
    return dtype, tuple(shape), places


def _refuse_overlaps(name: str, places: list[tuple[list[int], list[int]]]) -> None:
    """Refuse parts of two ranks that have elements in common: the order of the writes would choose the values."""
    first = np.array([offset for offset, _ in places])
    last = first + np.array([part for _, part in places])
    ranks = np.flatnonzero((last > first).all(1))
    along = max(range(first.shape[1]), key=lambda d: len(np.unique(first[ranks, d])))  # fewest neighbours to compare
    ranks = ranks[np.argsort(first[ranks, along], kind="stable")]
    first, last = first[ranks], last[ranks]
    begun = np.searchsorted(first[:, along], last[:, along])
    for at, end in enumerate(begun):
        low, high = np.maximum(first[at], first[at + 1 : end]), np.minimum(last[at], last[at + 1 : end])
        if len(common := np.flatnonzero((low < high).all(1))):
            other = common[0]
            texts = (
                f"rank {rank}, {places[rank][1]} at {places[rank][0]}" for rank in sorted(ranks[[at, at + 1 + other]])
            )
            raise errors.InvalidArgumentError(
                f"checkpoint: {name!r}: the parts of {', and of '.join(texts)}, overlap in rows {low[other, 0]} to "
                f"{high[other, 0] - 1}"
            )
