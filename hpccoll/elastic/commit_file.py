# SPDX-License-Identifier: Apache-2.0
"""Commits in a file: the next run of the job continues from it, with any number of ranks."""

import os
import pickle
from pathlib import Path
from typing import Any

from hpccoll import durable, errors
from hpccoll.checksums import Checked, DamagedError, Sums, write_all
from hpccoll.text import byte_size, say

__all__ = ["CommitFile"]


class CommitFile:
    """The newest commit on the disk. If the process is killed while it writes, the older commit stays intact."""

    def __init__(self, path: Path) -> None:
        """Use this file; it is written when there is a commit."""
        self.path = path
        self._fails = False

    def write(self, number: int, commit: Any) -> None:
        """Write a commit. A failure does not end the job, as its commits in memory are intact; it is printed on stderr.

        Only the first failure is printed, and the first success after it.

        :param number: the number of this commit, from 1
        :param commit: anything that pickle takes
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with durable.replacing(self.path) as fresh, fresh.open("w+b", buffering=0) as file:
                _Summed(file).put((number, commit))
        except OSError as error:
            if not self._fails:
                say(f"hpccoll: commit {number} was not written to {self.path}: {error} "
                    f"({self._space((number, commit))}). The job goes on, the file keeps the commit that it has, and "
                    "a later one is tried")  # fmt: skip
            self._fails = True
            return
        if self._fails:
            say(f"hpccoll: commit {number} was written to {self.path}, as the ones before it were not")
        self._fails = False

    def _space(self, values: Any) -> str:
        """Describe the bytes that a commit needs and the free bytes."""
        needed = _Counter()
        pickle.dump(values, needed, protocol=pickle.HIGHEST_PROTOCOL)
        text = f"it takes {byte_size(needed.count)}"
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return text
        return f"{text}, {byte_size(disk.f_bavail * disk.f_frsize)} are free there"

    def read(self) -> tuple[int, Any] | None:
        """Read a commit. It is pickled, so only the job's owner may be able to write the file.

        :returns: its number and its value; None if there is no file
        :raises InvalidArgumentError: the file cannot be read, or holds something else
        """
        try:
            with Checked(self.path) as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except DamagedError as error:
            raise errors.InvalidArgumentError(f"no commit can be read: {error}") from error
        except OSError as error:
            raise errors.InvalidArgumentError(f"no commit can be read from {self.path}: {error.strerror}") from error
        try:
            number, commit = pickle.loads(data)
            return int(number), commit
        except Exception as error:
            raise errors.InvalidArgumentError(f"{self.path} is no commit of an elastic job: {error}") from error


class _Summed:
    """A file for pickle, with checksums."""

    def __init__(self, file: Any) -> None:
        self._fd, self._sums, self._at = file.fileno(), Sums(), 0

    def put(self, values: Any) -> None:
        """Write the values, and the checksums behind them."""
        pickle.dump(values, self, protocol=pickle.HIGHEST_PROTOCOL)
        self._sums.append(self._fd)

    def write(self, data: Any) -> int:
        """Write all of it."""
        start = self._at
        self._at = write_all(self._fd, start, data, self._sums)
        return self._at - start


class _Counter:
    """A file for pickle that only counts the bytes."""

    count = 0

    def write(self, data: Any) -> int:
        """Count."""
        size = memoryview(data).nbytes
        self.count += size
        return size
