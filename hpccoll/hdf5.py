# SPDX-License-Identifier: Apache-2.0
"""Writes HDF5 files so that a full or failing disk raises an exception.

HDF5 writes most of a file when it closes it. If that write fails, HDF5 1.14 ends the process by SIGSEGV, or is silent.
So HDF5 here writes to an object that hides failures from it: it stores the first one, accepts all later calls, and
raises after HDF5 has closed the file. It reads in the same way, through an object that compares checksums.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll.checksums import Checked, Sums, write_all

__all__ = ["FORMAT", "changing", "package", "reading", "writing"]

FORMAT = ("v110", "v110")
"""The oldest and newest version of HDF5 whose forms are written. Its tools read them as those of all later versions
do; of virtual datasets in the form of HDF5 1.12, HDF5 1.10 reads nothing."""


def package() -> Any:
    """The package h5py.

    :raises OSError: it is not installed
    """
    try:
        import h5py
    except ImportError as error:
        raise OSError(f"h5py is not installed ({error}): pip install h5py") from None
    return h5py


@contextmanager
def writing(path: Path, mode: str = "w", *, sums: Sums | None = None) -> Iterator[Any]:
    """Write a file, in a block.

        >>> import tempfile, pathlib
        >>> from hpccoll import hdf5
        >>> with hdf5.writing(pathlib.Path(tempfile.mkdtemp(), "u.h5")) as file:
        ...     file["u"] = np.ones(3)

    :param mode: `w` makes a new file, `r+` changes an existing one
    :param sums: the checksums of what the file has so far, which are completed and appended, for `reading`
    :returns: the `h5py.File`
    :raises OSError: the file could not be written
    """
    h5py, disk = package(), _Disk(path, os.O_TRUNC | os.O_CREAT if mode == "w" else 0, sums)
    with _ended(disk):
        with h5py.File(disk, mode, libver=FORMAT) as file:
            yield file
        disk.seal()


@contextmanager
def changing(path: Path) -> Iterator[Any]:
    """Change a file that has checksums, in a block.

    :returns: the `h5py.File`
    :raises OSError: the file could not be written, or its checksums are damaged
    """
    with Checked(path) as found:
        table, size = found.table, found.size
    os.truncate(path, size)
    with writing(path, "r+", sums=Sums(table, size)) as file:
        yield file


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """Read a file that has checksums, in a block; what is read may be used after the block only.

    :returns: the `h5py.File`
    :raises DamagedError: what HDF5 has read is not what was written
    :raises OSError: the file could not be read
    """
    h5py, disk = package(), _Source(path)
    with _ended(disk), h5py.File(disk, "r") as file:
        yield file


@contextmanager
def _ended(disk: _Source | _Disk) -> Iterator[None]:
    """Raise the first error of the disk after the block, in place of an error of HDF5, which may be a consequence."""
    try:
        yield
    except Exception:
        disk.end()
        raise
    finally:
        disk.close()
    disk.end()


class _Source(Checked):
    """A checked file for HDF5: each call succeeds, also after a failure, and `end` raises the first error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._problem: BaseException | None = None

    def readinto(self, into: Any) -> int:
        """Read bytes at the position; zeros after a failure."""
        try:
            if self._problem is None:
                return super().readinto(into)
        except BaseException as error:  # noqa: BLE001 - HDF5 would not survive it
            self._problem = error
        out = np.frombuffer(into, np.uint8)
        out[:] = 0
        return len(out)

    def end(self) -> None:
        """Raise the first error."""
        if self._problem:
            raise self._problem


class _Disk(io.RawIOBase):
    """A file object for HDF5: each call succeeds, also after the end, and `end` raises the first error."""

    def __init__(self, path: Path, flags: int, sums: Sums | None) -> None:
        super().__init__()
        self._sums = sums
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
        self._at = 0
        self._problem: BaseException | None = None

    def close(self) -> None:
        """Give the file back; HDF5 does not do so."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def seal(self) -> None:
        """Append the checksums."""
        if (sums := self._sums) is not None:
            self._tried(lambda: sums.append(self._fd))

    def end(self) -> None:
        """Close the file, and raise the first error."""
        self.close()
        if self._problem:
            raise self._problem

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position; HDF5 uses only offsets from the start, and the end."""
        self._at = offset
        if whence == os.SEEK_END:
            self._at += self._tried(lambda: os.fstat(self._fd).st_size)
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, into: Any) -> int:
        """Read bytes at the position."""
        return self._tried(lambda: os.preadv(self._fd, [into], self._at))

    def write(self, data: Any) -> int:
        """Write all of it."""
        self._at = self._tried(lambda: write_all(self._fd, self._at, data, self._sums))
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file."""
        end = self._at if size is None else size
        self._tried(lambda: os.ftruncate(self._fd, end))
        return end

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def _tried(self, call: Callable[[], int | None]) -> int:
        """Call, unless an earlier call failed; store an exception, also one that a signal handler raises."""
        try:
            return (call() or 0) if self._problem is None else 0
        except BaseException as error:  # noqa: BLE001 - HDF5 would not survive it
            self._problem = error
            return 0
