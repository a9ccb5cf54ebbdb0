# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints, on any number of ranks."""

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpccoll import hdf5, objects, text
from hpccoll.checksums import DamagedError
from hpccoll.compared import from_list
from hpccoll.default_world import current
from hpccoll.io.agreed import CheckpointError, target_of, together, why
from hpccoll.io.layout import unescaped
from hpccoll.io.versions import PARTS, TAG, candidates, check_sizes, named, others, sizes_in
from hpccoll.worlds import World

__all__ = ["attributes", "load"]

T = TypeVar("T")
TURNS = 100
"""How often a checkpoint is read that saves replace meanwhile."""


def load(
    path: str | os.PathLike[str],
    name: str,
    *,
    offset: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    world: World | None = None,
) -> np.ndarray:
    """Read this rank's part of an array of a checkpoint; all ranks call this together, of any number.

    Where a file of the checkpoint is missing or not whole, the one before is read if it is still there, and rank 0 says
    so on stderr. It also says if files of a `save` that did not end lie there.

    :param path: as for `save`
    :param name: of the array
    :param offset: the index of the first element that this rank reads; None: the rows are divided as evenly as can be,
        the first ranks have one more
    :param shape: of this rank's part, where `offset` is given
    :param world: the World of the call; None: the World of `init()`
    :returns: a new array
    :raises CheckpointError: there is no such checkpoint or array, a file of it is missing or not whole, what was read
        is not what was written (by its checksums), or the part is not inside of the array: on all ranks
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    own = current(world)

    def read(file: Any, main: Path) -> np.ndarray:
        whole = file[name]
        if not hasattr(whole, "shape"):
            raise OSError(f"{name!r} is a group of arrays: {', '.join(whole)}")
        return _read_part(main, whole, _slices(whole.shape, offset, shape, own))

    return _of_one_version(own, target_of(own, path)[0], read, f"{name!r}: ")


def attributes(path: str | os.PathLike[str], *, world: World | None = None) -> dict[str, Any]:
    """Read what `save` was given as `attrs`; all ranks call this together.

    :param path: as for `save`
    :param world: the World of the call; None: the World of `init()`
    :returns: the attributes by name, on all ranks; of the checkpoint before where `load` would read that one
    :raises CheckpointError: there is no such checkpoint, or a file of it is missing or damaged: on all ranks
    """
    own = current(world)

    def read(file: Any, _: Path) -> dict[str, Any]:
        found = {key: value for key, value in file.attrs.items() if key not in (PARTS, TAG)}
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in found.items()}

    return _of_one_version(own, target_of(own, path)[0], read)


def _read_part(main: Path, whole: Any, at: tuple[slice, ...]) -> np.ndarray:
    """Read a part of an array of the main file; from the files of the nodes, if they have its values.

    HDF5 would open those itself, and read them without a look at their checksums.
    """
    at = (*at, *(slice(0, n) for n in whole.shape[len(at) :]))
    out = np.zeros([here.stop - here.start for here in at], whole.dtype)  # what no part covers is zero
    if not whole.is_virtual:
        if out.size:
            whole.read_direct(out, at)
        return out
    sources: dict[str, list[tuple[str, tuple[slice, ...], tuple[slice, ...]]]] = {}
    for source in whole.virtual_sources():
        starts, lasts = source.vspace.get_select_bounds()
        both = [(max(h.start, a), min(h.stop, b + 1)) for h, a, b in zip(at, starts, lasts, strict=True)]
        if all(low < high for low, high in both):
            inside = tuple(slice(low - a, high - a) for (low, high), a in zip(both, starts, strict=True))
            into = tuple(slice(low - h.start, high - h.start) for (low, high), h in zip(both, at, strict=True))
            sources.setdefault(source.file_name, []).append((source.dset_name, inside, into))
    for file, pieces in sources.items():
        with hdf5.reading(main.with_name(unescaped(file))) as opened:
            for name, inside, into in pieces:
                opened[unescaped(name)].read_direct(out, inside, into)
    return out


def _of_one_version(own: World, target: Path, read: Callable[[Any, Path], T], what: str = "") -> T:
    """Read the main file on all ranks, again if a save of others has replaced it meanwhile.

    Else ranks could read different versions.

    :param read: reads what this rank wants from the open file
    :param what: that is, as the begin of the text if the file is damaged
    :raises CheckpointError: it cannot be read, on a rank; all ranks know
    """
    before: list[str | None] = [None]
    versions = before
    for _ in range(TURNS):
        if main := _whole(own, target):
            found: list[T] = []
            before = versions
            versions = together(own, main, functools.partial(_read_version, main, read, found, what))
            if versions[0] is not None and all(version == versions[0] for version in versions):
                return found[0]
    if None not in versions and versions == before:
        seen = from_list(versions)
        ranks = "; ".join(f"{seen.values[i]} on {text.some_ranks(seen.ranks(i))}" for i in range(len(seen.values)))
        raise CheckpointError(
            f"checkpoint {target}: the ranks find different ones there, by their tags {ranks}: all must see one folder"
        )
    raise CheckpointError(f"checkpoint {target}: a save has replaced it each of {TURNS} times that it was read")


def _read_version(main: Path, read: Callable[[Any, Path], T], found: list[T], what: str) -> str | None:
    """Read a main file into `found`.

    :returns: the tag of its version; None: another version has replaced it
    """
    before = _identity(main)
    try:
        with hdf5.reading(main) as file:
            value, sizes, tag = read(file, main), sizes_in(file), str(file.attrs[TAG])
        check_sizes(main, sizes)  # what is there now was there when it was read
    except Exception as error:
        if _identity(main) != before:
            return None
        if isinstance(error, DamagedError):
            raise OSError(f"{what}{error}") from error
        raise
    found.append(value)
    return tag


def _identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from the next one of its name; None: there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _whole(own: World, target: Path) -> Path | None:
    """Agree on the main file to read: the first candidate that every rank finds complete.

    :returns: None: a save has replaced a file while it was looked at
    :raises CheckpointError: no candidate is complete; with the problem of the current main file
    """
    before = _identity(target)
    mine = {file.name: _problem(own, file) for file in candidates(target)}
    said_by_all = objects.allgather(own.core, (mine, _identity(target) != before), None)
    everybody = [said for said, _ in said_by_all]
    wrong = [said[target.name] for said in everybody if said[target.name]]
    if wrong and any(replaced for _, replaced in said_by_all):
        return None
    whole = [name for name in everybody[0] if all(said.get(name, "missing") == "" for said in everybody)]
    if not whole:
        raise CheckpointError(wrong[0])
    main = target.with_name(whole[0])
    if own.rank == 0:
        if wrong:
            _say(f"{wrong[0]}: the checkpoint before is read, {main}")
        _say_what_is_left(target, main)
    return main


def _problem(own: World, main: Path) -> str:
    try:
        named(main)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        return why(own, main, error)
    return ""


def _say_what_is_left(target: Path, main: Path) -> None:
    """Tell the user of files that no checkpoint needs."""
    with suppress(OSError):  # a concurrent save may remove them
        if left := others(target, [main.name, *named(main)]):
            size = text.byte_size(sum(file.stat().st_size for file in left))
            files = f"{len(left)} files" if len(left) > 1 else "1 file"
            _say(
                f"checkpoint {target}: beside it: {files} ({size}) of a save that did not end, or has not yet: the "
                "next one that succeeds removes them"
            )


@functools.cache
def _say(sentence: str) -> None:
    """Print a sentence once, although each array of a checkpoint is read by a separate call."""
    text.say(f"hpccoll: {sentence}")


def _slices(
    whole: tuple[int, ...], offset: Sequence[int] | None, shape: Sequence[int] | None, own: World
) -> tuple[slice, ...]:
    if offset is None:
        if shape is not None:
            raise OSError(f"shape is {shape} and offset is None: give both, or neither")
        share, more = divmod(whole[0], own.size)
        first = own.rank * share + min(own.rank, more)
        return (slice(first, first + share + (own.rank < more)),)
    try:
        offset, shape = [index(at) for at in offset], None if shape is None else [index(n) for n in shape]
    except TypeError:
        raise OSError(f"offset is {offset} and shape is {shape}: give an integer for each dimension") from None
    if shape is None or len(shape) != len(offset) or len(whole) != len(offset):
        raise OSError(f"the array has shape {whole}: offset {offset} and shape {shape} have other dimensions")
    if any(at < 0 or n < 0 or at + n > most for at, n, most in zip(offset, shape, whole, strict=True)):
        raise OSError(f"the part of shape {tuple(shape)} at {tuple(offset)} is not inside of {whole}")
    return tuple(slice(at, at + n) for at, n in zip(offset, shape, strict=True))
