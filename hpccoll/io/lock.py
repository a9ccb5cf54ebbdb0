# SPDX-License-Identifier: Apache-2.0
"""One save at a time to a path: each removes the files that its version does not name, also those of another save.

The lock is that of flock(2) on `state.h5.lock`, held by rank 0: the kernel gives it back when the process ends, however
that happens. It is removed at the end; who finds that the file it has locked is not there any more begins again.
"""

import errno
import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

__all__ = ["Lock"]

UNKNOWN = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
"""Errors of file systems without flock(2), such as Lustre without its mount option: there saves are not kept apart."""


class Lock:
    """The right to save to a path."""

    def __init__(self, target: Path) -> None:
        """:param target: the main file"""
        self.path = target.with_name(f"{target.name}.lock")
        self._file = -1

    def take(self) -> None:
        """Take it, without waiting: ranks of two saves could wait for each other.

        :raises BlockingIOError: another save has it; the text names its process
        :raises OSError: the file cannot be made
        """
        while self._file < 0:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if self._is_locked(file):
                    self._file, file = file, -1
            finally:
                if file >= 0:
                    os.close(file)

    def _is_locked(self, file: int) -> bool:
        """Lock the file; False: it was removed meanwhile."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(file, 200, 0).decode(errors="replace")
            why = f"another save to this path is under way{who}: save to it one after the other"
            raise BlockingIOError(why) from None
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), self.path.stat()):
                with suppress(OSError):  # it only names the process to others
                    os.ftruncate(file, 0)
                    os.pwrite(file, f", by process {os.getpid()} of host {platform.node()}".encode(), 0)
                return True
        return False

    def give_back(self) -> None:
        """Give it back, if it is taken."""
        if self._file >= 0:
            with suppress(OSError):
                self.path.unlink()
            with suppress(OSError):
                os.close(self._file)
            self._file = -1
