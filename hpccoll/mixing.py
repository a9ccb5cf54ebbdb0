# SPDX-License-Identifier: Apache-2.0
"""Checks whether a user reduction mixes the elements of an array.

The library divides arrays among the ranks, so a function that sorts, or subtracts a mean, would silently give other
values for the pieces than for the whole. The first call sends some elements of some ranks' arrays to all ranks, and
each rank compares the function's result for all of them with its results for parts of them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hpccoll import arrays, errors

__all__ = ["SENDERS", "check_elementwise", "differs", "sample_of"]

SENDERS = 8
"""Ranks that send a sample: the first ones. Two that differ are enough."""

MOST = 64
"""Elements of a sample; of large elements as many as have MOST_BYTES, but two."""
MOST_BYTES = 32 << 10

SINGLE = 8
"""The number of elements that the function gets singly."""

ULPS = 16
"""Largest difference of rounding between vector code and the code for its remainder, in units of the last place."""

Fold = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _places(size: int, itemsize: int) -> range:
    """Evenly spaced elements, the same ones on all ranks."""
    most = max(2, min(MOST, MOST_BYTES // itemsize))
    return range(0, size, -(-size // most))


def sample_of(array: np.ndarray) -> bytes:
    """Return evenly spaced elements; if all of them are equal, followed by a different element, if there is one."""
    if not array.nbytes:
        return b""
    rows = arrays.flat_bytes(array).reshape(array.size, array.itemsize)
    sample = rows[_places(array.size, array.itemsize)]
    if (sample == sample[0]).all():
        others = (rows != rows[0]).any(axis=1)
        sample = np.concatenate([sample, rows[others][:1]])
    return sample.tobytes()


def differs(samples: Sequence[bytes], itemsize: int) -> bool:
    """Return whether two elements differ: equal elements rarely reveal that a function mixes them."""
    elements = {sample[at : at + itemsize] for sample in samples for at in range(0, len(sample), itemsize)}
    return len(elements) > 1


def check_elementwise(what: str, fold: Fold, samples: Sequence[bytes], array: np.ndarray) -> None:
    """Check a function with the samples of the ranks: the outcome is the same on all ranks.

    :param what: the name of the function in the error
    :param fold: combines two arrays
    :param samples: results of `sample_of`, at least one
    :param array: an array of the call, for dtype and size
    :raises UnsupportedError: the function mixes elements
    """
    for at, (a, b) in enumerate(_trials(samples, array)):
        try:
            with np.errstate(all="ignore"):
                whole = fold(a.copy(), b.copy())
        except Exception as error:
            if at > 0:  # the program may never combine these two
                return
            error.add_note(f"{what} was called with some elements of the ranks' arrays, to check that it works "
                           f"element by element. If it needs whole arrays, give it elementwise=False.")  # fmt: skip
            raise
        for cuts in ([len(a) // 2], [len(a) // 3 | 1], range(1, SINGLE + 1)):
            _check_parts(what, fold, a, b, whole, [cut for cut in cuts if 0 < cut < len(a)])


def _trials(samples: Sequence[bytes], array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of elements of two ranks, as in the program's call, forwards and backwards; then neighbours.

    Distinct elements reveal a function of the largest one, which only one part has; forwards and backwards reveals a
    function of the order, also for ascending elements.
    """
    mine = samples[0]
    others = next((sample for sample in samples if sample != mine), b"")
    a, b = (np.frombuffer(sample, array.dtype) for sample in (mine, others or mine))
    n = len(_places(array.size, array.itemsize))
    yield _there_and_back(a[:n]), _there_and_back(b[:n])
    both = np.concatenate([a, b]) if others else a
    for elements in (both, _there_and_back(both)):
        yield elements, np.concatenate([elements[1:], elements[:1]])


def _there_and_back(elements: np.ndarray) -> np.ndarray:
    return np.concatenate([elements, elements[::-1]])


def _check_parts(what: str, fold: Fold, a: np.ndarray, b: np.ndarray, whole: np.ndarray, cuts: list[int]) -> None:
    parts = zip([0, *cuts], [*cuts, len(a)], strict=True)
    of = f"{what} mixes the elements of an array: of {len(a)} elements of {a.dtype},"
    advice = "; nothing was written. UserReduction(..., elementwise=False) gives it whole arrays"
    try:
        with np.errstate(all="ignore"):
            joined = np.concatenate([fold(a[begin:end].copy(), b[begin:end].copy()) for begin, end in parts])
    except Exception as error:
        raise errors.UnsupportedError(f"{of} cut at {cuts}, {type(error).__name__}: {error}{advice}") from error
    wrong = np.flatnonzero(~_alike(whole, joined))
    if len(wrong):
        at = int(wrong[0])
        raise errors.UnsupportedError(f"{of} the one at {at} becomes {whole[at]}, and {joined[at]} if they are cut at "
                                      f"{cuts}{advice}")  # fmt: skip


def _alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compare two arrays of one type, element by element, except for the last rounding; NaN equals NaN."""
    if a.dtype.names is not None:
        same = np.ones(len(a), bool)
        for name in a.dtype.names:
            same &= _alike(a[name], b[name]).reshape(len(a), -1).all(axis=1)
        return same
    if a.dtype.kind in "mM":
        a, b = a.view(np.int64), b.view(np.int64)
    same = np.asarray((a == b) | ((a != a) & (b != b)))
    if a.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            same |= np.abs(a - b) <= ULPS * np.finfo(a.dtype).eps * np.abs(a)
    return same
