# SPDX-License-Identifier: Apache-2.0
"""Ranks that have the calls of a program in other orders: wherever they stand, none waits for memory of another one.

What must come out is computed by NumPy. Without an order of the program's steps the ranks stand still.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.timeout(120), pytest.mark.slow]


def in_own_order(calls, *arrays):
    """Make the calls of a table, every second rank from behind; return the results in the order of the table."""
    names = list(calls) if hvd.rank() % 2 == 0 else list(reversed(calls))
    made = {name: calls[name](*arrays) for name in names}
    return tuple(made[name] for name in calls)


def some_calls():
    """Calls whose results are smaller than their arrays, or larger, or empty on one rank alone."""
    size, rank = hvd.size(), hvd.rank()
    rows = [2 * other for other in range(size)]
    return {
        "empty": lambda x: hvd.reduce(x[:, :0], op=hvd.Sum, root_rank=0, name="empty") is None,
        "share": lambda x: hvd.reducescatter(jnp.tile(x, (2, 20)), hvd.Sum, name="share")[:, :3],
        "exchange": lambda x: hvd.alltoall(x[:, :1] * 2, name="exchange"),
        "rows": lambda x: hvd.allgather(x[: rows[rank]] * 3, rows=rows, name="rows"),
        "total": lambda x: hvd.allreduce(x * 4, hvd.Sum, name="total"),
    }


def expected(turn):
    size, rank = hvd.size(), hvd.rank()
    each = [np.arange(6.0 * size).reshape(-1, 3) + other + turn for other in range(size)]
    both, rows = np.tile(sum(each), (2, 1)), 2 * size
    return (
        rank != 0,
        np.array_split(both, size)[rank],
        np.concatenate([one[2 * rank : 2 * rank + 2, :1] * 2 for one in each]),
        np.concatenate([one[: min(2 * other, rows)] * 3 for other, one in enumerate(each)]),
        sum(each) * 4,
    )


def body(x):
    return in_own_order(some_calls(), x)


def twice(x):
    return lax.fori_loop(0, 2, lambda turn, _: body(x + turn), jax.tree.map(jnp.zeros_like, jax.eval_shape(body, x)))


def until(x):
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(body, x))
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, body(x + c[0])), (0, zeros))[1]


PLACES = {
    "the program": lambda x: (body(x), 0),
    "a nested jit": lambda x: (jax.jit(body)(x), 0),
    "a checkpoint": lambda x: (jax.checkpoint(body)(x), 0),
    "a scan": lambda x: (
        jax.tree.map(lambda y: y[1], lax.scan(lambda c, y: (c, body(y)), 0, jnp.stack([x, x + 1]))[1]),
        1,
    ),
    "a while loop": lambda x: (until(x), 1),
    "a fori loop": lambda x: (twice(x), 1),
    "a branch": lambda x: (lax.cond(x[0, 0] > -1, body, body, x), 0),
}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=() if place in ("a nested jit", "a scan", "a branch") else pytest.mark.slow)
        for place in PLACES
    ],
)
def test_calls_of_one_place(place):
    turns = []

    def program(x):
        results, turn = PLACES[place](x)
        turns.append(turn)
        return results

    x = jnp.arange(6.0 * hvd.size()).reshape(-1, 3) + hvd.rank()
    for _ in range(2):
        for got, want in zip(jax.jit(program)(x), expected(turns[0]), strict=True):
            np.testing.assert_array_equal(got, want)


def test_loops_and_conditions_beside_calls():
    """XLA runs them one after another, so they need one order on all ranks."""
    size = hvd.size()

    def named(name):
        return lambda x: hvd.allreduce(x, name=name)

    calls = {
        "scan": lambda x: lax.scan(lambda c, _: (named("of a scan")(c), None), x, None, length=2)[0],
        "loop": lambda x: lax.fori_loop(0, 2, lambda _, c: named("of a loop")(c), 2 * x),
        "branch": lambda x: lax.cond(x[0] > -1, jax.jit(named("of a branch")), lambda x: x, 3 * x),
        "rows": lambda x: hvd.allgather(4 * x, name="beside"),
        "share": lambda x: hvd.reducescatter(jnp.tile(5 * x, size), hvd.Sum, name="beside, shared"),
    }
    x = jnp.full(50, 1.0 + hvd.rank())
    results = jax.jit(lambda x: in_own_order(calls, x))(x)
    mean = (size + 1) / 2
    wants = mean, 2 * mean, 3 * mean, np.repeat(4 * np.arange(1.0, size + 1), 50), 5 * mean * size
    for got, want in zip(results, wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_values_of_roots_that_need_other_calls():
    """Each rank alone has the value that it broadcasts behind a sum, and those of the others at once."""
    size, rank = hvd.size(), hvd.rank()

    def program(x):
        sums = [hvd.allreduce(x + root, hvd.Sum, name=f"sum {root}") for root in range(size)]
        given = [
            jnp.tanh(jnp.outer(y, y)).sum(axis=0) if root == rank else jnp.zeros(500) for root, y in enumerate(sums)
        ]
        return [hvd.broadcast(y, root, name=f"given {root}") for root, y in enumerate(given)]

    for root, got in enumerate(jax.jit(program)(jnp.ones(500))):
        np.testing.assert_allclose(got, 500 * np.tanh(size**2 * (1.0 + root) ** 2), rtol=1e-5)


def left_out(x, calls):
    for _ in range(calls):
        x = hvd.allreduce(x, hvd.Sum, name="left out")
    return x


NESTED = {
    "a nested jit": jax.jit(left_out, static_argnums=1),
    "a loop": lambda x, calls: lax.fori_loop(0, 2, lambda _, c: left_out(c, calls), x),
    "a branch": lambda x, calls: lax.cond(x[0] > -1, lambda x: left_out(x, calls), lambda x: x, x),
    "a jit in a branch": lambda x, calls: lax.cond(
        x[0] > -1, lambda x: NESTED["a nested jit"](x, calls), lambda x: x, x
    ),
}


@pytest.mark.parametrize("place", NESTED)
def test_a_call_that_one_rank_leaves_out(place):
    """No other call takes its place: the ranks are told at the first one of this name."""
    size, mine = hvd.size(), 2 + (hvd.rank() == 0)
    if size == 1:
        return
    with pytest.raises(Exception, match=r"rank 0 has .* as one of 3 calls of its name .*number of calls differs"):
        jax.block_until_ready(jax.jit(lambda x: NESTED[place](x, mine))(jnp.ones(1)))
    turns = 2 if place == "a loop" else 1
    np.testing.assert_array_equal(jax.jit(lambda x: NESTED[place](x, 2))(jnp.ones(1)), size ** (2 * turns))
