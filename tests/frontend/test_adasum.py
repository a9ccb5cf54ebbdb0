# SPDX-License-Identifier: Apache-2.0
"""Adasum beside its definition in NumPy: on threads here, and under MPI as an operation of front ends."""

import gc
import time
import warnings
import weakref

import numpy as np
import pytest

import hpccoll
import hpccoll.horovod as hvd
from hpccoll import testing
from hpccoll.frontend import adasum
from hpccoll.net import Drivers


def defined(vectors: list[np.ndarray]) -> np.ndarray:
    """The definition, pair by pair, in float64."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    a, b = defined(vectors[:half]), defined(vectors[half:])
    aa, bb, ab = a.ravel() @ a.ravel(), b.ravel() @ b.ravel(), a.ravel() @ b.ravel()
    return a * (1 - (ab / (2 * aa) if aa else 0)) + b * (1 - (ab / (2 * bb) if bb else 0))


def vectors(n: int, shape: tuple[int, ...], scale: float = 1.0) -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    return [scale * generator.standard_normal(shape) for _ in range(n)]


def test_definition():
    a, b = np.array([3.0, 0]), np.array([0, 2.0])
    np.testing.assert_array_equal(defined([a, b]), a + b)  # orthogonal: the sum
    np.testing.assert_array_equal(defined([a, a]), a)  # parallel: the mean


@pytest.mark.parametrize("nodes", ["1", "2", "1+1", "4", "2+2"])
def test_against_the_definition(nodes):
    n = sum(map(int, nodes.split("+")))
    cases = [(shape, dtype) for shape in ((), (1,), (3,), (17, 5), (5000,)) for dtype in (np.float32, np.float64)]

    def program(world: hpccoll.World) -> None:
        order = np.random.default_rng(world.rank).permutation(len(cases))
        begun = {}
        for i in order:
            shape, dtype = cases[i]
            x = vectors(n, shape)[world.rank].astype(dtype)
            begun[i] = adasum.begin(x, f"case {i}", world)
        for i in reversed(order):
            shape, dtype = cases[i]
            got = begun[i].wait()
            assert begun[i].done()
            assert (got.shape, got.dtype) == (shape, dtype)
            tolerance = 1e-5 if dtype == np.float32 else 1e-12
            np.testing.assert_allclose(got, defined(vectors(n, shape)), rtol=tolerance, atol=tolerance)

    testing.run(testing.threads(n, nodes=nodes if "+" in nodes else ""), program)


def test_without_a_name_after_a_join():
    """A rank that had joined does not know what the others have called meanwhile."""

    def program(world: hpccoll.World) -> None:
        for _ in range(world.rank):
            adasum.begin(np.ones(3), None, world).wait()
        world.join()
        got = adasum.begin(np.eye(2)[world.rank], None, world).wait()
        np.testing.assert_array_equal(got, np.ones(2))  # orthogonal vectors are added

    testing.run(testing.threads(2), program)


def test_zeros_and_extremes():
    """A zero vector is added as it is; squares that float32 cannot hold are summed in float64."""

    def program(world: hpccoll.World) -> None:
        for scale in (0.0, 1e-30, 1e30):
            inputs = vectors(2, (9,), scale)
            if world.rank == 0:
                inputs[0] = np.zeros(9)
            got = adasum.begin(inputs[world.rank].astype(np.float32), None, world).wait()
            np.testing.assert_allclose(got, defined([np.zeros(9), inputs[1]]), rtol=1e-6)

    testing.run(testing.threads(2), program)


def test_many_without_names_at_once():
    """Some share an entry of the log; ranks wait for them in different orders. Orthogonal vectors are added."""

    def program(world: hpccoll.World) -> None:
        for _ in range(10):
            begun = [adasum.begin(k * np.eye(2)[world.rank], None, world) for k in range(8)]
            for k in sorted(range(8), reverse=world.rank == 1):
                assert begun[k].wait().tolist() == [k, k]

    testing.run(testing.threads(2), program)


def test_without_a_name_nothing_is_kept():
    def program(world: hpccoll.World) -> None:
        procedure = adasum.begin(np.ones(1000), None, world)
        first, limit = weakref.ref(procedure._first), time.monotonic() + 20
        procedure.wait()
        del procedure
        while first() is not None:  # its other thread may still be in its last step
            assert time.monotonic() < limit, "the request, which has the arrays, is kept"
            gc.collect()
            time.sleep(0.01)

    testing.run(testing.threads(2), program)


def test_other_numbers_of_ranks_are_refused():
    def program(world: hpccoll.World) -> None:
        with pytest.raises(NotImplementedError, match="a power of two of ranks, the process set has 3"):
            adasum.begin(np.ones(3), None, world)

    testing.run(testing.threads(3), program)


def test_where_the_net_allows_one_thread():
    """Then it is finished on return."""

    def program(world: hpccoll.World) -> None:
        procedure = adasum.begin(vectors(2, (7,))[world.rank], "x", world)
        assert procedure.done()
        np.testing.assert_allclose(procedure.wait(), defined(vectors(2, (7,))))

    testing.make_and_run(2, program, nodes="1+1", drivers=Drivers.MAKER)


@pytest.mark.mpi(min_size=1)
@pytest.mark.usefixtures("job")
def test_of_tensors(front, ranks):
    n, me, ops = ranks.size(), ranks.rank(), front.operations
    how = {"op": hvd.Adasum, "process_set": ranks}
    if n & (n - 1):
        with pytest.raises(NotImplementedError):
            ops.allreduce(front.tensor(np.ones(3)), **how)
        return
    for dtype, tolerance in (("float16", 2e-3), ("bfloat16", 2e-2), ("float32", 1e-5), ("float64", 1e-12)):
        if dtype not in front.dtypes:
            continue
        tensors = [front.tensor(one, dtype) for one in vectors(n, (6, 7))]
        want = defined([front.array(one).astype(np.float64) for one in tensors])
        mine = tensors[me]
        both = ops.grouped_allreduce([mine, mine], name="two", **how)
        one = ops.allreduce(mine, **how)
        assert ops.allreduce_(mine, **how) is mine
        for got in (*both, one, mine):
            assert front.adapter.dtype(got) == dtype
            np.testing.assert_allclose(front.array(got), want, rtol=tolerance, atol=tolerance)
    with pytest.raises(ValueError, match="counts: Adasum of"):
        ops.allreduce(front.tensor(np.ones(3), "int32"), name="counts", **how)


def test_the_error_of_a_dropped_handle_is_told():
    def program(world: hpccoll.World) -> None:
        adasum.begin(np.ones(4 + 2 * world.rank), "lost", world)
        while not world.allreduce(len(seen) == world.size, hpccoll.MIN):
            pass

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        testing.run(testing.threads(2), program)
    assert sorted(str(one.message).split(": ")[0] for one in seen) == ["rank 0", "rank 1"]
    assert all("MismatchError: alltoall 'adasum.lost.shares': rank 0 has" in str(one.message) for one in seen)
