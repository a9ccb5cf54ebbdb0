# SPDX-License-Identifier: Apache-2.0
"""Arrays of dtypes that no reduction knows: structures, long doubles, dates, texts. They move as bytes."""

import numpy as np
import pytest

import hpccoll
from hpccoll import arrays, testing

PARTICLE = np.dtype([("id", "i4"), ("x", "f8", 3), ("charge", "i1")], align=True)
DTYPES = [
    PARTICLE,
    np.dtype(np.longdouble),
    np.dtype(np.clongdouble),
    np.dtype("M8[s]"),
    np.dtype("U5"),
    np.dtype(">f8"),
]


def values(dtype, rank, shape):
    whole = np.random.default_rng([rank, *shape]).integers(0, 100, shape)
    if dtype.names is None:
        return whole.astype(dtype)
    x = np.zeros(shape, dtype)
    x["id"], x["charge"] = whole, whole % 7
    x["x"] = whole[..., None] + np.arange(3)
    return x


def same(got, want):
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert (got == want).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whatever_does_not_reduce(everywhere, dtype):
    def program(world):
        rank, size = world.rank, world.size
        rows = [values(dtype, r, (r + 1, 4)) for r in range(size)]
        same(world.allgather(rows[rank]), np.concatenate(rows, dtype=dtype))
        root = size - 1
        same(world.broadcast(rows[0] if rank == 0 else np.empty_like(rows[0]), 0), rows[0])
        gathered = world.gather(rows[rank], root)
        if rank == root:
            same(gathered, np.concatenate(rows, dtype=dtype))
        parts = values(dtype, 99, (2 * size, 3))
        same(world.scatter(parts if rank == root else parts[:0], root), parts[2 * rank : 2 * rank + 2])
        got, counts = world.alltoall(values(dtype, rank, (size, 2)))
        same(got, np.concatenate([values(dtype, r, (size, 2))[rank : rank + 1] for r in range(size)], dtype=dtype))
        assert counts.tolist() == [1] * size
        strided = np.zeros((2, 2 * size), dtype)
        world.recv_async(strided[1, ::2], (rank - 1) % size)
        world.send(values(dtype, rank, (size,)), (rank + 1) % size)
        world.barrier()

    everywhere(program)


def test_outputs_and_arrays_without_dimensions(everywhere):
    def program(world):
        one = values(PARTICLE, world.rank, (1,))[0]
        everybody = np.concatenate([values(PARTICLE, r, (1,)) for r in range(world.size)])
        same(world.allgather(np.array(one)), everybody)
        x = np.array(one).copy()  # NumPy's array shares memory with the element
        assert world.broadcast(x, 0, out=x) is x
        same(x, everybody[0].reshape(()))
        out = np.zeros((world.size, 2), PARTICLE)
        assert world.allgather(np.array([one]), out=out[:, 1]) is not None
        same(out[:, 1].copy(), everybody)

    everywhere(program)


def test_ranks_that_differ_in_size_are_told(everywhere):
    def program(world):
        dtype = PARTICLE if world.rank == 0 else np.dtype("V7")
        if world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match="particles"):
                world.broadcast(np.zeros(2, dtype), name="particles")

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_are_not_defined(threads, dtype):
    (world,) = threads(1)
    x = values(dtype, 0, (3,))
    for operation in (world.allreduce, world.reduce, world.scan, world.exscan, world.reducescatter):
        said = (
            r"byte order: use x\.astype\(.<f8.\)"
            if dtype == ">f8"
            else f"{operation.__name__} of dtype .* is not defined, which moves as"
        )
        with pytest.raises(hpccoll.UnsupportedError, match=said):
            operation(x)
    with pytest.raises(hpccoll.UnsupportedError, match="holds Python objects: use broadcast_object"):
        world.broadcast(np.array([None, 1]))


SWAPPED = (np.dtype([("a", "i4"), ("b", "f4")]), np.dtype([("b", "f4"), ("a", "i4")]))
ALIKE = [  # of one size: the texts of both are in the error
    (np.dtype("M8[s]"), np.dtype("M8[ms]"), "<M8[s]", "<M8[ms]"),
    (np.dtype(">i4"), np.dtype(">f4"), ">i4", ">f4"),
    (np.dtype(">i4"), np.dtype("i4"), ">i4", "int32"),
    (np.dtype("S12"), np.dtype("U3"), "|S12", "<U3"),
    (*SWAPPED, "{'a': <i4, 'b': <f4}", "{'b': <f4, 'a': <i4}"),
    (np.dtype("V7"), np.dtype("u1"), "|V7", "uint8"),
]
FORMS = {
    "broadcast": lambda x, w: w.broadcast(x, 0),
    "broadcast into x": lambda x, w: w.broadcast_async(x, 0, name="b", out=x).wait(),
    "allgather": lambda x, w: w.allgather(x),
    "allgather_async": lambda x, w: w.allgather_async(x, name="a").wait(),
    "gather": lambda x, w: w.gather(x, 0),
    "scatter": lambda x, w: w.scatter(x, 0),
    "alltoall": lambda x, w: w.alltoall(x),
    "broadcast_init": lambda x, w: w.broadcast_init(x, 0),
    "allgather_init": lambda x, w: w.allgather_init(x),
    "alltoall_init": lambda x, w: w.alltoall_init(x),
}


@pytest.mark.parametrize(("one", "other", "its", "others"), ALIKE, ids=str)
def test_ranks_that_differ_in_type_are_told(threads, one, other, its, others):
    def program(world):
        said = []
        for form, call in FORMS.items():
            dtype, n = (one, 2) if world.rank == 0 else (other, 2)
            shape = (n, 7) if one.itemsize == 7 and dtype == np.uint8 else (n,)
            x = np.zeros(shape, dtype)
            with pytest.raises(hpccoll.MismatchError, match=r"(dtype|tensors|type) differs\)") as raised:
                call(x, world)
            said.append(f"{form}: {raised.value}")
            assert its in said[-1] and others in said[-1]
            assert x.tobytes() == bytes(x.nbytes)
        return said

    assert len(set(map(str, testing.run(threads(2), program)))) == 1


def test_the_same_type_in_other_words_is_the_same():
    """Titles, metadata and alignment are not compared; offsets are."""
    plain = np.dtype([("a", "i4"), ("b", "f8")])
    titled = np.dtype([(("a title", "a"), "i4"), ("b", np.dtype("f8", metadata={"unit": "m"}))])
    padded = np.dtype([("a", "i4"), ("b", "f8")], align=True)
    one, two, three = (arrays.type_name(dtype, 48) for dtype in (plain, titled, padded))
    assert one == two == b"{'a': <i4, 'b': <f8}"
    assert three == b"{'a': <i4, 'b': <f8 at 8}"
    assert (
        arrays.type_name(np.dtype({"names": ["a"], "formats": ["i4"], "itemsize": 9}), 48) == b"{'a': <i4} in 9 bytes"
    )
    assert arrays.type_name(np.dtype([("x", "f4", (2, 3))]), 48) == b"{'x': (2, 3)<f4}"
    long = [arrays.type_name(np.dtype([(f"field{i}", "i4") for i in range(n)]), 48) for n in (50, 51)]
    assert long[0] != long[1] and {len(text) for text in long} == {48}


def test_objects_are_no_arrays_of_bytes(threads):
    def program(world):
        zero = world.rank == 0
        with pytest.raises(hpccoll.MismatchError, match=r"uint8\[\*\] of a pickle, rank 1 has uint8\[\*\]"):
            world.allgather_object({}) if zero else world.allgather(np.zeros(9, "u1"))
        if zero:
            world.send(np.zeros(9, np.uint8), 1)
            world.send_object("next", 1)
        else:
            with pytest.raises(hpccoll.MismatchError, match="has sent uint8 with tag 0, the receive is of a pickle"):
                world.recv_object(0)
            assert world.recv_object(0) == "next"

    testing.run(threads(2), program)


RECEIVES = {
    "recv": lambda x, w: w.recv(x, 0, tag=5),
    "recv_async": lambda x, w: w.recv_async(x, 0, tag=5).wait(),
    "sendrecv": lambda x, w: w.sendrecv(x, hpccoll.PROC_NULL, x, 0, recvtag=5),
    "recv_init": lambda x, w: w.recv_init(x, 0, tag=5)(),
}


@pytest.mark.parametrize("rows", [2, 3000])  # whole at once, and when it is received
@pytest.mark.parametrize(
    ("one", "other", "its", "others"), [*ALIKE, (np.dtype("f4"), np.dtype("i4"), "float32", "int32")]
)
def test_a_receive_of_another_type(threads, one, other, its, others, rows):
    def program(world):
        for receive in RECEIVES.values():
            if world.rank == 0:
                world.send(np.ones(rows, "i1").astype(one), 1, tag=5)
                world.send(np.full(rows, 7.0), 1, tag=5)
                continue
            x = np.zeros(rows * one.itemsize // other.itemsize, other)
            with pytest.raises(hpccoll.MismatchError, match="rank 0") as raised:
                receive(x, world)
            sent = its if len(its) <= 8 else "a type whose text has hash "
            assert f"has sent {sent}" in str(raised.value)
            assert f" with tag 5, the receive is of {others}" in str(raised.value)
            assert x.tobytes() == bytes(x.nbytes)
            y = np.zeros(rows)
            world.recv(y, 0, tag=5)
            assert (y == 7).all()

    testing.run(threads(2), program)


def test_a_bytearray_receives_any_type(threads):
    def program(world):
        if world.rank == 0:
            world.send(np.array([1.5, 2.5]), 1)
            world.send(bytes(4), 1)
            world.send(np.arange(2.0), 1)
            return
        memory, x, y = bytearray(16), np.ones(1, np.int32), bytearray(16)
        world.recv(memory, 0)
        world.recv(x, 0)
        world.recv_init(y, 0)()
        assert (np.frombuffer(memory).tolist(), x.tolist(), np.frombuffer(y).tolist()) == ([1.5, 2.5], [0], [0, 1])

    testing.run(threads(2), program)
