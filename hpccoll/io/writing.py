# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints: a file per node, or one file by MPI-IO. The steps are those of versions.py."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import durable, errors, hdf5, objects
from hpccoll.checksums import Sums, sums_of
from hpccoll.default_world import current
from hpccoll.io.agreed import CheckpointError, target_of, together
from hpccoll.io.layout import Part, escaped, has_hdf5, is_utf8, pieces, placed
from hpccoll.io.lock import Lock
from hpccoll.io.versions import PARTS, TAG, Version, check_sizes
from hpccoll.text import byte_size
from hpccoll.worlds import World

__all__ = ["save"]

IN_DOUBT = "the new checkpoint may have its place or not; the files of both are kept"
Layout = Mapping[str, Any]
"""By name: the dtype, the shape of the whole, and the offset and shape of each rank's part."""


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
    :raises CheckpointError: a rank could not write (the disk is full, say), or another save to this path is under way,
        in another thread, process set or job: on all ranks; the checkpoint before is untouched, and what was written of
        this one is removed. Only where the message says that the new checkpoint may have its place, all files are kept
    :raises MismatchError: the ranks' names, dtypes or shapes do not fit together; nothing was written
    :raises InvalidArgumentError: HDF5 has no such dtype, a Part lies outside of its whole, or two overlap
    :raises UnsupportedError: `mpi_io` is True, and a rank has no MPI driver: on all ranks, with the reason
    :raises HpccollError: as any operation may: ShutDownError, RecoverableError
    """
    own = current(world)
    by_name = isinstance(arrays, Mapping)
    version = Version(
        *target_of(own, path, "" if by_name else f"arrays is a {type(arrays).__name__}: give arrays by name")
    )
    parts, layout = placed(own, arrays)
    write = _write_by_mpi if _agree_on_driver(own, mpi_io) else _write_by_nodes
    lock = Lock(version.target)
    try:
        together(own, version.target, lock.take if own.rank == 0 else None)
        _replace(own, version, lambda: write(own, version, parts, layout, attrs or {}))
    finally:
        lock.give_back()
    own.barrier()  # no rank continues before the old files are removed


def _replace(own: World, version: Version, write: Callable[[], list[str]]) -> None:
    """Write a version, and let it take the place of the one before.

    :param write: returns the names of its files beside the main file
    """
    try:
        names = write()
    except CheckpointError:  # raised on all ranks, so all skip the next step
        _withdraw(own, version)
        raise
    together(own, version.target, version.publish if own.rank == 0 else None, then=IN_DOUBT)
    if own.rank == 0:
        version.clear(keep=names)


def _withdraw(own: World, version: Version) -> None:
    """Remove the new files, each by a rank that sees it."""
    for file in (version.fresh, version.node_file(own._nodes[own.rank])):  # noqa: SLF001 - the World's own
        with suppress(OSError):
            file.unlink()


def _sync_new(file: Path) -> int:
    """Bring a new file and its name to the disk; return its size."""
    size = durable.sync(file)
    durable.sync_folder(file.parent)
    return size


def _refuse_what_is_no_file(target: Path) -> None:
    """Check before the main file is written: rename() cannot replace a folder, and would replace a device or a pipe."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{target} is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(f"{target} is no file but a device, a pipe or a socket")


def _set_attributes(main: Any, tag: str, sizes: Mapping[str, int], attrs: Mapping[str, Any]) -> None:
    main.attrs[TAG] = tag
    main.attrs[PARTS] = [f"{size} {file}" for file, size in sizes.items()]
    for key, value in attrs.items():
        if key in (PARTS, TAG):
            raise OSError(f"attrs has {key!r}, the name of an attribute of the checkpoint itself")
        if not isinstance(key, str) or not key or not is_utf8(key):
            raise OSError(f"attrs has {key!r}, which is no name of an attribute")
        try:
            kind = np.asarray(value).dtype
            if kind.kind not in "UO" and not has_hdf5(kind):
                raise TypeError(f"HDF5 has no dtype {kind}")
            main.attrs[key] = value
        except Exception as error:
            raise OSError(f"attrs has {key!r}: {value!r:.80}, which HDF5 does not take: {error}") from error


# ---- a file per node ------------------------------------------------------------------------------------


def _write_by_nodes(
    own: World, version: Version, parts: Mapping[str, np.ndarray], layout: Layout, attrs: Mapping[str, Any]
) -> list[str]:
    """Write all files.

    :returns: the names of the nodes' files
    """
    nodes = own._nodes  # noqa: SLF001 - the World's own
    local = [rank for rank in range(own.size) if nodes[rank] == nodes[own.rank]]
    node_file = version.node_file(nodes[own.rank])
    for turn in range(max(nodes.count(node) for node in nodes)):  # the ranks of a node share a file, in turns
        mine = turn < len(local) and local[turn] == own.rank
        write = partial(_write_part, node_file, turn == 0, own.rank, parts)
        together(own, node_file, write if mine else None)
    found = together(own, node_file, (lambda: _sync_new(node_file)) if own.rank == local[0] else None)
    sizes = {version.node_file(nodes[rank]).name: size for rank, size in enumerate(found) if size}
    sources = [version.node_file(node).name for node in nodes]
    writes = own.rank == 0
    together(own, version.target, (lambda: _write_main(version, layout, sources, sizes, attrs)) if writes else None)
    return list(sizes)


def _write_part(file: Path, first: bool, rank: int, parts: Mapping[str, np.ndarray]) -> None:
    with hdf5.writing(file, sums=Sums()) if first else hdf5.changing(file) as out:
        group = out.create_group(f"rank{rank}")
        for name, array in parts.items():
            group.create_dataset(name, data=array.reshape(1) if array.ndim == 0 else array)


def _write_main(
    version: Version, layout: Layout, sources: Sequence[str], sizes: Mapping[str, int], attrs: Mapping[str, Any]
) -> None:
    """Write the file that shows whole arrays.

    :param sources: of each rank, the file with its data
    :param sizes: of these files
    """
    _refuse_what_is_no_file(version.target)
    check_sizes(version.target, sizes)
    h5py = hdf5.package()
    with hdf5.writing(version.fresh, sums=Sums()) as out:
        for name, (dtype, shape, places) in layout.items():
            whole = h5py.VirtualLayout(shape, dtype)
            for rank, (offset, part) in enumerate(places):
                if 0 not in part:
                    at = tuple(slice(o, o + n) for o, n in zip(offset, part, strict=True))
                    file, inside = (escaped(text) for text in (sources[rank], f"rank{rank}/{name}"))
                    whole[at] = h5py.VirtualSource(file, inside, tuple(part))
            out.create_virtual_dataset(name, whole)
        _set_attributes(out, version.tag, sizes, attrs)
    _sync_new(version.fresh)


# ---- writing by MPI-IO ----------------------------------------------------------------------------------


def _agree_on_driver(own: World, wanted: bool | None) -> bool:
    """Return whether all ranks write one file; compare their wishes and their missing drivers."""
    said = objects.allgather(own.core, (wanted, _lacks_mpi_io(own)), None)
    for rank, (other, _) in enumerate(said):
        if other != said[0][0]:
            raise errors.MismatchError(f"checkpoint: mpi_io is {said[0][0]} on rank 0 and {other} on rank {rank}")
    for rank, (_, lacks) in enumerate(said):
        if wanted and lacks:
            raise errors.UnsupportedError(f"checkpoint: mpi_io=True, but rank {rank} has no MPI driver: {lacks}")
    return wanted is not False and not any(lacks for _, lacks in said)


def _lacks_mpi_io(own: World) -> str:
    """Return the reason for which this rank cannot use MPI-IO; "" if it can."""
    if getattr(own.base.rendezvous, "comm", None) is None:
        return "its World is not made of an MPI communicator"
    try:
        h5py = hdf5.package()
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


def _write_by_mpi(
    own: World, version: Version, parts: Mapping[str, np.ndarray], layout: Layout, attrs: Mapping[str, Any]
) -> list[str]:
    """Write the one file: rank 0 makes it, with all but the values; then all ranks write these, each its own.

    HDF5 waits for all ranks where it opens and closes a file by MPI, and ends a process by SIGSEGV if it cannot write
    its own data there. So each rank first opens the file without MPI, and only values are left to write.

    :returns: no names: there are no other files
    """
    file, nodes = version.fresh, own._nodes  # noqa: SLF001 - the World's own
    together(own, version.target, (lambda: _write_empty(version, layout, attrs)) if own.rank == 0 else None)
    together(own, file, lambda: _check_writable(file))
    with _communicator(own) as comm:
        together(own, file, lambda: _write_values(file, comm, own.rank, parts, layout))
    leads = nodes.index(nodes[own.rank]) == own.rank
    together(own, file, (lambda: durable.sync(file)) if leads else None)
    found = together(own, file, lambda: sums_of(file, own.rank, own.size))
    together(own, file, (lambda: _append_sums(file, b"".join(found))) if own.rank == 0 else None)
    return []


def _write_empty(version: Version, layout: Layout, attrs: Mapping[str, Any]) -> None:
    """Write the file without the values, which have their places."""
    _refuse_what_is_no_file(version.target)
    h5py = hdf5.package()
    with hdf5.writing(version.fresh) as out:
        for name, (dtype, shape, _) in layout.items():
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            out.create_dataset(name, shape, dtype, dcpl=properties)
        _set_attributes(out, version.tag, {}, attrs)


def _check_writable(file: Path) -> None:
    os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))


def _write_values(file: Path, comm: Any, rank: int, parts: Mapping[str, np.ndarray], layout: Mapping[str, Any]) -> None:
    try:
        with hdf5.package().File(file, "r+", libver=hdf5.FORMAT, driver="mpio", comm=comm) as out:
            for name, (dtype, _, places) in layout.items():
                offset, part = places[rank]
                values = parts[name].reshape(part)
                for piece in pieces(part, dtype.itemsize):
                    at = (slice(o + here.start, o + here.stop) for o, here in zip(offset, piece, strict=True))
                    out[name][tuple(at)] = values[piece]
    except OSError as error:  # it has no reason: MPI_ERR_OTHER
        disk = os.statvfs(file)
        raise OSError(f"{error} ({byte_size(disk.f_bavail * disk.f_frsize)} are free there)") from error


def _append_sums(file: Path, sums: bytes) -> None:
    """Add the checksums to a file that is on the disk."""
    table = np.frombuffer(sums, "<u4")
    with file.open("r+b", buffering=0) as opened:
        Sums(table, file.stat().st_size).append(opened.fileno())
    _sync_new(file)
