# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints, on any number of ranks."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import hdf5, objects, text
from hpccoll.default_world import current
from hpccoll.io.agreed import CheckpointError, together, why
from hpccoll.io.versions import PARTS, candidates, named, others
from hpccoll.worlds import World

__all__ = ["attributes", "load"]


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
    :raises CheckpointError: there is no such checkpoint or array, a file of it is missing or not whole, or the part is
        not inside of the array: on all ranks
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    own = current(world)
    main = _whole(own, Path(os.path.abspath(path)))

    def read() -> np.ndarray:
        with hdf5.package().File(main, "r", locking=False) as file:
            whole = file[name]
            if not hasattr(whole, "shape"):
                raise OSError(f"{name!r} is a group of arrays: {', '.join(whole)}")
            return np.asarray(whole[_slices(whole.shape, offset, shape, own)])

    mine: np.ndarray = together(own, main, read, keep=True)[0]
    return mine


def attributes(path: str | os.PathLike[str], *, world: World | None = None) -> dict[str, Any]:
    """Read what `save` was given as `attrs`; all ranks call this together.

    :param path: as for `save`
    :param world: the World of the call; None: the World of `init()`
    :returns: the attributes by name, on all ranks; of the checkpoint before where `load` would read that one
    :raises CheckpointError: there is no such checkpoint, or a file of it is missing: on all ranks
    """
    own = current(world)
    main = _whole(own, Path(os.path.abspath(path)))

    def read() -> dict[str, Any]:
        with hdf5.package().File(main, "r", locking=False) as file:
            return {key: _plain(value) for key, value in file.attrs.items() if key != PARTS}

    found: dict[str, Any] = together(own, main, read, keep=True)[0]
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _whole(own: World, target: Path) -> Path:
    """Agree on the main file to read: the first candidate that every rank finds complete.

    :raises CheckpointError: no candidate is complete; with the problem of the current main file
    """
    mine = {file.name: _problem(own, file) for file in candidates(target)}
    everybody = objects.allgather(own.core, mine, None)
    wrong = [said[target.name] for said in everybody if said[target.name]]
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
            _say(
                f"checkpoint {target}: beside it lie {len(left)} files ({size}) of a save that did not end, or has not "
                "yet: the next one that succeeds removes them"
            )


@functools.cache
def _say(sentence: str) -> None:
    """Print a sentence once, although each array of a checkpoint is read by a separate call."""
    print(f"hpccoll: {sentence}", file=sys.stderr, flush=True)


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
