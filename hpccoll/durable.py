# SPDX-License-Identifier: Apache-2.0
"""Replaces a file: whatever happens meanwhile, the older file or the new one lies there, whole.

The new file has a name of its own until it is on the disk; then it is renamed over the older one, and the folder is
brought to the disk. This is the one way in which this package replaces a file, so that a process that is killed, a
disk that is full or a machine that loses its power leaves no half of a file. tests/durable tries each system call.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["put", "replacing", "sync", "sync_folder", "write_text"]

FORGOTTEN = 600.0
"""Seconds after which an unfinished file beside the new one belongs to nobody. A writer that lives touches its file all
the time; one that was stopped for longer fails, and the file that it was to replace stays."""
NO_SUCH_THING = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)
"""How file systems say that a folder cannot be brought to the disk, as some on a network do."""


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """Let a block write a new file, which takes the place of `path` when the block has ended.

        >>> import tempfile, pathlib
        >>> from hpccoll import durable
        >>> with durable.replacing(pathlib.Path(tempfile.mkdtemp(), "notes")) as fresh:
        ...     _ = fresh.write_text("all of it")

    Links are followed. What is no regular file, as `/dev/null`, is written as it is.

    :param path: the file, which may be there or not; its folder must be there
    :param lasting: False: nothing is brought to the disk, for what no other boot of the machine needs
    :returns: the path to write
    :raises OSError: the file could not be written: the older one lies there. Only where the message names the folder,
        the new one does, and it may not outlive a machine that loses its power
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        yield path
        return
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        yield fresh
        if not lasting:
            os.replace(fresh, path)
            return
        sync(fresh)
        written = fresh.stat().st_mtime
        put(fresh, path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    with suppress(OSError):
        _remove_forgotten(path, written)


def write_text(path: Path, text: str, *, lasting: bool = True) -> None:
    """Replace a file by a text, see `replacing`."""
    with replacing(path, lasting=lasting) as fresh:
        fresh.write_text(text)


def sync(file: Path) -> int:
    """Bring a file to the disk; return its size.

    :raises OSError: it may not be there
    """
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to the disk, where its file system can.

    :raises OSError: it tried, and failed
    """
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in NO_SUCH_THING:
            raise OSError(error.errno, error.strerror, str(folder)) from error


def put(fresh: Path, path: Path) -> None:
    """Rename a file that is on the disk to its place.

    :raises OSError: as `replacing`
    """
    os.replace(fresh, path)
    sync_folder(path.parent)


def _remove_forgotten(path: Path, now: float) -> None:
    """Remove what writers of this file left that were killed; `now` is the file system's time."""
    unfinished = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{12}[.]new")
    for file in path.parent.iterdir():
        if unfinished.fullmatch(file.name) and now - file.stat().st_mtime > FORGOTTEN:
            file.unlink()
