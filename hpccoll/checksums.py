# SPDX-License-Identifier: Apache-2.0
"""Checksums of a file in its last bytes: a CRC-32C of each MiB, which a reader compares before it uses that MiB.

A file is its contents, a table with four bytes for each MiB of them, and a foot: `hpccoll` and the version of this
form, the number of bytes before the table, and the CRC-32C of the table and of these two. The writer computes a
checksum from the memory that it writes; a MiB that it does not write from its start to its end, it reads back. HDF5
ignores what stands behind its contents, so that any of its tools reads such a file.
"""

import io
import os
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll._core import crc32c

__all__ = ["BLOCK", "Checked", "DamagedError", "Sums", "sums_of", "write_all"]

BLOCK = 1 << 20
"""The bytes of a checksum. A reader of one byte reads as many."""
MAGIC = b"hpccoll\1"
FOOT = struct.Struct("<8sQI")
KEPT = 8
"""How many blocks a reader keeps, for reads of parts of them: rows of an array and what HDF5 keeps about it."""


class DamagedError(OSError):
    """The bytes of a file are not those that were written."""


class Sums:
    """The checksums of a file that is being written."""

    def __init__(self, table: np.ndarray | None = None, size: int = 0) -> None:
        """:param table: the checksums of a file that exists, of `size` bytes"""
        known = [] if table is None else table.tolist()
        self._found = {i: (min(BLOCK, size - i * BLOCK), sum_) for i, sum_ in enumerate(known)}

    def note(self, at: int, data: memoryview) -> None:
        """Take the checksums of bytes that were written at a place of the file."""
        while len(data):
            block, start = divmod(at, BLOCK)
            piece = data[: BLOCK - start]
            filled, sum_ = self._found.get(block, (0, 0))
            end = start + len(piece)
            in_order = start in (0, filled) and end >= filled
            self._found[block] = (end, crc32c(piece, sum_ if start else 0)) if in_order else (-1, 0)
            at, data = at + len(piece), data[len(piece) :]

    def append(self, fd: int) -> None:
        """Write the table and the foot at the end of the file."""
        size = os.fstat(fd).st_size
        table = np.empty(-(-size // BLOCK), "<u4")
        for block in range(len(table)):
            filled, table[block] = self._found.get(block, (-1, 0))
            if filled != min(BLOCK, size - block * BLOCK):
                table[block] = crc32c(_read(fd, block * BLOCK, min(BLOCK, size - block * BLOCK)))
        words, foot = table.tobytes(), FOOT.pack(MAGIC, size, 0)[:-4]
        write_all(fd, size, words + foot + struct.pack("<I", crc32c(words + foot)))


def write_all(fd: int, at: int, data: Any, sums: Sums | None = None) -> int:
    """Write all of the data at a place of a file, and take its checksums.

    :returns: the place behind it
    """
    left = memoryview(data).cast("B")
    while left:
        count = os.pwrite(fd, left, at)
        if sums is not None:
            sums.note(at, left[:count])
        at, left = at + count, left[count:]
    return at


def sums_of(file: Path, share: int, shares: int) -> bytes:
    """Compute the checksums of a share of the blocks of a file which has no table yet, from its bytes."""
    with file.open("rb") as opened:
        fd = opened.fileno()
        blocks = -(-os.fstat(fd).st_size // BLOCK)
        mine = range(blocks * share // shares, blocks * (share + 1) // shares)
        return np.array([crc32c(_read(fd, block * BLOCK, BLOCK)) for block in mine], "<u4").tobytes()


def _read(fd: int, at: int, size: int) -> bytearray:
    """Read bytes of a file, fewer at its end."""
    data = bytearray(size)
    return data[: _read_into(fd, at, memoryview(data))]


def _read_into(fd: int, at: int, into: memoryview) -> int:
    done = 0
    while done < len(into) and (count := os.preadv(fd, [into[done:]], at + done)):
        done += count
    return done


class Checked(io.RawIOBase):
    """A file to read, each MiB of which is compared with its checksum before it is used.

    >>> import tempfile, pathlib
    >>> from hpccoll import checksums
    >>> path = pathlib.Path(tempfile.mkdtemp(), "notes")
    >>> _ = path.write_bytes(b"all of it")
    >>> with path.open("r+b") as file:
    ...     checksums.Sums().append(file.fileno())
    >>> with checksums.Checked(path) as file:
    ...     file.read()
    b'all of it'
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        :raises DamagedError: it has no table, or one that is not as it was written
        """
        super().__init__()
        self._path, self._at, self._fd = path, 0, -1
        self._kept: OrderedDict[int, bytearray] = OrderedDict()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.table, self.size = self._foot()
        except BaseException:
            self.close()
            raise

    def _foot(self) -> tuple[np.ndarray, int]:
        """Read the table, and the number of bytes before it."""
        end = os.fstat(self._fd).st_size
        foot = _read(self._fd, max(0, end - FOOT.size), FOOT.size)
        magic, size, sum_ = FOOT.unpack(foot) if len(foot) == FOOT.size else (b"", 0, 0)
        if magic != MAGIC or size + 4 * -(-size // BLOCK) + FOOT.size != end:
            raise DamagedError(
                f"{self._path} does not end with its checksums: it is damaged, or another program has changed it"
            )
        words = _read(self._fd, size, end - size - FOOT.size)
        if crc32c(words + foot[:-4]) != sum_:
            raise DamagedError(f"{self._path} is damaged: the table of its checksums is not as it was written")
        return np.frombuffer(bytes(words), "<u4"), size

    def close(self) -> None:
        """Give the file back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        super().close()

    def readable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, which counts from the start or the end of the contents."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, into: Any) -> int:
        """Read bytes at the position; whole blocks go straight into the memory given.

        :raises DamagedError: they are not those that were written
        """
        out = memoryview(into).cast("B")[: max(0, self.size - self._at)]
        done = 0
        while done < len(out):
            block, start = divmod(self._at, BLOCK)
            whole = self._extent(block)
            piece = out[done : done + whole - start]
            if len(piece) == whole and block not in self._kept:
                self._check(block, piece, _read_into(self._fd, block * BLOCK, piece))
            else:
                piece[:] = memoryview(self._block(block))[start : start + len(piece)]
            done, self._at = done + len(piece), self._at + len(piece)
        return done

    def _extent(self, block: int) -> int:
        return min(BLOCK, self.size - block * BLOCK)

    def _block(self, block: int) -> bytearray:
        """Return the memory with a block, one of those kept if it is among them."""
        if block not in self._kept:
            data = self._kept.popitem(last=False)[1] if len(self._kept) == KEPT else bytearray(BLOCK)
            here = memoryview(data)[: self._extent(block)]
            self._check(block, here, _read_into(self._fd, block * BLOCK, here))
            self._kept[block] = data
        self._kept.move_to_end(block)
        return self._kept[block]

    def _check(self, block: int, data: memoryview, count: int) -> None:
        if count != self._extent(block) or crc32c(data) != self.table[block]:
            first = block * BLOCK
            raise DamagedError(
                f"{self._path} is damaged: the bytes {first} to {first + self._extent(block) - 1} are not those that "
                "were written (CRC-32C)"
            )
