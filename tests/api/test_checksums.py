# SPDX-License-Identifier: Apache-2.0
"""Checksums of the files of checkpoints: what was not written so is not read."""

import numpy as np
import pytest

from hpccoll import checksums, hdf5, testing
from hpccoll._core import crc32c

h5py = pytest.importorskip("h5py")
io = pytest.importorskip("hpccoll.io")
writing = pytest.importorskip("hpccoll.io.writing")
Version = pytest.importorskip("hpccoll.io.versions").Version


def flipped(file, at, bit=3):
    """Change one bit of a file in its place."""
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << bit]))


@pytest.mark.parametrize(("before", "nodes", "after"), [(3, "2+1", 2), (2, "", 3)])
def test_a_flipped_bit_in_any_place_is_an_error_on_all_ranks(threads, tmp_path, before, nodes, after):
    path = tmp_path / "c.h5"
    field = np.random.default_rng(2).random((2 * before, 6))

    def write(world):
        part = io.Part(field[2 * world.rank : 2 * world.rank + 2], (2 * world.rank, 0), field.shape)
        io.save(path, {"field": part, "rows": np.arange(9)}, attrs={"step": 7, "name": "état"}, world=world)

    def read(world, name, first):
        """Rank 0 alone reads the first rows, so that a damage there is found by one rank."""
        io.attributes(path, world=world)
        rows = len(field) - first if world.rank else first
        return io.load(path, name, offset=(first if world.rank else 0, 0), shape=(rows, 6), world=world)

    def program(world, file, places):
        for at in places:
            if world.rank == 0:
                flipped(file, at, at % 8)
            world.barrier()
            with pytest.raises(io.CheckpointError, match=r"c.h5: rank \d+ \(host .*c.h5.* (damaged|checksums)") as said:
                read(world, "field", 1)
            texts = world.allgather_object(str(said.value))
            assert len(set(texts)) == 1
            if file.name != path.name:
                assert "'field': " in texts[0] and f"{file} " in texts[0]
            world.barrier()
            if world.rank == 0:
                flipped(file, at, at % 8)
            world.barrier()
        whole = world.allgather(read(world, "field", 1)) if world.size == 2 else field
        assert (whole == field).all()

    testing.run(threads(before, nodes=nodes), write)
    readers = threads(after)
    for file in sorted(tmp_path.iterdir()):
        size = file.stat().st_size
        places = [*range(0, 60, 7), *range(60, size, 997), *range(size - 30, size, 3)]
        testing.run(readers, lambda world, file=file, places=places: program(world, file, places))


def test_a_part_is_read_from_a_file_that_is_damaged_elsewhere(threads, tmp_path):
    """Each MiB has its own checksum: 8 MiB of one rank, which others read in rows and in columns."""
    path, u = tmp_path / "c.h5", np.arange(1 << 20, dtype=np.float64).reshape(1024, 1024)
    (one,) = threads(1)
    io.save(path, {"u": u, "v": np.arange(3)}, world=one)
    (file,) = tmp_path.glob("*.node0")
    flipped(file, 5 * (1 << 20) + 77)

    def program(world):
        for first, columns in ((3, slice(0, 1024)), (500, slice(7 + world.rank, 9))):
            got = io.load(
                path, "u", offset=(first, columns.start), shape=(50, columns.stop - columns.start), world=world
            )
            assert (got == u[first : first + 50, columns]).all()
        damage = r"'u': .*node0 is damaged: the bytes 5242880 to 6291455 are not those that were written"
        for part in ({}, {"offset": (600 + 100 * world.rank, 0), "shape": (90, 1)}):
            with pytest.raises(io.CheckpointError, match=damage):
                io.load(path, "u", **part, world=world)
        assert io.load(path, "v", offset=(0,), shape=(3,), world=world).tolist() == [0, 1, 2]

    testing.run(threads(2), program)
    with h5py.File(path) as plain:  # any tool of HDF5 reads the files, without a look at their checksums
        assert (plain["u"][:600] == u[:600]).all() and plain["v"].shape == (3,)
    with h5py.File(path, "r+") as plain:
        plain.attrs["by hand"] = 1
    with pytest.raises(
        io.CheckpointError, match=r"c.h5 does not end with its checksums: .*another program has changed"
    ):
        io.load(path, "v", world=one)


def test_checksums_of_a_file_that_hdf5_wrote_without_them(threads, tmp_path):
    """As MPI-IO does: rank 0 makes the file, all write into it and read shares of it, rank 0 appends the table."""
    version, u = Version(tmp_path / "c.h5", "0123456789ab"), np.arange(1 << 19, dtype=np.float64)
    writing._write_empty(version, {"u": (u.dtype, u.shape, [])}, {"step": 1})
    with h5py.File(version.fresh, "r+", libver=hdf5.FORMAT) as file:
        file["u"][...] = u
    writing._append_sums(version.fresh, b"".join(checksums.sums_of(version.fresh, i, 3) for i in range(3)))
    version.publish()
    (world,) = threads(1)
    assert (io.load(version.target, "u", world=world) == u).all()
    assert io.attributes(version.target, world=world) == {"step": 1}
    flipped(version.target, 3 << 20)
    with pytest.raises(io.CheckpointError, match=r"'u': .*c.h5 is damaged: the bytes 3145728 to 4194303 are not"):
        io.load(version.target, "u", world=world)


def test_the_checksum_is_crc_32c():
    """The values of RFC 3720, B.4; and those of a text in pieces of any length."""
    for data, value in (
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ):
        assert crc32c(data) == crc32c(data, portable=True) == value
    data = np.random.default_rng(3).bytes(50_000)
    for first, middle, last in np.sort(np.random.default_rng(4).integers(0, 50_001, (50, 3)), axis=1).tolist():
        whole = crc32c(data[first:last], portable=True)
        assert crc32c(data[first:last]) == crc32c(data[middle:last], crc32c(data[first:middle])) == whole
