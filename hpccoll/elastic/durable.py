# SPDX-License-Identifier: Apache-2.0
"""A commit in a file, from which the next run of the job goes on, with any number of ranks."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from hpccoll import errors

__all__ = ["read", "write"]


def write(path: Path, number: int, commit: Any) -> None:
    """Write a commit. A process that is killed meanwhile leaves the older one as it was.

    :param path: the file
    :param number: how many commits there were before this one, and this one
    :param commit: anything that pickle takes
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("wb") as file:
            pickle.dump((number, commit), file, protocol=pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def read(path: Path) -> tuple[int, Any] | None:
    """Read a commit. It is pickled, so the file must be one that only the job's owner can write.

    :returns: its number and what it holds; None if there is no file
    :raises InvalidArgumentError: the file holds something else
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        number, commit = pickle.loads(data)
        return int(number), commit
    except Exception as error:
        raise errors.InvalidArgumentError(f"{path} is no commit of an elastic job: {error}") from error
