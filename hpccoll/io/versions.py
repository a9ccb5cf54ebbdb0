# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint, and how a new version of it takes the place of the one before.

`state.h5` is the main file. A version, that is one call of `save`, has a tag, and up to three kinds of files beside it:

    state.h5.TAG.node0    the data of node 0, named by the main file with its size
    state.h5.TAG.new      the main file until it gets its place
    state.h5.TAG.before   the main file that had the place before: the version that a broken one is read from

The order, of which docs/decisions/0057 has the reasons: (1) all files are written under new names and brought to the
disk; (2) all ranks agree that they are; (3) rank 0 renames the main file and brings the folder to the disk; (4) all
ranks agree that it is done; (5) rank 0 removes what the new version does not name. Before (2) has succeeded nothing
has changed, so where all ranks have agreed on a failure they remove the new files. From then on a rank that is lost or
interrupted cannot know how far the others are: nothing is removed until a later `save` comes to (5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpccoll import durable, hdf5

__all__ = ["PARTS", "Version", "candidates", "named", "others"]

PARTS = "hpccoll_parts"
"""The attribute of the main file with the names and sizes of the files of the nodes."""


@dataclass(frozen=True)
class Version:
    """The files that one call of `save` writes."""

    target: Path
    """The main file in its place."""
    tag: str

    def node_file(self, node: int) -> Path:
        """The data of a node."""
        return self._beside(f"node{node}")

    @property
    def fresh(self) -> Path:
        """The main file until it gets its place."""
        return self._beside("new")

    @property
    def before(self) -> Path:
        """What is in that place until then."""
        return self._beside("before")

    def _beside(self, kind: str) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.tag}.{kind}")

    def publish(self) -> None:
        """Give the main file its place: step 3.

        :raises OSError: it is there or it is not
        """
        with suppress(OSError):  # there is none, or the file system has no hard links: `load` has one version only
            os.link(self.target, self.before)
        durable.put(self.fresh, self.target)

    def clear(self, keep: Iterable[str]) -> None:
        """Remove what lies beside the main file and is not named by it: step 5. The main files go first.

        :param keep: names of files that stay
        """
        for file in sorted(others(self.target, keep), key=lambda file: not file.name.endswith(".before")):
            with suppress(OSError):
                file.unlink()


def others(target: Path, keep: Iterable[str]) -> list[Path]:
    """Find the files of all versions beside a main file, without those of these names."""
    beside = re.compile(re.escape(target.name) + r"\.[0-9a-f]{12}\.(node\d+|new|before)")
    names = set(keep)
    return [file for file in target.parent.iterdir() if beside.fullmatch(file.name) and file.name not in names]


def candidates(target: Path) -> list[Path]:
    """Give the main files from which a checkpoint can be read: the one in its place, then those before it."""
    try:
        before = [(file.stat().st_mtime, file) for file in others(target, ()) if file.name.endswith(".before")]
    except FileNotFoundError:  # the folder; or a save that is under way has just removed one
        before = []
    return [target, *(file for _, file in sorted(before, reverse=True))]


def named(main: Path) -> list[str]:
    """Give the names of the files that a main file needs; all are there, with the size that they must have.

    HDF5 reads a missing one as zeros.

    :raises OSError: they are not, or the main file cannot be read
    """
    with hdf5.package().File(main, "r", locking=False) as file:
        if PARTS not in file.attrs:
            raise OSError("this is no checkpoint of hpccoll.io.save")
        lines = [str(line) for line in file.attrs[PARTS]]
    names = []
    for line in lines:
        size, _, name = line.partition(" ")
        part = main.with_name(name)
        if part.stat().st_size != int(size):
            raise OSError(f"{part} has {part.stat().st_size} bytes, not the {size} that were written")
        names.append(name)
    return names
