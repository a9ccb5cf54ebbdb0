# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of distributed arrays in HDF5, and restart on another number of ranks.

Where h5py was built with MPI, and the World is of MPI, all ranks write one file (MPI-IO). Elsewhere a checkpoint is a
file that shows whole arrays (virtual datasets) and one file per node with the data of its ranks (`NAME.<id>.node0`).
All of them are new files each time. The first one is written last, under a temporary name, and renamed:
until then the checkpoint before is untouched, and a job that is killed at any moment leaves that one or the new one.
Every file is brought to the disk (fsync) before the rename. h5py must be installed. The ranks agree on each step, so
files are not locked, which not every parallel file system can.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpccoll import errors, objects
from hpccoll.collectives import barrier
from hpccoll.topology import Cart
from hpccoll.world import World, current

__all__ = ["CheckpointError", "Part", "attributes", "load", "save"]

T = TypeVar("T")
PARTS = "hpccoll_parts"
"""The attribute of the main file with the names and sizes of the files of the nodes."""


class CheckpointError(errors.HpccollError, OSError):
    """A checkpoint could not be written or read, on all ranks. The text names rank, host, file and reason."""


@dataclass(frozen=True)
class Part:
    """The part of a distributed array that a rank has, and where it lies in the whole.

    >>> part = hpccoll.io.Part(np.ones(3), offset=(3 * hpccoll.rank(),), shape=(6,))
    """

    array: np.ndarray
    """The values; a view with strides is as good as any."""
    offset: Sequence[int]
    """The index, in the whole array, of the part's first element."""
    shape: Sequence[int]
    """The shape of the whole array; the same on all ranks."""

    @staticmethod
    def of_cart(cart: Cart, array: np.ndarray, width: int | Sequence[int] = 0) -> Part:
        """Describe the cells of a rank of a Cart, without their halo. All ranks call it.

        :param array: divided along its first dimensions, as for `Cart.halo_exchange`
        :param width: of the halo
        :returns: the part; extents may differ between the ranks, but not among those in one row of the grid
        """
        ndim = len(cart.dims)
        widths = [width] * ndim if isinstance(width, int) else list(width)
        inside = array[tuple(slice(w, n - w) for w, n in zip(widths, array.shape, strict=False))]
        everybody = objects.allgather(cart.world.core, inside.shape, None)
        places = [cart.coords_of(rank) for rank in range(cart.size)]
        here, offset, shape = cart.coords, [0] * array.ndim, list(inside.shape)
        for d in range(ndim):
            extents = {place[d]: extent[d] for place, extent in zip(places, everybody, strict=True)}
            offset[d], shape[d] = sum(extents[at] for at in range(here[d])), sum(extents.values())
        return Part(inside, offset, shape)


# ---- writing --------------------------------------------------------------------------------------------


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray | Part],
    *,
    attrs: Mapping[str, Any] | None = None,
    mpi_io: bool | None = None,
    world: World | None = None,
) -> None:
    """Write a checkpoint; all ranks call this together. The one of this name before stays whole until this one is.

        >>> import tempfile, pathlib
        >>> folder = hpccoll.broadcast_object(tempfile.mkdtemp())
        >>> path = pathlib.Path(folder, "state.h5")
        >>> hpccoll.io.save(path, {"u": np.full(2 + hpccoll.rank(), 1.5)}, attrs={"step": 10})
        >>> hpccoll.io.load(path, "u", offset=(0,), shape=(5,))
        array([1.5, 1.5, 1.5, 1.5, 1.5])
        >>> hpccoll.io.attributes(path)["step"]
        10

    :param path: of the file that shows the whole arrays; all ranks must see its folder
    :param arrays: by name, the same names on all ranks. An array: the rows (first dimension) of rank 0, then those of
        rank 1, and so on, as for `allgather`. A `Part`: says where it lies; parts must not overlap, and what no part
        covers reads as zeros
    :param attrs: numbers, texts or small arrays, those of rank 0 are written: the time step, parameters
    :param mpi_io: True: all ranks write one file, by the MPI driver of h5py; False: a file per node; None: by the MPI
        driver where all ranks have it
    :param world: the World of the call; None: the World of `init()`
    :raises CheckpointError: a rank could not write (the disk is full, say): on all ranks; the checkpoint before is
        untouched, and what was written of this one is removed
    :raises MismatchError: the ranks' names, dtypes or shapes do not fit together; nothing was written
    :raises InvalidArgumentError: HDF5 has no such dtype, or a Part lies outside of its whole
    :raises UnsupportedError: `mpi_io` is True, and a rank has no MPI driver: on all ranks, with the reason
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    own = current(world)
    target = Path(os.path.abspath(path))
    tag = objects.broadcast(own.core, secrets.token_hex(6), 0, None)
    parts, layout = _placed(own, arrays)
    temporary = target.with_name(f"{target.name}.{tag}.new")
    if _agree_on_driver(own, mpi_io):
        _save_by_mpi(own, target, temporary, parts, layout, attrs or {})
    else:
        _save_by_nodes(own, target, temporary, tag, parts, layout, attrs or {})
    if own.rank == 0:
        _remove_others(target, tag)
    barrier(world=own)  # no rank goes on before the old files are gone


def _save_by_nodes(
    own: World, target: Path, temporary: Path, tag: str, parts: Mapping[str, np.ndarray], layout: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> None:  # fmt: skip
    nodes = own._nodes  # noqa: SLF001 - the World's own
    local = [rank for rank in range(own.size) if nodes[rank] == nodes[own.rank]]
    node_file = target.with_name(f"{target.name}.{tag}.node{nodes[own.rank]}")
    try:
        for turn in range(max(nodes.count(node) for node in nodes)):  # the ranks of a node share a file, in turns
            mine = turn < len(local) and local[turn] == own.rank
            _together(own, node_file, (lambda: _write_part(node_file, own.rank, parts)) if mine else None)
        sizes = _together(own, node_file, (lambda: _sync(node_file)) if own.rank == local[0] else None)
        names = {f"{target.name}.{tag}.node{nodes[rank]}": size for rank, size in enumerate(sizes) if size}
        rank_files = [f"{target.name}.{tag}.node{node}" for node in nodes]
        writes = own.rank == 0
        _together(
            own, target,
            (lambda: _write_main(temporary, target, layout, rank_files, names, attrs)) if writes else None,
        )  # fmt: skip
    except BaseException:
        for file in (temporary, node_file):
            with suppress(OSError):
                file.unlink()
        raise


def _placed(own: World, arrays: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """List the arrays of this rank, and of each the dtype, the shape of the whole, and where each rank's part lies."""
    mine, said = {}, {}
    for name, value in arrays.items():
        array = np.asarray(value.array if isinstance(value, Part) else value)
        mine[name] = array
        where = (list(value.offset), list(value.shape)) if isinstance(value, Part) else None
        said[name] = (_dtype_of(name, array), array.shape, where)
    everybody = objects.allgather(own.core, said, None)
    layout = {}
    for rank, other in enumerate(everybody):
        if list(other) != list(everybody[0]):
            raise errors.MismatchError(f"checkpoint: rank 0 has {list(everybody[0])}, rank {rank} has {list(other)}")
    for name in said:
        layout[name] = _whole(name, [other[name] for other in everybody])
    return mine, layout


def _dtype_of(name: str, array: np.ndarray) -> np.dtype[Any] | str:
    """The dtype of an array; as a text if it cannot be written, which all ranks refuse together."""
    kind = array.dtype
    if kind.hasobject or kind.kind in "UMm" or (kind.kind == "V" and not kind.names):
        return f"HDF5 has no dtype {kind}"
    if not name or name.startswith("/") or ".." in name:
        return "that is no name of an array"
    return kind


def _whole(name: str, said: list[Any]) -> tuple[Any, tuple[int, ...], list[tuple[list[int], list[int]]]]:
    """The dtype and shape of a whole array, and the offset and shape of each rank's part."""
    dtype, first, where = said[0]
    places, rows = [], 0
    shape = list(where[1]) if where else [sum(s[0] if s else 1 for _, s, _ in said), *first[1:]]
    for rank, (kind, part, place) in enumerate(said):
        if isinstance(kind, str):
            raise errors.InvalidArgumentError(f"checkpoint: {name!r} of rank {rank}: {kind}")
        part = list(part) or [1]
        offset = place[0] if place else [rows] + [0] * (len(part) - 1)
        rows += part[0]
        fits = kind == dtype and (place is None) == (where is None) and len(part) == len(shape) == len(offset)
        fits = fits and (part[1:] == shape[1:] if place is None else place[1] == shape)
        if not fits:
            raise errors.MismatchError(f"checkpoint: {name!r} is {said[0]} on rank 0 and {said[rank]} on rank {rank}")
        if any(at < 0 or at + n > whole for at, n, whole in zip(offset, part, shape, strict=True)):
            raise errors.InvalidArgumentError(
                f"checkpoint: {name!r}: the part of rank {rank}, {part} at {offset}, is not inside of {shape}"
            )
        places.append((offset, part))
    return dtype, tuple(shape), places


def _write_part(file: Path, rank: int, parts: Mapping[str, np.ndarray]) -> int:
    h5py = _h5py()
    with h5py.File(file, "a", libver="latest", locking=False) as out:
        group = out.create_group(f"rank{rank}")
        for name, array in parts.items():
            group.create_dataset(name, data=array.reshape(1) if array.ndim == 0 else array)
    return 0


def _sync(file: Path) -> int:
    """Bring a file to the disk; return its size."""
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _write_main(
    temporary: Path,
    target: Path,
    layout: Mapping[str, Any],
    rank_files: Sequence[str],
    sizes: Mapping[str, int],
    attrs: Mapping[str, Any],
) -> int:
    h5py = _h5py()
    with h5py.File(temporary, "w", libver="latest", locking=False) as out:
        for name, (dtype, shape, places) in layout.items():
            whole = h5py.VirtualLayout(shape, dtype)
            for rank, (offset, part) in enumerate(places):
                if 0 not in part:
                    at = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
                    whole[at] = h5py.VirtualSource(rank_files[rank], f"rank{rank}/{name}", tuple(part))
            out.create_virtual_dataset(name, whole)
        _set_attributes(out, sizes, attrs)
    _replace(temporary, target)
    return 0


def _set_attributes(out: Any, sizes: Mapping[str, int], attrs: Mapping[str, Any]) -> None:
    out.attrs[PARTS] = [f"{size} {file}" for file, size in sizes.items()]
    for key, value in attrs.items():
        out.attrs[key] = value


def _replace(temporary: Path, target: Path) -> None:
    """Bring a file to the disk, and then to its place."""
    _sync(temporary)
    os.replace(temporary, target)
    _sync(target.parent)


# ---- writing by MPI-IO ----------------------------------------------------------------------------------


def _agree_on_driver(own: World, wanted: bool | None) -> bool:
    """Say whether all ranks write one file; what they want, and what they lack, is compared."""
    said = objects.allgather(own.core, (wanted, _lacks_mpi_io(own)), None)
    for rank, (other, _) in enumerate(said):
        if other != said[0][0]:
            raise errors.MismatchError(f"checkpoint: mpi_io is {said[0][0]} on rank 0 and {other} on rank {rank}")
    for rank, (_, lacks) in enumerate(said):
        if wanted and lacks:
            raise errors.UnsupportedError(f"checkpoint: mpi_io=True, but rank {rank} has no MPI driver: {lacks}")
    return wanted is not False and not any(lacks for _, lacks in said)


def _lacks_mpi_io(own: World) -> str:
    """Why this rank cannot write by MPI-IO; "" if it can."""
    if getattr(own.base.rendezvous, "comm", None) is None:
        return "its World is not made of an MPI communicator"
    try:
        h5py = _h5py()
    except OSError as error:
        return str(error)
    if not h5py.get_config().mpi:
        return "its h5py was built without MPI (HDF5_MPI=ON CC=mpicc pip install --no-binary=h5py h5py)"
    return ""


@contextmanager
def _communicator(own: World) -> Iterator[Any]:
    """The ranks of a World as an MPI communicator."""
    everybody: Any = own.base.rendezvous
    members = own.core.members
    if members == tuple(range(everybody.size)):
        yield everybody.comm
        return
    group = everybody.comm.Get_group().Incl(members)
    comm = everybody.comm.Create_group(group, own.core.number)
    try:
        yield comm
    finally:
        comm.Free()


def _save_by_mpi(
    own: World, target: Path, temporary: Path, parts: Mapping[str, np.ndarray], layout: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> None:  # fmt: skip
    nodes = own._nodes  # noqa: SLF001 - the World's own
    try:
        with _communicator(own) as comm:
            _together(own, temporary, lambda: _write_whole(temporary, comm, own.rank, parts, layout))
        leads = nodes.index(nodes[own.rank]) == own.rank
        _together(own, temporary, (lambda: _sync(temporary)) if leads else None)
        _together(own, target, (lambda: _put(temporary, target, attrs)) if own.rank == 0 else None)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _write_whole(
    temporary: Path, comm: Any, rank: int, parts: Mapping[str, np.ndarray], layout: Mapping[str, Any]
) -> None:
    with _h5py().File(temporary, "w", libver="latest", driver="mpio", comm=comm) as out:
        wholes = {name: out.create_dataset(name, shape, dtype) for name, (dtype, shape, _) in layout.items()}
        for name, (_, _, places) in layout.items():
            offset, part = places[rank]
            if 0 not in part:
                at = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
                wholes[name][at] = parts[name].reshape(part)
        out.flush()


def _put(temporary: Path, target: Path, attrs: Mapping[str, Any]) -> int:
    """Add the attributes to a file that is on the disk, and let it take the place of the checkpoint before."""
    with _h5py().File(temporary, "r+", libver="latest", locking=False) as out:
        _set_attributes(out, {}, attrs)
    _replace(temporary, target)
    return 0


def _remove_others(target: Path, tag: str) -> None:
    """Remove the files of the nodes of other checkpoints of this name, also those that a killed job has left."""
    for file in target.parent.glob(f"{target.name}.*"):
        name = file.name.removeprefix(f"{target.name}.")
        identity, _, kind = name.partition(".")
        if identity != tag and len(identity) == 12 and (kind.startswith("node") or kind == "new"):
            with suppress(OSError):
                file.unlink()


# ---- reading --------------------------------------------------------------------------------------------


def load(
    path: str | os.PathLike[str],
    name: str,
    *,
    offset: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    world: World | None = None,
) -> np.ndarray:
    """Read this rank's part of an array of a checkpoint; all ranks call this together, of any number.

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
    target = Path(os.path.abspath(path))

    def read() -> np.ndarray:
        with _opened(target) as file:
            whole = file[name]
            at = _slices(whole.shape, offset, shape, own)
            return np.asarray(whole[at])

    parts = _together(own, target, read, keep=True)
    mine: np.ndarray = parts[0]
    return mine


def attributes(path: str | os.PathLike[str], *, world: World | None = None) -> dict[str, Any]:
    """Read what `save` was given as `attrs`; all ranks call this together.

    :param path: as for `save`
    :param world: the World of the call; None: the World of `init()`
    :returns: the attributes by name, on all ranks
    :raises CheckpointError: there is no such checkpoint, or a file of it is missing: on all ranks
    """
    own = current(world)
    target = Path(os.path.abspath(path))

    def read() -> dict[str, Any]:
        with _opened(target) as file:
            return {key: _plain(value) for key, value in file.attrs.items() if key != PARTS}

    found: dict[str, Any] = _together(own, target, read, keep=True)[0]
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def _opened(target: Path) -> Iterator[Any]:
    """The main file, after a look at the files of the nodes: HDF5 reads a missing one as zeros."""
    with _h5py().File(target, "r", locking=False) as file:
        for line in file.attrs[PARTS]:
            size, _, name = str(line).partition(" ")
            part = target.with_name(name)
            if part.stat().st_size != int(size):
                raise OSError(f"{part} has {part.stat().st_size} bytes, not the {size} that were written")
        yield file


def _slices(
    whole: tuple[int, ...], offset: Sequence[int] | None, shape: Sequence[int] | None, own: World
) -> tuple[slice, ...]:
    if offset is None:
        share, more = divmod(whole[0], own.size)
        first = own.rank * share + min(own.rank, more)
        return (slice(first, first + share + (own.rank < more)),)
    if shape is None or len(shape) != len(offset) or len(whole) != len(offset):
        raise OSError(f"the array has shape {whole}: offset {offset} and shape {shape} have other dimensions")
    if any(at < 0 or n < 0 or at + n > most for at, n, most in zip(offset, shape, whole, strict=True)):
        raise OSError(f"the part of shape {tuple(shape)} at {tuple(offset)} is not inside of {whole}")
    return tuple(slice(at, at + n) for at, n in zip(offset, shape, strict=True))


# ---- all ranks or none ----------------------------------------------------------------------------------


def _together(own: World, file: Path, action: Callable[[], Any] | None, *, keep: bool = False) -> list[Any]:
    """Do a step, which may fail, on the ranks that have one; then all raise, or get what each one's returned.

    :param keep: the results are large: this rank's alone
    :raises CheckpointError: it failed on a rank
    """
    result, text = None, ""
    try:
        result = action() if action else None
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        why = str(error) or type(error).__name__
        text = f"checkpoint {file}: rank {own.rank} (host {platform.node()}): {why}"
    said = objects.allgather(own.core, (text, None if keep else result), None)
    for problem, _ in said:
        if problem:
            raise CheckpointError(problem)
    return [result] if keep else [value for _, value in said]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise OSError(f"h5py is not installed ({error}): pip install h5py") from None
    return h5py
