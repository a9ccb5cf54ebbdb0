# SPDX-License-Identifier: Apache-2.0
"""Arrays of one call that share memory: refused before anything is sent or written, or the right numbers.

An `out` may be its own input. Otherwise no `out` shares a byte with an input or another `out` of its call, but for two
cases: the library copies arrays that are not contiguous, and operations that gather rows copy an `out` over the input.
"""

from functools import partial

import numpy as np
import pytest

import hpccoll
from hpccoll import PROC_NULL, testing

N = 16
REFUSING = ("allreduce", "reduce", "broadcast", "scan", "exscan", "reducescatter")
"""Operations whose `out` may not lie over a part of the input."""
COPYING = ("allgather", "gather", "alltoall", "scatter")
GROUPED = ("allreduce", "reduce", "scan", "exscan")
ROOTED = ("reduce", "broadcast", "gather", "scatter")

FORMS = {
    "blocking": lambda world, name, *a, **k: getattr(world, name)(*a, **k),
    "async": lambda world, name, *a, **k: getattr(world, f"{name}_async")(*a, **k),
    "plan": lambda world, name, *a, **k: getattr(world, f"{name}_init")(*a, **k),
}


def root_of(name):
    return {"root": 0} if name in ROOTED else {}


def refused(call, memory, said):
    """It raises, and no byte of the memory has changed."""
    before = memory.copy()
    with pytest.raises(hpccoll.InvalidArgumentError, match=said):
        call()
    assert (memory == before).all()


def told_by_the_root(call):
    """A plan is agreed by all ranks: those that have no `out` hear of what the root refuses."""
    with pytest.raises(hpccoll.MismatchError, match="rank 0 has refused this call: InvalidArgumentError: "):
        call()


@pytest.fixture
def two(threads):
    worlds = threads(2)
    return lambda program: testing.run(worlds, program)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REFUSING)
def test_an_out_over_a_part_of_the_input_is_refused(two, name, form):
    def program(world):
        memory = np.arange(3.0 * N)
        x = memory[N : 2 * N]
        n = N // 2 if name == "reducescatter" else N
        requests = world.stats()["requests"]
        for shift in (-1, 1, 1 - n, N - 1):
            out = memory[N + shift :][:n]
            call = partial(FORMS[form], world, name, x, out=out, **root_of(name))
            if name != "reduce" or world.rank == 0:
                refused(call, memory, "overlaps")
            elif form == "plan":
                told_by_the_root(call)
        assert form == "plan" or world.stats()["requests"] == requests

    two(program)


GROUPS = {
    "another's x": lambda m: ([m[:8], m[8:16]], [m[16:24], m[7:15]]),
    "its own x, not quite": lambda m: ([m[:8], m[8:16]], [m[1:9], m[24:32]]),
    "another's out": lambda m: ([m[:8], m[8:16]], [m[16:24], m[23:31]]),
    "the same out": lambda m: ([m[:8], m[8:16]], [m[16:24], m[16:24]]),
    "the same array, in place": lambda m: ([m[:8], m[:8]], [m[:8], m[:8]]),
    "strided outs": lambda m: ([m[:8], m[8:16]], [m[16:32:2], m[18:34:2]]),
    "the same strided out": lambda m: ([m[:8], m[8:16]], [m[16:32:2], m[16:32:2]]),
    "a strided out and a whole one": lambda m: ([m[:8], m[8:16]], [m[16:24], m[17:33:2]]),
    "a strided out, backwards": lambda m: ([m[:8], m[8:16]], [m[16:24], m[30:14:-2]]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", GROUPS)
def test_the_outs_of_a_group_lie_apart(two, group, form):
    def program(world):
        for name in GROUPED if form != "plan" else GROUPED[:2]:
            memory = np.arange(48.0)
            x, out = GROUPS[group](memory)
            call = partial(FORMS[form], world, name, x, out=out, **root_of(name))
            if name != "reduce" or world.rank == 0:
                refused(call, memory, r"array [01] of the group shares memory with another one's out")
            elif form == "plan":
                told_by_the_root(call)

    two(program)


def test_outs_of_a_group_that_interleave_share_nothing(two):
    def program(world):
        table = np.zeros((8, 3))
        x = [np.full(8, float(world.rank + column)) for column in range(3)]
        world.allreduce(x, out=[table[:, 0], table[:, 1], table[::-1, 2]])
        assert (table == [1, 3, 5]).all()

    two(program)


@pytest.mark.parametrize("name", COPYING)
def test_an_out_of_rows_may_lie_anywhere(two, name):
    def program(world):
        p, me = world.size, world.rank
        whole = np.arange(8.0) + 10 * me
        parts = [np.arange(8.0) + 10 * r for r in range(p)]
        wanted = {
            "allgather": np.concatenate(parts), "gather": np.concatenate(parts),
            "alltoall": np.concatenate([part[4 * me : 4 * me + 4] for part in parts]),
            "scatter": parts[0][4 * me : 4 * me + 4],
        }[name]  # fmt: skip
        for form in ("blocking", "async"):
            for shift in (-3, -1, 0, 1, 3):
                memory = np.zeros(40)
                x, out = memory[12:20], memory[12 + shift :][: len(wanted)]
                x[:] = whole
                result = FORMS[form](world, name, x, out=out, **root_of(name))
                if form == "async":
                    result.wait()
                if name != "gather" or me == 0:
                    assert (out == wanted).all(), (form, shift)

    two(program)


# ---- messages ---------------------------------------------------------------------------------------------------


SIZES = (1, 8, 1000, 9000, 200_000)


@pytest.mark.parametrize("n", SIZES)
def test_sendrecv_over_its_own_array_is_refused(two, n):
    """With itself as the partner, too: MPI_Sendrecv_replace is another call."""

    def program(world):
        memory = np.arange(3.0 * n) + world.rank
        x = memory[n : 2 * n]
        for partner in (1 - world.rank, world.rank):
            for shift in {0, 1 - n, -1 if n > 1 else 0, n - 1}:
                out = memory[n + shift :][:n]
                refused(
                    lambda out=out, partner=partner: world.sendrecv(x, partner, out, partner),
                    memory, "x and out of sendrecv share memory",
                )  # fmt: skip
        refused(lambda: world.sendrecv(x, 1 - world.rank, x[:1]), memory, "x and out")  # any source
        beside = memory[2 * n :]
        world.sendrecv(x, 1 - world.rank, beside, 1 - world.rank)
        assert (beside == x - world.rank + 1 - world.rank).all()

    two(program)


def test_sendrecv_of_no_element_shares_no_memory(two):
    def program(world):
        x, other = np.arange(5.0), 1 - world.rank
        status = hpccoll.Status()
        world.sendrecv(x[2:2], other, x, other, status=status)
        world.sendrecv(x, other, x[2:2], hpccoll.PROC_NULL)
        got = np.zeros(5)
        world.recv(got, other)
        assert status.nbytes == 0 and (x == np.arange(5)).all() and (got == x).all()

    two(program)


def test_sendrecv_with_no_rank_on_one_side_may_have_one_array(two):
    def program(world):
        x = np.full(9000, float(world.rank))
        if world.rank == 0:
            assert world.sendrecv(x, 1, x, PROC_NULL) == PROC_NULL
        else:
            assert world.sendrecv(x, PROC_NULL, x, 0) == 0
        assert world.sendrecv(x, PROC_NULL, x, PROC_NULL) == PROC_NULL
        assert (x == 0).all()

    two(program)


def test_plans_with_no_rank_share_no_memory(two):
    def program(world):
        x = np.full(5, float(world.rank))
        one_way = [world.send_init(x, 1), world.recv_init(x, PROC_NULL)]
        plans = one_way if world.rank == 0 else [world.send_init(x, PROC_NULL), world.recv_init(x, 0)]
        for plan in plans:
            plan.start()
        hpccoll.wait_all(plans)
        assert (x == 0).all()

    two(program)


@pytest.mark.parametrize("n", SIZES)
def test_sendrecv_of_what_is_not_contiguous_has_a_copy(two, n):
    """Columns of one table interleave; an array that is sent backwards is a copy."""

    def program(world):
        other = 1 - world.rank
        table = np.arange(4.0 * n).reshape(n, 4) + world.rank * 0.5
        wanted = table[:, 1] - world.rank * 0.5 + other * 0.5
        world.sendrecv(table[:, 1], other, table[:, 3], other)
        assert (table[:, 3] == wanted).all()
        line = np.arange(2.0 * n) + world.rank * 0.5
        wanted = (line - world.rank * 0.5 + other * 0.5)[::-1].copy()
        world.sendrecv(line[::-1], other, line, other)
        assert (line == wanted).all()

    two(program)
