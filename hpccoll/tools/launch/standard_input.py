# SPDX-License-Identifier: Apache-2.0
"""The standard input of a job. Rank 0 reads that of `hpccoll run`, as with mpirun; the other ranks read its end."""

import os
import stat
import sys
from dataclasses import dataclass

from hpccoll.detect.descendants import own_number

FOR_RANK_0 = (sys.executable, "-P", "-m", "hpccoll.tools.launch.input_of_rank_0")
"""The program that opens a source for rank 0 and becomes the rank's command."""


@dataclass(frozen=True)
class Source:
    """What a rank on this machine can open."""

    path: str
    offset: int = 0
    """In a file: how much of it was read before."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no bytes."""
        return self.path == os.devnull

    @property
    def words(self) -> tuple[str, str]:
        """The arguments that say so."""
        return self.path, str(self.offset)


def source() -> Source | None:
    """Find what rank 0 reads.

    :returns: None: a socket, which no other process can open
    """
    if sys.stdin is None:  # it was closed, and another file may have its number since
        return Source(os.devnull)
    found = os.fstat(0)
    path = f"/proc/{own_number()}/fd/0"
    if stat.S_ISREG(found.st_mode):
        return Source(path, os.lseek(0, 0, os.SEEK_CUR))
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev:
        return Source(os.devnull)
    if os.isatty(0):
        return Source(path if is_in_foreground() else os.devnull)
    return Source(path) if stat.S_ISFIFO(found.st_mode) else None


def is_in_foreground() -> bool:
    """Whether this process may read the terminal; else it would take the lines that the user types for the shell."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it does not control this process
        return True
