# SPDX-License-Identifier: Apache-2.0
"""A wrong `out` is refused before anything is sent. Where only its rows are wrong, all ranks refuse, and write nothing.

After each refusal the next right call of the same name gives the right numbers, on ranks that know nothing of it.
"""

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

X = np.arange(24.0).reshape(12, 2)
ROOTED = ("reduce", "gather", "scatter", "broadcast")
COUNTED = ("allgather", "alltoall", "gather", "scatter")
"""Operations whose result has rows that this rank alone does not know."""


def start(operation, world, out=None, x=X):
    arguments = {"root": 0} if operation in ROOTED else {}
    return getattr(world, f"{operation}_async")(x, name="x", out=out, **arguments)


def expected(operation, world):
    p, r = world.size, world.rank
    share = X[r * 12 // p : (r + 1) * 12 // p]
    return {
        "allreduce": X * p, "reduce": X * p, "broadcast": X, "allgather": np.tile(X, (p, 1)),
        "gather": np.tile(X, (p, 1)), "reducescatter": share * p, "alltoall": np.tile(share, (p, 1)),
        "scatter": share, "scan": X * (r + 1), "exscan": X * r,
    }[operation]  # fmt: skip


OPERATIONS = tuple(
    "allreduce reduce broadcast allgather gather reducescatter alltoall scatter scan exscan".split()
)  # fmt: skip


def read_only(a):
    a.flags.writeable = False
    return a


def of_one_row(a):
    return np.lib.stride_tricks.as_strided(a, a.shape, (0, a.strides[1]))


WRONG = {
    "dtype": (hpccoll.InvalidArgumentError, "out has dtype float32", lambda a: a.astype(np.float32)),
    "read-only": (hpccoll.InvalidArgumentError, "read-only", read_only),
    "bytes": (hpccoll.InvalidArgumentError, "read-only", lambda a: a.tobytes()),
    "itself": (hpccoll.InvalidArgumentError, "overlaps itself", of_one_row),
    "list": (hpccoll.InvalidArgumentError, "cannot be written", lambda a: a.tolist()),
    "columns": (hpccoll.ResultSizeError, "the result has", lambda a: np.empty((a.shape[0], 3))),
    "dimensions": (hpccoll.ResultSizeError, "the result has", lambda a: np.empty(a.size)),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_out_is_refused_at_the_call(everywhere, operation, wrong):
    kind, said, spoil = WRONG[wrong]

    def program(world):
        right = expected(operation, world)
        if world.rank == 0:  # the root, which has a result of every operation
            requests = world.stats()["requests"]
            with pytest.raises(kind, match=said):
                start(operation, world, spoil(np.zeros_like(right)))
            assert world.stats()["requests"] == requests
        out = np.zeros_like(right)
        got = start(operation, world, out).wait()
        got = got[0] if operation == "alltoall" else got
        if world.rank == 0 or operation not in ("reduce", "gather"):
            assert got is out
            np.testing.assert_array_equal(out, right)

    everywhere(program)


@pytest.mark.parametrize("operation", ["allgather", "alltoall"])
@pytest.mark.parametrize("large", [False, True])
def test_wrong_rows_of_one_out_are_one_error_on_all_ranks(everywhere, operation, large):
    """The rows of a result are known when all ranks have said theirs; nothing has been written then."""
    columns = 60_000 if large else 2

    def program(world):
        p, me = world.size, world.rank
        x = np.full((p, columns), float(me))
        for wrong in {0, p - 1}:
            out = np.full((p * p + 1 if operation == "allgather" else p + 1, columns), -1.0)
            brought = out if me == wrong else out[:-1] if me % 2 else None
            handle = getattr(world, f"{operation}_async")(x, name="rows", out=brought)
            said = rf"{operation} 'rows': rank {wrong} .*an out of {len(out)} rows, its result has {len(out) - 1}"
            for _ in range(2):  # also when it is asked again
                with pytest.raises(hpccoll.ResultSizeError, match=said):
                    handle.wait()
            assert (out == -1).all()
        again = getattr(world, operation)(x, name="rows", out=out[:-1])
        rows = [*range(p)] if operation == "alltoall" else [r for r in range(p) for _ in range(p)]
        assert (again[0] if operation == "alltoall" else again) is not x
        assert out[:-1, -1].tolist() == rows
        assert (out[-1] == -1).all()

    everywhere(program)


def test_a_wrong_out_spoils_no_other_request_of_its_batch(everywhere):
    """Small allgathers travel together; only the one with the wrong `out` ends with an error."""

    def program(world):
        p, me = world.size, world.rank
        outs = [np.full((p + (i == 3 and me == 0), 2), -1) for i in range(6)]
        handles = [world.allgather_async(np.full((1, 2), 10 * i + me), name=f"g{i}", out=outs[i]) for i in range(6)]
        for i, handle in enumerate(handles):
            if i == 3:
                with pytest.raises(hpccoll.ResultSizeError, match=r"'g3': rank 0 .*has an out"):
                    handle.wait()
                assert (outs[i] == -1).all()
            else:
                assert handle.wait()[:, 0].tolist() == [10 * i + r for r in range(p)]

    everywhere(program)


@pytest.mark.parametrize("operation", ["gather", "scatter"])
@pytest.mark.parametrize("large", [False, True])
def test_wrong_rows_at_the_root_or_for_a_part_of_it(everywhere, operation, large):
    """The root of a gather, any rank of a scatter: one error on all ranks, and nothing has been written."""
    columns = 60_000 if large else 3

    def program(world):
        p, me = world.size, world.rank
        x = np.ones((p, columns))
        rows = p * p if operation == "gather" else 1
        out = np.full((rows + 1, columns), -1.0)
        for root, wrong in {(0, 0), (p - 1, p - 1 if operation == "gather" else 0)}:
            call = getattr(world, f"{operation}_async")
            brought = out if me == wrong else out[:-1] if operation == "scatter" and me % 2 else None
            handle = call(x, root, name="r", out=brought)
            said = rf"{operation} 'r': rank {wrong} .*has an out of {rows + 1} rows, its result has {rows}"
            with pytest.raises(hpccoll.ResultSizeError, match=said):
                handle.wait()
            assert (out == -1).all()
            again = call(x, root, name="r", out=out[:-1]).wait()
            assert again is None if operation == "gather" and me != root else (out[:-1] == 1).all()
            out[:] = -1
        assert world.allreduce(1) == p

    everywhere(program)


@pytest.mark.parametrize("operation", ["allgather", "alltoall"])
def test_out_may_be_strided_and_may_hold_the_input(everywhere, operation):
    def program(world):
        p, me = world.size, world.rank
        n = p * p if operation == "allgather" else p
        rows = [r for r in range(p) for _ in range(n // p)]
        wide = np.full((n, 4), -1.0)
        x = np.full((p, 2), float(me))
        getattr(world, operation)(x, out=wide[:, ::2])
        assert wide[:, 0].tolist() == rows
        assert (wide[:, 1::2] == -1).all()
        whole = np.full((n, 2), float(me))
        x = whole[:p] if operation == "allgather" else whole  # in place
        getattr(world, operation)(x, out=whole)
        assert whole[:, 1].tolist() == rows

    everywhere(program)


def test_elements_that_interleave_without_sharing_a_byte_are_no_overlap(threads):
    def program(world):
        memory = np.zeros(16)
        woven = np.lib.stride_tricks.as_strided(memory, (3, 2), (2 * 8, 3 * 8))  # places 0 2 4 and 3 5 7
        world.allreduce(np.arange(6.0).reshape(3, 2), out=woven)
        assert woven.ravel().tolist() == [0, 2, 4, 6, 8, 10]
        shared = np.lib.stride_tricks.as_strided(memory, (3, 2), (2 * 8, 2 * 8))
        with pytest.raises(hpccoll.InvalidArgumentError, match="overlaps itself"):
            world.allreduce(np.zeros((3, 2)), out=shared)

    testing.run(threads(2), program)
