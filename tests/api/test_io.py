# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: written by some ranks and read by others, whole whatever happens while one is written."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import testing

pytest.importorskip("h5py")
io = pytest.importorskip("hpccoll.io")
Lock = pytest.importorskip("hpccoll.io.lock").Lock
PARTICLE = np.dtype([("id", "i4"), ("x", "f8", 3)])


def particles(first, n):
    x = np.zeros(n, PARTICLE)
    x["id"] = np.arange(first, first + n)
    x["x"] = np.arange(first, first + n)[:, None] + [0.25, 0.5, 0.75]
    return x


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_restart_on_another_number_of_ranks(threads, tmp_path, before, after):
    rows = [2 * r + 1 for r in range(before)]
    total = sum(rows)
    field = np.random.default_rng(1).random((6, 4, 3))

    def write(world):
        first = sum(rows[: world.rank])
        cart = world.cart([0, 0])
        at = [np.array_split(np.arange(n), k)[c] for n, k, c in zip((6, 4), cart.dims, cart.coords, strict=True)]
        block = np.zeros((len(at[0]) + 2, len(at[1]) + 2, 3))
        block[1:-1, 1:-1] = field[np.ix_(*at)]
        arrays = {
            "particles": particles(first, rows[world.rank])[::-1][::-1],
            "field": io.Part.of_cart(cart, block, width=1),
            "none": np.zeros((0, 2), np.complex64),
            "one": np.float32(world.rank),
        }
        io.save(tmp_path / "c.h5", arrays, attrs={"step": 7, "name": "état", "dt": 0.5}, world=world)
        cart.shutdown()

    def read(world):
        got = io.load(tmp_path / "c.h5", "particles", world=world)
        want = np.array_split(particles(0, total), world.size)[world.rank]
        assert got.dtype == PARTICLE and (got == want).all()
        whole = io.load(tmp_path / "c.h5", "field", offset=(0, 0, 0), shape=(6, 4, 3), world=world)
        assert (whole == field).all()
        part = io.load(tmp_path / "c.h5", "field", offset=(world.rank, 1, 0), shape=(2, 3, 1), world=world)
        assert (part == field[world.rank : world.rank + 2, 1:, :1]).all()
        assert io.load(tmp_path / "c.h5", "none", world=world).shape == (0, 2)
        ones = io.load(tmp_path / "c.h5", "one", offset=(0,), shape=(before,), world=world)
        assert ones.tolist() == list(range(before))
        assert io.attributes(tmp_path / "c.h5", world=world) == {"step": 7, "name": "état", "dt": 0.5}

    testing.run(threads(before, nodes="2+1" if before == 3 else ""), write)
    testing.run(threads(after), read)


def test_one_set_of_files_stays(threads, tmp_path):
    (tmp_path / "c.h5.0123456789ab.node0").write_text("left by a killed job")
    (tmp_path / "c.h5.notes.txt").write_text("the user's")

    def program(world):
        for step in range(3):
            io.save(tmp_path / "c.h5", {"u": np.full(4, step)}, world=world)
            assert (io.load(tmp_path / "c.h5", "u", world=world) == step).all()

    testing.run(threads(3, nodes="2+1"), program)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert len(names) == 4 and "c.h5.notes.txt" in names, names


def test_errors_are_the_same_on_all_ranks(threads, tmp_path):
    def program(world):
        u = np.ones(3)
        with pytest.raises(io.CheckpointError, match=r"missing.h5: rank 0 \(host .*No such file"):
            io.load(tmp_path / "missing.h5", "u", world=world)
        with pytest.raises(io.CheckpointError, match=r"nowhere/c.h5.*: rank 0 .*No such file"):
            io.save(tmp_path / "nowhere" / "c.h5", {"u": u}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"different files: c0.h5 on rank 0; c1.h5 on rank"):
            io.save(tmp_path / f"c{min(world.rank, 1)}.h5", {"u": u}, world=world)
        with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has .'u'., rank 1 has .'v'."):
            io.save(tmp_path / "c.h5", {"u" if world.rank == 0 else "v": u}, world=world)
        with pytest.raises(hpccoll.MismatchError, match=r"'u' is .*float64.* on rank 0 and .*float32.* on rank 1"):
            io.save(tmp_path / "c.h5", {"u": u.astype("f4") if world.rank else u}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"the part of rank 0, \[3\] at \[4\], is not inside of"):
            io.save(tmp_path / "c.h5", {"u": io.Part(u, (4,), (6,))}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match="HDF5 has no dtype"):
            io.save(tmp_path / "c.h5", {"u": np.array(["a"])}, world=world)
        masked = np.ma.array(u, mask=world.rank == 0)
        for lossy in (masked, io.Part(masked, (3 * world.rank,), (3 * world.size,))):
            with pytest.raises(hpccoll.InvalidArgumentError, match="a masked array, and masks are not written"):
                io.save(tmp_path / "c.h5", {"u": lossy if world.rank == 0 else u}, world=world)
        io.save(tmp_path / "c.h5", {"u": u}, world=world)
        for wrong in ({"offset": (5,), "shape": (2,)}, {"offset": (0, 0), "shape": (1, 1)}, {"offset": (0,)}):
            with pytest.raises(io.CheckpointError, match="rank 0"):
                io.load(tmp_path / "c.h5", "u", **wrong, world=world)
        with pytest.raises(io.CheckpointError, match="nothing"):
            io.load(tmp_path / "c.h5", "nothing", world=world)
        world.barrier()
        if world.rank == 0:
            (part,) = tmp_path.glob("c.h5.*.node0")
            os.truncate(part, part.stat().st_size - 1)
        world.barrier()
        with pytest.raises(io.CheckpointError, match=r"node0 has \d+ bytes, not the \d+ that were written"):
            io.load(tmp_path / "c.h5", "u", world=world)
        assert world.allreduce(1) == world.size

    testing.run(threads(2), program)


def test_arguments_that_one_rank_cannot_describe_are_refused_on_all(threads, tmp_path):
    def program(world):
        u, odd = np.ones(3), world.rank == 1
        ragged = [[1, 2], [3]] if odd else [1, 2]
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"'u' of rank 1: .*inhomogeneous"):
            io.save(tmp_path / "c.h5", {"u": ragged}, world=world)
        for offset, shape in ((3, (6,)), ((0.5,), (6,)), ((0,), 6)):
            part = io.Part(u, offset, shape) if odd else io.Part(u, (0,), (6,))
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"'u' of rank 1: .*(integer|iterable)"):
                io.save(tmp_path / "c.h5", {"u": part}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"the part of rank 0, \[3, 1\] at \[0\], has other dim"):
            io.save(tmp_path / "c.h5", {"u": io.Part(u[:, None], (0,), (6,))}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match="3 of rank 0: that is no name"):
            io.save(tmp_path / "c.h5", {3: u}, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match="arrays is a list"):
            io.save(tmp_path / "c.h5", [u], world=world)
        with pytest.raises(io.CheckpointError, match="attribute of the checkpoint itself"):
            io.save(tmp_path / "c.h5", {"u": u}, attrs={"hpccoll_parts": 1}, world=world)
        io.save(tmp_path / "c.h5", {"group/u": u}, world=world)
        for name, wrong, text in (
            ("group/u", {"shape": (2,)}, "shape is .* and offset is None"),
            ("group/u", {"offset": 1, "shape": 1}, "an integer for each dimension"),
            ("group", {}, "'group' is a group of arrays: u"),
        ):
            with pytest.raises(io.CheckpointError, match=text):
                io.load(tmp_path / "c.h5", name, **wrong, world=world)

    testing.run(threads(2), program)


@pytest.mark.parametrize("character", ["%", "%%", "%b", "%d", "% ", "..", " ", "\n", "é"])
def test_names_of_files_and_arrays_may_have_any_character(threads, tmp_path, character):
    """HDF5 reads `%%` in the names of a virtual dataset as `%`, and what it then does not find as zeros."""

    def program(world):
        path, name = tmp_path / f"a{character}b.h5", f"u{character}v"
        io.save(path, {name: np.full(2, world.rank + 1.0)}, world=world)
        assert io.load(path, name, offset=(0,), shape=(6,), world=world).tolist() == [1, 1, 2, 2, 3, 3]

    testing.run(threads(3, nodes="2+1"), program)


@pytest.mark.parametrize(
    "dtype",
    [
        {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]},
        [("a", "f4"), ("b", ml_dtypes.bfloat16, (2,))],
        [("a", [("b", "U3")])],
        [("a", "M8[s]")],
    ],
    ids=["bytes of two fields", "bfloat16", "text", "date"],
)
def test_fields_that_hdf5_does_not_give_back_are_refused(threads, tmp_path, dtype):
    """HDF5 gave any bytes for fields that share some, and a field of bfloat16 became one of bytes."""

    def program(world):
        with pytest.raises(hpccoll.InvalidArgumentError, match="checkpoint: 'u' of rank 0: HDF5 has no dtype"):
            io.save(tmp_path / "c.h5", {"u": np.zeros(3, dtype)}, world=world)

    testing.run(threads(2), program)


def test_fields_come_back(threads, tmp_path):
    dtype = np.dtype([("a", "i1"), ("b", "f8", (2,)), ("c", [("re", "f4"), ("is", "?")]), ("d", "V3")], align=True)

    def program(world):
        u = np.zeros(2, dtype)
        u["a"], u["b"], u["c"]["re"], u["d"] = world.rank, [[1, 2], [3, 4]], 0.5, b"xyz"
        io.save(tmp_path / "c.h5", {"u": u}, world=world)
        found = io.load(tmp_path / "c.h5", "u", world=world)
        assert all(found[name].tolist() == u[name].tolist() for name in dtype.names)

    testing.run(threads(2), program)


def test_names_that_hdf5_would_change_are_refused_on_all_ranks(threads, tmp_path):
    def program(world):
        for name in ("", "/u", "u/", "a//u", "a/../u", ".", "u\0v", "\udce9"):
            with pytest.raises(hpccoll.InvalidArgumentError, match="of rank 0: that is no name of an array"):
                io.save(tmp_path / "c.h5", {name: np.ones(2)}, world=world)
        for name in ("", "a\0b", "\udce9", 3):
            with pytest.raises(io.CheckpointError, match=r"rank 0 .*: attrs has .*, which is no name of an attribute"):
                io.save(tmp_path / "c.h5", {"u": np.ones(2)}, attrs={name: 1}, world=world)
        for value in (None, {"a": 1}, 2**70, np.array(["a"]), "a\0b", ml_dtypes.bfloat16(1)):
            with pytest.raises(io.CheckpointError, match=r"rank 0 .*: attrs has 'odd': .*, which HDF5 does not take"):
                io.save(tmp_path / "c.h5", {"u": np.ones(2)}, attrs={"odd": value}, world=world)

    testing.run(threads(2), program)


def test_what_one_rank_alone_refuses_is_an_error_on_all(threads, tmp_path):
    """Before, that rank raised an error, and the others waited for it."""

    def program(world):
        odd, path = world.rank == 1, tmp_path / "c.h5"
        io.save(path, {"u": np.ones(2)}, world=world)
        for call, said in (
            (lambda: io.save(path, [1] if odd else {"u": np.ones(2)}, world=world), "arrays is a list"),
            (lambda: io.save(3 if odd else path, {"u": np.ones(2)}, world=world), "path is 3"),
            (lambda: io.load(f"{path}\0" if odd else path, "u", world=world), "path is '.*embedded null"),
            (lambda: io.attributes(None if odd else path, world=world), "path is None"),
        ):
            with pytest.raises(hpccoll.InvalidArgumentError, match=f"^checkpoint: rank 1: {said}"):
                call()
        cart = world.cart([2])
        for array, width in ((None, 1), (np.float64(1), 0), (np.ones(4), "a")):
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"^checkpoint: Part.of_cart on rank 1: "):
                io.Part.of_cart(cart, array if odd else np.ones(4), width if odd else 1)
        assert io.Part.of_cart(cart, np.ones(4), np.int64(1)).shape == [4]
        cart.shutdown()
        assert world.allreduce(1) == world.size

    testing.run(threads(2), program)


def test_links_are_followed(threads, tmp_path):
    """As `open` does: the files of the nodes lie beside the file, not beside the link to it."""

    def program(world):
        file, link = tmp_path / "run1" / "state.h5", tmp_path / "latest.h5"
        if world.rank == 0:
            file.parent.mkdir()
            link.symlink_to("run1/state.h5")
        world.barrier()
        for value, save, load in ((1.0, file, link), (2.0, link, file), (3.0, link, link)):
            io.save(save, {"u": np.full(1, value)}, attrs={"value": value}, world=world)
            assert io.load(load, "u", world=world).tolist() == [value]
            assert io.attributes(load, world=world)["value"] == value
        assert link.is_symlink()
        assert [entry.name for entry in tmp_path.iterdir() if entry.is_file() and not entry.is_symlink()] == []

    testing.run(threads(2), program)


def test_parts_that_overlap_are_refused_on_all_ranks(threads, tmp_path):
    """Else the order of the writes would choose the values; an empty part overlaps with none, and neighbours may touch.

    The first pair differs in rows, the second in columns alone.
    """
    whole = (4, 6)
    apart = [((0, 0), (2, 6)), ((2, 0), (2, 3)), ((2, 3), (2, 3)), ((1, 1), (0, 4))]
    rows = [((0, 0), (2, 6)), ((2, 0), (2, 3)), ((1, 3), (2, 3)), ((3, 3), (1, 3))]
    columns = [((0, 0), (2, 6)), ((2, 0), (2, 3)), ((0, 0), (0, 0)), ((2, 2), (2, 4))]

    def program(world):
        for name, places, said in (
            ("apart", apart, None),
            (
                "rows",
                rows,
                r"of rank 0, \[2, 6\] at \[0, 0\], and of rank 2, \[2, 3\] at \[1, 3\], overlap in rows 1 to 1$",
            ),
            (
                "columns",
                columns,
                r"of rank 1, \[2, 3\] at \[2, 0\], and of rank 3, \[2, 4\] at \[2, 2\], overlap in rows 2 to 3$",
            ),
        ):
            offset, shape = places[world.rank]
            parts = {name: io.Part(np.full(shape, world.rank), offset, whole)}
            if said is None:
                io.save(tmp_path / "c.h5", parts, world=world)
                continue
            with pytest.raises(hpccoll.InvalidArgumentError, match=f"^checkpoint: '{name}': the parts {said}"):
                io.save(tmp_path / "c.h5", parts, world=world)
        got = io.load(tmp_path / "c.h5", "apart", offset=(0, 0), shape=whole, world=world)
        assert got.tolist() == [[0] * 6] * 2 + [[1] * 3 + [2] * 3] * 2

    testing.run(threads(4), program)


def test_a_save_to_a_path_is_refused_while_another_one_is_under_way(threads, tmp_path):
    path = tmp_path / "c.h5"
    worlds, lock = threads(2), Lock(path)

    def save(world, step):
        io.save(path, {"u": np.full(2, step)}, world=world)

    def refused(world):
        said = rf"rank 0 .*another save to this path is under way, by process {os.getpid()} of host "
        with pytest.raises(io.CheckpointError, match=said):
            save(world, 2)
        assert io.load(path, "u", world=world).tolist() == [1, 1]

    testing.run(worlds, lambda world: save(world, 1))
    lock.take()
    testing.run(worlds, refused)
    lock.give_back()
    testing.run(worlds, lambda world: save(world, 3))
    assert testing.run(worlds, lambda world: io.load(path, "u", world=world).tolist()) == [[3, 3]] * 2
    assert not Lock(path).path.exists()


def test_of_saves_at_once_one_stays_whole(threads, tmp_path):
    """Each removed the files of the other one: both had succeeded, and nothing was left."""
    path, saved = tmp_path / "c.h5", set()
    first, second = threads(2), threads(2)

    def save(world, value):
        with contextlib.suppress(io.CheckpointError):
            io.save(path, {"u": np.full(2, value)}, world=world)
            saved.add(value)

    for turn in range(12):
        saved.clear()
        other = threading.Thread(target=testing.run, args=(second, lambda world, at=2 * turn + 1: save(world, at)))
        other.start()
        testing.run(first, lambda world, at=2 * turn: save(world, at))
        other.join()
        found = testing.run(first, lambda world: io.load(path, "u", world=world).tolist())
        assert found[0] == found[1] and saved and set(found[0]) <= saved, (turn, found, saved)


def test_what_is_read_while_another_job_saves_is_one_version(threads, tmp_path):
    """HDF5 reads a file as zeros that the save has removed meanwhile, and each rank may have seen another version."""
    path, ended = tmp_path / "c.h5", threading.Event()
    savers, readers = threads(1), threads(2)

    def save(world, value):
        io.save(path, {"u": np.full(64, value)}, attrs={"value": value}, world=world)

    def replace():
        for value in range(2, 82):
            testing.run(savers, lambda world, at=value: save(world, at))
        ended.set()

    testing.run(savers, lambda world: save(world, 1))
    saver = threading.Thread(target=replace)
    saver.start()
    while not ended.is_set():
        parts = testing.run(readers, lambda world: io.load(path, "u", world=world))
        assert len(set(np.concatenate(parts).tolist())) == 1 and parts[0][0] > 0, parts
        said = testing.run(readers, lambda world: io.attributes(path, world=world))
        assert said[0] == said[1], said
    saver.join()


def test_hdf5_1_10_reads_the_virtual_datasets(threads, tmp_path):
    """By the specification of the format, HDF5 1.10 reads hyperslabs (type 2) of version 1 or 2, HDF5 1.12 writes 3."""
    testing.run(threads(3), lambda world: io.save(tmp_path / "c.h5", {"u": np.ones(5)}, world=world))
    data = (tmp_path / "c.h5").read_bytes()
    old, new = (sum(data.count(struct.pack("<II", 2, version)) for version in versions) for versions in ((1, 2), (3,)))
    assert old >= 3 > new, (old, new)


def test_ranks_that_see_different_checkpoints_of_one_name_say_so(threads, tmp_path):
    """Each node has saved one of its own, in a folder that the others do not see."""
    for folder in ("0", "1", "2"):
        (tmp_path / folder).mkdir()
    testing.run(threads(1), lambda world: io.save(tmp_path / "0" / "c.h5", {"u": np.zeros(4)}, world=world))
    testing.run(threads(1), lambda world: io.save(tmp_path / "1" / "c.h5", {"u": np.ones(4)}, world=world))
    shutil.copytree(tmp_path / "1", tmp_path / "2", dirs_exist_ok=True)

    def program(world):
        said = (
            r"the ranks find different ones there, by their tags \w{12} on rank 0; \w{12} on ranks 1, 2: all must see"
        )
        with pytest.raises(io.CheckpointError, match=said):
            io.load(tmp_path / str(world.rank) / "c.h5", "u", world=world)

    testing.run(threads(3), program)


def test_a_folder_that_some_nodes_do_not_see_is_refused_and_the_checkpoint_before_stays(threads, tmp_path):
    """Each node has a folder of its own, as /tmp is on a cluster."""
    for node in range(2):
        (tmp_path / f"node{node}").mkdir()

    def program(world):
        shared, own = tmp_path / "node0" / "c.h5", tmp_path / f"node{world.rank // 2}" / "c.h5"
        io.save(shared, {"u": np.zeros(2)}, world=world)
        with pytest.raises(io.CheckpointError, match=r"node1 is not here: all nodes must see the folder"):
            io.save(own, {"u": np.ones(2)}, world=world)
        assert (io.load(shared, "u", world=world) == 0).all()

    testing.run(threads(3, nodes="2+1"), program)
    assert len([*tmp_path.glob("node0/*")]) == 3 and not [*tmp_path.glob("node1/*")]


def test_a_checkpoint_replaces_no_device_or_pipe(threads, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def program(world):
        with pytest.raises(io.CheckpointError, match="pipe is no file but a device, a pipe or a socket"):
            io.save(tmp_path / "pipe", {"u": np.ones(2)}, world=world)

    testing.run(threads(2), program)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"] and (tmp_path / "pipe").is_fifo()


def test_a_checkpoint_that_is_not_whole_is_read_from_the_one_before(threads, tmp_path, capfd):
    """A save whose ranks were lost behind its rename leaves two versions; all ranks agree which one they read."""
    path, lost = tmp_path / "c [1].h5", tmp_path / "lost"
    worlds, readers = threads(2, nodes="1+1"), threads(3)
    testing.run(worlds, lambda world: io.save(path, {"u": np.full(2, 1)}, attrs={"step": 1}, world=world))
    lost.mkdir()
    for file in tmp_path.glob("c*"):
        os.link(file, lost / file.name)
    testing.run(worlds, lambda world: io.save(path, {"u": np.full(2, 2)}, attrs={"step": 2}, world=world))
    os.rename(lost / path.name, tmp_path / f"{path.name}.0123456789ab.before")
    for file in lost.iterdir():
        os.link(file, tmp_path / file.name)

    def step(world):
        step = io.attributes(path, world=world)["step"]
        assert io.load(path, "u", world=world, offset=(0,), shape=(4,)).tolist() == [step] * 4
        return step

    assert testing.run(readers, step) == [2] * 3
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "beside it: 3 files" in said and "the next one that succeeds removes" in said
    (part,) = (f for f in tmp_path.glob("*.node1") if not (lost / f.name).exists())
    os.truncate(part, 100)
    assert testing.run(readers, step) == [1] * 3
    said = capfd.readouterr().err
    assert said.count("the checkpoint before is read") == 1 and "has 100 bytes, not the" in said, said
    testing.run(worlds, lambda world: io.save(path, {"u": np.full(2, 3)}, attrs={"step": 3}, world=world))
    assert testing.run(readers, step) == [3] * 3 and len(list(tmp_path.iterdir())) == 4
    assert capfd.readouterr().err == ""


FULL = """
import resource, signal, sys, numpy as np, hpccoll, hpccoll.io
hpccoll.init(verbose=0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))
try:
    hpccoll.io.save(sys.argv[1], {"u": np.ones(1 << 20)})
except hpccoll.io.CheckpointError as error:
    print("refused:", error)
assert hpccoll.allreduce(1) == 1
"""


def test_no_space_is_an_error_and_leaves_the_one_before(threads, tmp_path):
    path = tmp_path / "c.h5"
    (world,) = threads(1)
    io.save(path, {"u": np.arange(5)}, world=world)
    before = sorted(tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60)
    assert "refused: checkpoint" in done.stdout and "rank 0" in done.stdout, done.stdout + done.stderr
    assert sorted(Path(tmp_path).iterdir()) == before
    assert io.load(path, "u", world=world).tolist() == list(range(5))
