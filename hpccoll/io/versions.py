# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint, and the atomic replacement of a version by the next.

`state.h5` is the main file. A version, that is one call of `save`, has a tag, and up to three kinds of files beside it:

    state.h5.TAG.node0    the data of node 0, named by the main file with its size
    state.h5.TAG.new      the new main file, until it is renamed to state.h5
    state.h5.TAG.before   the previous main file, for `load` if the new version is broken

The order, of which docs/decisions/0057 has the reasons: (1) all files are written under new names and synced (fsync);
(2) all ranks agree that (1) has succeeded; (3) rank 0 renames the main file and syncs the folder; (4) all ranks agree
that (3) has succeeded; (5) rank 0 removes all files that the new version does not name. Until (2) has succeeded the old
version is unchanged, so if all ranks agree on a failure they remove the new files. After (2) a rank that is lost or
interrupted cannot know the state of the others: no file is removed until a later `save` reaches (5).
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccoll import durable, hdf5

__all__ = ["PARTS", "TAG", "Version", "candidates", "check_sizes", "named", "others", "sizes_in"]

PARTS = "hpccoll_parts"
"""The attribute of the main file with the names and sizes of the files of the nodes."""
TAG = "hpccoll_tag"
"""The attribute of the main file with the tag of its version."""


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
        """The new main file, until it is renamed."""
        return self._beside("new")

    @property
    def before(self) -> Path:
        """The previous main file."""
        return self._beside("before")

    def _beside(self, kind: str) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.tag}.{kind}")

    def publish(self) -> None:
        """Give the main file its place: step 3.

        :raises OSError: it is there or it is not
        """
        with suppress(OSError):  # no previous file, or no hard links: then `load` has only one version
            os.link(self.target, self.before)
        durable.put(self.fresh, self.target)

    def clear(self, keep: Iterable[str]) -> None:
        """Remove the files beside the main file that it does not name: step 5. Other main files are removed first.

        :param keep: names of files that stay
        """
        for file in sorted(others(self.target, keep), key=lambda file: not file.name.endswith(".before")):
            with suppress(OSError):
                file.unlink()


def others(target: Path, keep: Iterable[str]) -> list[Path]:
    """Find the files of all versions beside a main file, except the names in `keep`."""
    beside = re.compile(re.escape(target.name) + r"\.[0-9a-f]{12}\.(node\d+|new|before)")
    names = set(keep)
    return [file for file in target.parent.iterdir() if beside.fullmatch(file.name) and file.name not in names]


def candidates(target: Path) -> list[Path]:
    """List the main files from which a checkpoint can be read: the current one, then previous ones."""
    try:
        before = [(file.stat().st_mtime, file) for file in others(target, ()) if file.name.endswith(".before")]
    except FileNotFoundError:  # no folder; or a concurrent save has removed a file
        before = []
    return [target, *(file for _, file in sorted(before, reverse=True))]


def named(main: Path) -> list[str]:
    """List the names of the files that a main file needs, after a check that all exist and have the right size.

    :raises OSError: the check failed, or the main file cannot be read
    """
    with hdf5.reading(main) as file:
        sizes = sizes_in(file)
    check_sizes(main, sizes)
    return list(sizes)


def sizes_in(main: Any) -> dict[str, int]:
    """Return the names and sizes of the files that an open main file needs.

    :raises OSError: it is another kind of file
    """
    if PARTS not in main.attrs:
        raise OSError("this is no checkpoint of hpccoll.io.save")
    lines = (str(line).partition(" ") for line in main.attrs[PARTS])
    return {name: int(size) for size, _, name in lines}


def check_sizes(main: Path, sizes: Mapping[str, int]) -> None:
    """Check that the files which a main file needs lie beside it.

    :param sizes: by name
    :raises OSError: one is missing, or has another size
    """
    for name, size in sizes.items():
        part = main.with_name(name)
        try:
            found = part.stat().st_size
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{part} is not here: all nodes must see the folder of a checkpoint, and its files stay together"
            ) from None
        if found != size:
            raise OSError(f"{part} has {found} bytes, not the {size} that were written")
