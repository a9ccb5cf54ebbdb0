# SPDX-License-Identifier: Apache-2.0
"""Arrays of dtypes that no reduction knows: structures, long doubles, dates, texts. They move as bytes."""

import numpy as np
import pytest

import hpccoll

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
        same(hpccoll.allgather(rows[rank], world=world), np.concatenate(rows, dtype=dtype))
        root = size - 1
        same(hpccoll.broadcast(rows[0] if rank == 0 else np.empty_like(rows[0]), 0, world=world), rows[0])
        gathered = hpccoll.gather(rows[rank], root, world=world)
        if rank == root:
            same(gathered, np.concatenate(rows, dtype=dtype))
        parts = values(dtype, 99, (2 * size, 3))
        same(hpccoll.scatter(parts if rank == root else parts[:0], root, world=world), parts[2 * rank : 2 * rank + 2])
        got, counts = hpccoll.alltoall(values(dtype, rank, (size, 2)), world=world)
        same(got, np.concatenate([values(dtype, r, (size, 2))[rank : rank + 1] for r in range(size)], dtype=dtype))
        assert counts.tolist() == [1] * size
        strided = np.zeros((2, 2 * size), dtype)
        hpccoll.recv_async(strided[1, ::2], (rank - 1) % size, world=world)
        hpccoll.send(values(dtype, rank, (size,)), (rank + 1) % size, world=world)
        hpccoll.barrier(world=world)

    everywhere(program)


def test_outputs_and_arrays_without_dimensions(everywhere):
    def program(world):
        one = values(PARTICLE, world.rank, (1,))[0]
        everybody = np.concatenate([values(PARTICLE, r, (1,)) for r in range(world.size)])
        same(hpccoll.allgather(np.array(one), world=world), everybody)
        x = np.array(one).copy()  # NumPy's array shares memory with the element
        assert hpccoll.broadcast(x, 0, out=x, world=world) is x
        same(x, everybody[0].reshape(()))
        out = np.zeros((world.size, 2), PARTICLE)
        assert hpccoll.allgather(np.array([one]), out=out[:, 1], world=world) is not None
        same(out[:, 1].copy(), everybody)

    everywhere(program)


def test_ranks_that_differ_in_size_are_told(everywhere):
    def program(world):
        dtype = PARTICLE if world.rank == 0 else np.dtype("V7")
        if world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match="particles"):
                hpccoll.broadcast(np.zeros(2, dtype), name="particles", world=world)

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_are_not_defined(threads, dtype):
    (world,) = threads(1)
    x = values(dtype, 0, (3,))
    for operation in (hpccoll.allreduce, hpccoll.reduce, hpccoll.scan, hpccoll.exscan, hpccoll.reducescatter):
        said = "byte order" if dtype == ">f8" else f"{operation.__name__} of dtype .* is not defined, which moves as"
        with pytest.raises(hpccoll.UnsupportedError, match=said):
            operation(x, world=world)
    with pytest.raises(hpccoll.UnsupportedError, match="holds Python objects: use broadcast_object"):
        hpccoll.broadcast(np.array([None, 1]), world=world)
