# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that all ranks write into one file, by MPI-IO."""

import contextlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import hpccoll
from hpccoll import hdf5, testing

h5py = pytest.importorskip("h5py")
io = pytest.importorskip("hpccoll.io")
pieces = pytest.importorskip("hpccoll.io.layout").pieces
writing = pytest.importorskip("hpccoll.io.writing")
needs_mpi = pytest.mark.skipif(
    not h5py.get_config().mpi,
    reason="h5py was built without MPI: HDF5_MPI=ON CC=mpicc pip install --no-binary=h5py h5py",
)


def run(program, *words):
    """Run a program on three ranks of two nodes; return its output."""
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "3", "--nodes", "2", "--timeout", "100"]
    command += [sys.executable, "-P", "-c", program, *map(str, words)]
    return subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE, text=True).stdout


MPI_IO = """
import sys, numpy as np, hpccoll, hpccoll.io
world = hpccoll.init(verbose=0)
half = world.split(world.rank // 2)
cart = world.cart([0, 0])
u = np.full((6, 5, 2), float(cart.rank))
for step in range(2):
    arrays = {"u": hpccoll.io.Part.of_cart(cart, u, width=1), "rows": np.arange(3.0 * world.rank)[:, None],
              "pairs": np.full(2, world.rank, "i4,f8")}
    for form in (True, False):
        name = f"{sys.argv[1]}/{'mpi' if form else 'nodes'}.h5"
        hpccoll.io.save(name, arrays, attrs={"step": step, "name": "état"}, mpi_io=form)
    hpccoll.io.save(f"{sys.argv[1]}/half{world.rank // 2}.h5", {"x": np.full(2, half.rank)}, world=half)
cart.shutdown()
"""


@needs_mpi
@pytest.mark.slow  # h5py's wheels have no MPI
def test_mpi_io_writes_what_the_other_form_writes(threads, tmp_path):
    """Three ranks write on two nodes, other numbers of ranks read; an array of some ranks, too."""
    run(MPI_IO, tmp_path)

    def read(world):
        for name in ("u", "rows", "pairs"):
            one, other = (io.load(tmp_path / f"{form}.h5", name, world=world) for form in ("mpi", "nodes"))
            assert one.dtype == other.dtype and (one == other).all()
        assert io.attributes(tmp_path / "mpi.h5", world=world) == {"step": 1, "name": "état"}
        assert io.load(tmp_path / "half0.h5", "x", offset=(0,), shape=(4,), world=world).tolist() == [0, 0, 1, 1]

    for ranks in (1, 2, 4):
        testing.run(threads(ranks), read)
    assert {"mpi.h5", "half0.h5", "half1.h5"} <= {file.name for file in tmp_path.iterdir()}
    assert not list(tmp_path.glob("mpi.h5.*")) and len(list(tmp_path.glob("nodes.h5.*"))) == 2


DENIED = """
import os, resource, signal, sys, numpy as np, hpccoll, hpccoll.io
world, path = hpccoll.init(verbose=0), sys.argv[1]
rows = np.full(1 << 16, world.rank)
hpccoll.io.save(path, {"rows": rows}, attrs={"step": 1}, mpi_io=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for denied in range(world.size):
    for what in ("folder", "space"):
        at = os.path.join(os.path.dirname(path), "none", "c.h5") if what == "folder" and world.rank == denied else path
        if what == "space" and world.rank == denied:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, resource.RLIM_INFINITY))
        try:
            hpccoll.io.save(at, {"rows": rows}, attrs={"step": 2}, mpi_io=True)
            said = "saved"
        except hpccoll.io.CheckpointError as error:
            said = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        everybody = world.allgather_object(said)
        assert set(everybody) == {everybody[0]} and f"rank {denied} (host " in said, everybody
        reason = "No such file" if what == "folder" else "write data" if denied else "File too large"
        assert reason in said, said
assert hpccoll.io.attributes(path) == {"step": 1} and os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
assert hpccoll.io.load(path, "rows", offset=(0,), shape=(3 << 16,)).sum() == 3 << 16
print("done")
"""


@needs_mpi
@pytest.mark.slow  # h5py's wheels have no MPI
def test_mpi_io_that_fails_on_one_rank_fails_on_all_and_leaves_the_one_before(tmp_path):
    assert run(DENIED, tmp_path / "c.h5").count("done") == 3


def test_ranks_read_one_version_of_one_file(threads, tmp_path, monkeypatch):
    """The file of one rank, whose values are written without MPI: it has no files beside it whose names could tell."""

    def write_values(file, _comm, _rank, parts, _layout):
        with h5py.File(file, "r+", libver=hdf5.FORMAT) as out:
            out["u"][...] = parts["u"]

    monkeypatch.setattr(writing, "_agree_on_driver", lambda *_: True)
    monkeypatch.setattr(writing, "_communicator", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(writing, "_write_values", write_values)
    path, ended, savers, readers = tmp_path / "c.h5", threading.Event(), threads(1), threads(2)

    def save(value):
        arrays, attrs = {"u": np.full(64, value)}, {"value": value}
        testing.run(savers, lambda world: io.save(path, arrays, attrs=attrs, world=world))

    def replace():
        for value in range(2, 82):
            save(value)
        ended.set()

    save(1)
    saver = threading.Thread(target=replace)
    saver.start()
    while not ended.is_set():
        parts = testing.run(readers, lambda world: io.load(path, "u", world=world))
        assert len(set(np.concatenate(parts).tolist())) == 1, parts
        said = testing.run(readers, lambda world: io.attributes(path, world=world))
        assert said[0] == said[1], said
    saver.join()
    assert [file.name for file in tmp_path.iterdir()] == ["c.h5"]


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 0), (2, 3, 5), (1, 9), (4, 1, 2)])
@pytest.mark.parametrize("most", [1, 8, 24, 25, 1000])
def test_a_part_is_written_in_pieces_that_cover_it(shape, most):
    """HDF5 1.10 refuses a write by MPI of more bytes than an int counts."""
    covered = np.zeros(shape, np.int64)
    for piece in pieces(shape, 8, most):
        assert 0 < covered[piece].nbytes <= max(8, most)
        covered[piece] += 1
    assert (covered == 1).all()


def test_mpi_io_without_mpi_is_refused_on_all_ranks(threads, tmp_path):
    def program(world):
        u = np.ones(2)
        with pytest.raises(hpccoll.UnsupportedError, match="rank 0 has no MPI driver: its World is not made of an MPI"):
            io.save(tmp_path / "c.h5", {"u": u}, mpi_io=True, world=world)
        with pytest.raises(hpccoll.MismatchError, match="mpi_io is True on rank 0 and None on rank 1"):
            io.save(tmp_path / "c.h5", {"u": u}, mpi_io=None if world.rank else True, world=world)

    testing.run(threads(2), program)
