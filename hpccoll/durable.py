# SPDX-License-Identifier: Apache-2.0
"""Replaces a file atomically: after a failure at any time, the complete old file or the complete new one exists.

The new file has a temporary name until it is synced (fsync); then it is renamed over the old one, and the folder is
synced. All modules of this package replace files in this way, so that a killed process, a full disk or a power failure
leaves no incomplete file. tests/durable lets each system call fail.
"""

import errno
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["check", "put", "replacing", "sync", "sync_folder", "write_text"]

FORGOTTEN = 600.0
"""Age in seconds at which an unfinished file counts as abandoned. The writes of a live writer update the age; a writer
that was stopped for longer fails, and the old file stays."""
NO_SUCH_THING = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)
"""Errors of file systems, such as some network file systems, that cannot sync a folder."""


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """Let a block write a new file, which replaces `path` at the end of the block.

        >>> import tempfile, pathlib
        >>> from hpccoll import durable
        >>> with durable.replacing(pathlib.Path(tempfile.mkdtemp(), "notes")) as fresh:
        ...     _ = fresh.write_text("all of it")

    Links are followed. A special file, such as `/dev/null`, is written directly.

    :param path: the file, which need not exist; its folder must exist
    :param lasting: False: do not sync, for files that need not survive a crash of the machine
    :returns: the path to write
    :raises OSError: the file could not be written: the old one is unchanged. Only if the message names the folder,
        the new file is in place, and a power failure may undo the replacement
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
    """Replace a file by a text, in UTF-8 under every locale, see `replacing`."""
    with replacing(path, lasting=lasting) as fresh:
        fresh.write_text(text, encoding="utf-8")


def check(path: Path) -> None:
    """Find out now whether `replacing` could begin, for a command that has nothing to write yet.

    :raises OSError: the path is a folder, or its folder takes no file
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        return
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.parent)) from error


def sync(file: Path) -> int:
    """Sync a file; return its size.

    :raises OSError: the file may not be on the disk
    """
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Sync the names of a folder, if its file system supports it.

    :raises OSError: the sync failed
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
    """Remove unfinished files of killed writers of this file; `now` is the file system's time."""
    unfinished = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{12}[.]new")
    for file in path.parent.iterdir():
        if unfinished.fullmatch(file.name) and now - file.stat().st_mtime > FORGOTTEN:
            file.unlink()
