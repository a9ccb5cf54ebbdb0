# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory that the ranks of a node share: one allocation per node, for tables too large to have per rank.

The memory is a file in /dev/shm, whose pages are reserved before a rank maps them, so that a full file system is
an error and no SIGBUS. Its name is removed as soon as all ranks of the node have opened it: no file remains, however
the job ends, and the memory is free when the last rank has dropped the array.
"""

import mmap
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from hpccoll import errors
from hpccoll.compared import Compared

__all__ = ["make"]

FOLDER = "/dev/shm"
Compare = Callable[[str, Any], Compared[Any]]


def make(
    compare: Compare, who: str, rank: int, nodes: Sequence[int], shape: Sequence[int] | str, dtype: Any, read_only: bool
) -> np.ndarray:
    """Make an array per node; all ranks call this together. See `World.shared_array`.

    A rank that refuses its arguments takes part in the first comparison, so that no other rank waits for it.

    :param compare: exchanges a value of each rank between all ranks
    :param who: the name of this rank in errors
    :param nodes: the node of each rank
    :param shape: extents; a text: there is no such shape
    """
    kind = _dtype(dtype)
    _check(compare("shared array", [shape if isinstance(shape, str) else list(shape), repr(kind), read_only]))
    if isinstance(shape, str) or any(n < 0 for n in shape):
        raise errors.InvalidArgumentError(f"shared_array: shape is {shape}")
    if not isinstance(kind, np.dtype):
        raise errors.InvalidArgumentError(f"shared_array: {kind}")
    if kind.hasobject:
        raise errors.UnsupportedError(f"shared_array of dtype {kind}, which holds Python objects")
    nbytes = prod(shape) * kind.itemsize
    leader = nodes.index(nodes[rank])
    path, text, memory = "", "", None
    try:
        if rank == leader:
            path, text, memory = _create(who, nbytes)
        made = compare("shared array, made", [path, text])
        _raise_first(text for _, text in made.values)
        if rank != leader:
            text, memory = _attach(who, made[leader][0], nbytes, read_only)
        _raise_first(compare("shared array, attached", text).values)
    finally:
        if path:
            os.unlink(path)
    assert memory is not None
    return np.ndarray(tuple(shape), kind, memory)


def _dtype(asked: Any) -> np.dtype[Any] | str:
    """Return a dtype; a text if there is none."""
    try:
        kind: np.dtype[Any] = np.dtype(asked)
    except Exception as error:  # noqa: BLE001 - NumPy parses a text as Python: "1,," is a SyntaxError
        return f"dtype {asked!r}: {error}"
    return kind


def _check(said: Compared[Any]) -> None:
    if not said.alike:
        first, other = said.values[:2]
        raise errors.MismatchError(
            f"shared_array: rank 0 says (shape, dtype, read_only) {first}, rank {said.first(1)} says {other}"
        )


def _raise_first(texts: Iterable[str]) -> None:
    for text in texts:
        if text:
            raise errors.OutOfMemoryError(text)


def _create(who: str, nbytes: int) -> tuple[str, str, mmap.mmap | None]:
    """Make the memory. Returns its path, the error or "", and the memory."""
    path = f"{FOLDER}/hpccoll-{secrets.token_hex(8)}-array"
    size = max(nbytes, 1)
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return "", _why(who, nbytes, error), None
    try:
        os.posix_fallocate(fd, 0, size)
        return path, "", mmap.mmap(fd, size)
    except (OSError, OverflowError) as error:
        os.unlink(path)
        return "", _why(who, nbytes, error), None
    finally:
        os.close(fd)


def _attach(who: str, path: str, nbytes: int, read_only: bool) -> tuple[str, mmap.mmap | None]:
    try:
        fd = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
        try:
            access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
            return "", mmap.mmap(fd, max(nbytes, 1), access=access)
        finally:
            os.close(fd)
    except OSError as error:
        return _why(who, nbytes, error), None


def _why(who: str, nbytes: int, error: Exception) -> str:
    try:
        files = os.statvfs(FOLDER)
        left = f"{files.f_bavail * files.f_frsize} bytes are left in {FOLDER}"
    except OSError as problem:
        left = str(problem)
    return (
        f"shared_array: no memory on {who} for an array of {nbytes} bytes, which the ranks of its node share: {error}; "
        f"{left}. Give it more (in a container: docker run --shm-size=...). The World goes on"
    )
