# SPDX-License-Identifier: Apache-2.0
"""Calls that share a name or a line in one program, messages in their order, and results that one rank does not use.

Rank 0 computes for a while before its first value is there, the others before their second one: so XLA begins the two
calls of a program in opposite orders.
"""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.interpreters import pxla

import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.timeout(120), pytest.mark.slow]


def late(x, here):
    """The same value, after a while of computing on the ranks that say so."""
    work = lax.fori_loop(0, 60 if here else 0, lambda _, a: jnp.tanh(a @ a), jnp.eye(120) * x.ravel()[0])
    return x + 0 * work[0, 0]


def pair(x):
    """Two values, which the ranks have in opposite orders."""
    return late(x, hvd.rank() == 0), late(10 * x, hvd.rank() != 0)


def equal_pair(x):
    """Two values for loops and conditions, which XLA runs in the order of a program that is the same on all ranks."""
    return x, 10 * x


def total(x):
    return hvd.allreduce(x, hvd.Sum)


nested = jax.jit(total)
kept = jax.checkpoint(total)


@jax.custom_vjp
def ruled(x):
    return total(x)


ruled.defvjp(lambda x: (total(x), None), lambda _, ct: (total(ct),))


def looped(x):
    return lax.scan(lambda c, _: (total(c) / hvd.size(), None), x, None, length=3)[0] * hvd.size()


def counted(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, total(c[1]) / hvd.size()), (0, x))[1] * hvd.size()


def chosen(x):
    return lax.cond(x[0] > -1, total, lambda x: x, x)


TWICE = {
    "a function": lambda a, b: (total(a), total(b)),
    "a nested jit": lambda a, b: (nested(a), nested(b)),
    "a jit in a jit": lambda a, b: (jax.jit(nested)(a), nested(b)),
    "a checkpoint": lambda a, b: (kept(a), kept(b)),
    "a custom rule": lambda a, b: (ruled(a), ruled(b)),
    "a scan": lambda a, b: (looped(a), looped(b)),
    "a while loop": lambda a, b: (counted(a), counted(b)),
    "a condition": lambda a, b: (chosen(a), chosen(b)),
    "a batch": lambda a, b: (jax.vmap(nested)(a), jax.vmap(nested)(b)),
    "one name": lambda a, b: tuple(hvd.allreduce(x, hvd.Sum, name="twice") for x in (a, b)),
    "gradients": lambda a, b: tuple(hvd.allreduce_gradients({"w": x}, hvd.Sum)["w"] for x in (a, b)),
    "gradients in groups": lambda a, b: tuple(hvd.allreduce_gradients([x], hvd.Sum, groups=1)[0] for x in (a, b)),
}


STEPS = ("a scan", "a while loop", "a condition")
OTHER_SHAPES = ("a nested jit", "one name", "a scan")
"""The kinds that `make test` compiles; the others use the same code."""


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [pytest.param(kind, [3], marks=pytest.mark.slow) for kind in TWICE if kind not in OTHER_SHAPES]
    + [pytest.param(kind, [3, 1000], marks=() if kind in OTHER_SHAPES else pytest.mark.slow) for kind in TWICE],
)
def test_two_calls_of_one_place_or_name_keep_their_values(kind, shapes):
    for n in shapes:
        values = equal_pair if kind in STEPS else pair
        program = jax.jit(lambda x, values=values: TWICE[kind](*values(x)), donate_argnums=0)
        for _ in range(3):
            first, second = program(jnp.ones(n))
            np.testing.assert_array_equal(first, hvd.size())
            np.testing.assert_array_equal(second, 10 * hvd.size())


def test_a_gradient_that_is_pulled_back_twice():
    """The transpose of a broadcast sums on the root."""

    def program(x):
        _, back = jax.vjp(lambda x: hvd.broadcast(x, 0), x)
        return [back(one)[0] for one in pair(x)]

    first, second = jax.jit(program)(jnp.ones(3))
    np.testing.assert_array_equal(first, hvd.size() if hvd.rank() == 0 else 0)
    np.testing.assert_array_equal(second, 10 * hvd.size() if hvd.rank() == 0 else 0)


@pytest.mark.parametrize("how", ["grad", "grad of checkpoint", "value and grad of scan"])
def test_derivatives_of_repeated_calls(how):
    """Each rank differentiates its own copy, so the derivative of a sum over the ranks is that of a factor of 1."""
    size = hvd.size()
    function = {"grad": nested, "grad of checkpoint": kept, "value and grad of scan": looped}[how]
    factor = 1 if how != "value and grad of scan" else 1 / size**2

    def loss(x):
        a, b = equal_pair(x)
        return (function(a) ** 2).sum() + (function(b) ** 2).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.ones(3))
    np.testing.assert_allclose(value, 3 * 101 * size**2, rtol=1e-6)
    np.testing.assert_allclose(gradient, 2 * size * 101 * factor, rtol=1e-6)


def test_ranks_call_repeated_and_other_names_in_their_own_order():
    def program(x):
        a, b = equal_pair(x)
        calls = [lambda: ("repeated", nested(a), nested(b))]
        calls += [lambda i=i: (i, total_of(i, a + i)) for i in range(5)]
        if hvd.rank() % 2:
            calls.reverse()
        results = {name: rest for name, *rest in (call() for call in calls)}
        return [results[name] for name in ("repeated", *range(5))]

    def total_of(i, x):
        return hvd.allreduce(x, hvd.Sum, name=f"other {i}")

    repeated, *others = jax.jit(program)(jnp.ones(4))
    np.testing.assert_array_equal(repeated[0], hvd.size())
    np.testing.assert_array_equal(repeated[1], 10 * hvd.size())
    for i, (other,) in enumerate(others):
        np.testing.assert_array_equal(other, hvd.size() * (1 + i))


def named(x, factor=1.0):
    return hvd.allreduce(factor * x, hvd.Sum, name="of a branch")


def test_a_rank_that_makes_one_call_less_is_refused_at_the_first():
    """Which one it leaves out nobody knows: none of them is matched."""
    size, rank, x = hvd.size(), hvd.rank(), jnp.ones(1)
    if size == 1:
        return

    def program(x, calls):
        for _ in range(calls):
            x = hvd.allreduce(x, hvd.Sum, name="left out")
        return x

    for calls in (1, 2, 3):
        mine = calls + (rank == 0)
        says = rf"rank 0 has .* as one of {calls + 1} calls of its name .*number of calls differs"
        with pytest.raises(Exception, match=says):
            jax.block_until_ready(jax.jit(lambda x, mine=mine: program(x, mine))(x))
        np.testing.assert_array_equal(jax.jit(lambda x, calls=calls: program(x, calls))(x), size**calls)


def test_ranks_that_take_different_branches_share_a_name():
    """Sums as NumPy has them. The calls behind a condition have the numbers that follow, whichever branch was taken."""
    rank, size = hvd.rank(), hvd.size()
    x = jnp.full(3, rank + 1.0)

    def program(flag, x):
        first = lax.cond(flag, lambda x: named(x, 10.0), named, x)
        second = lax.cond(flag, lambda x: named(named(2 * x) / (2 * size)), lambda x: named(named(x) / size), x)
        return first, second, named(x), named(2 * x)

    factors = np.array([10.0 if r == 0 else 1.0 for r in range(size)])
    ones = np.arange(1.0, size + 1)
    for _ in range(3):
        first, second, third, fourth = jax.jit(program)(rank == 0, x)
        np.testing.assert_allclose(first, (factors * ones).sum())
        np.testing.assert_allclose(second, ((2 * ones[0] + ones[1:].sum()) * (1 / 2 + size - 1) / size), rtol=1e-6)
        np.testing.assert_allclose(third, ones.sum())
        np.testing.assert_allclose(fourth, 2 * ones.sum())


def test_loops_in_branches_beside_calls_of_their_name():
    size, x = hvd.size(), jnp.ones(2)

    def program(flag, x):
        looped = lax.cond(flag, lambda x: lax.fori_loop(0, 2, lambda _, c: named(c), x), lambda x: x, x)
        return lax.cond(flag, named, lambda x: x, x), looped, named(x)

    for got, want in zip(jax.jit(program)(True, x), (size, size**2, size), strict=True):
        np.testing.assert_array_equal(got, want)


def test_branches_that_differ_are_an_error():
    if hvd.size() == 1:
        return
    x = jnp.ones(2)
    program = jax.jit(lambda flag, x: lax.cond(flag, named, lambda x: hvd.broadcast(x, 0, name="of a branch"), x))
    with pytest.raises(Exception, match="operation differs"):
        jax.block_until_ready(program(hvd.rank() == 0, x))
    np.testing.assert_array_equal(program(True, x), hvd.size())


def test_a_name_cannot_be_one_that_a_repeated_call_gets():
    with pytest.raises(ValueError, match=r"does not end with ' \(call 2\)'"):
        hvd.allreduce(1.0, name="loss (call 2)")


# ---- messages --------------------------------------------------------------------------------------------


def neighbours():
    rank, size = hvd.rank(), hvd.size()
    return (rank + 1) % size, (rank - 1) % size


def test_messages_of_a_program_keep_their_order():
    right, left = neighbours()

    def program(x):
        return [hvd.sendrecv(one + hvd.rank(), right, left) for one in pair(x)]

    for function in (program, lambda x: jax.vmap(program)(x[None])):
        for _ in range(3):
            first, second = jax.jit(function)(jnp.ones(3))
            np.testing.assert_array_equal(first.ravel(), 1 + left)
            np.testing.assert_array_equal(second.ravel(), 10 + left)


@pytest.mark.slow
def test_messages_in_loops_and_their_derivatives_keep_their_order():
    right, left = neighbours()

    @jax.jit
    def moved(x):
        return hvd.sendrecv(x, right, left)

    def program(x):
        a, b = pair(x)
        a = lax.fori_loop(0, hvd.size(), lambda _, c: moved(c), a + hvd.rank())  # once around
        return a, moved(b + hvd.rank()), lax.scan(lambda c, _: (moved(c), c), b, None, length=2)[0]

    first, second, third = jax.jit(program)(jnp.ones(3))
    np.testing.assert_array_equal(first, 1 + hvd.rank())
    np.testing.assert_array_equal(second, 10 + left)
    np.testing.assert_array_equal(third, 10)
    gradient = jax.jit(jax.grad(lambda x: sum((moved(one) * (hvd.rank() + 1)).sum() for one in pair(x))))
    np.testing.assert_array_equal(gradient(jnp.ones(3)), 11 * (right + 1))
    again = jax.jit(jax.grad(jax.checkpoint(lambda x: (moved(jnp.sin(x)) * (hvd.rank() + 1)).sum())))
    np.testing.assert_allclose(again(jnp.ones(3)), np.cos(1) * (right + 1), rtol=1e-6)


@pytest.mark.slow
def test_a_receive_takes_any_tag_unless_told_in_the_order_of_the_sends():
    right, left = neighbours()
    tags = 5, 3, 3, 9

    def program(x):
        if hvd.size() == 1:
            return [x * factor for factor in (1, 2, 3, 4)]
        for factor, tag in enumerate(tags, 1):
            hvd.send(x * factor, right, tag=tag)
        third = hvd.recv(x, left, tag=3)  # of the second send
        first, second, fourth = (hvd.recv(late(x, factor == hvd.rank()), left) for factor in range(3))
        return first, third, second, fourth

    for function in (program, jax.jit(program)):
        for value, factor in zip(function(jnp.ones(3)), (1, 2, 3, 4), strict=True):
            np.testing.assert_array_equal(value, factor)


def test_what_one_rank_does_not_use_happens_all_the_same():
    right, left = neighbours()
    mine = hvd.rank() == 0

    @jax.jit
    def unused(x):
        return hvd.sendrecv(x, right, left), hvd.allreduce(x), hvd.broadcast(x, 0), hvd.allgather(x)

    def program(x):
        used = unused(x)
        hvd.sendrecv(x, right, left)
        lax.scan(lambda c, _: (total(c), None), x, None, length=2)
        lax.cond(x[0] > -1, total, lambda x: x, x)
        return (x, used[1]) if mine else (x,)

    np.testing.assert_array_equal(jax.jit(program)(jnp.ones(3))[-1], 1)
    loss = jax.jit(jax.grad(lambda x: hvd.alltoall(x).sum() if mine else x.sum() + 0 * hvd.alltoall(x)[0]))
    np.testing.assert_array_equal(loss(jnp.ones(hvd.size()))[:1], 1 if mine else 2)


def test_calls_outside_follow_the_programs_before_them():
    right, left = neighbours()
    if hvd.size() == 1:
        return
    x = jnp.ones(3)
    sends = jax.jit(lambda x: hvd.send(late(x, True), right))
    receives = jax.jit(lambda x: hvd.recv(late(x, True), left))
    sends(x)
    hvd.send(2 * x, right)
    first = receives(x)
    second = hvd.recv(x, left)
    np.testing.assert_array_equal(first, 1)
    np.testing.assert_array_equal(second, 2)
    named = jax.jit(lambda x: hvd.allreduce(late(x, hvd.rank() == 0), hvd.Sum, name="outside"))
    ready = jax.block_until_ready(10 * x)
    for _ in range(5):
        first, second = named(x), hvd.allreduce(ready, hvd.Sum, name="outside")
        np.testing.assert_array_equal(first, hvd.size())
        np.testing.assert_array_equal(second, 10 * hvd.size())


def test_jax_starts_a_program_without_python_unless_it_has_messages(monkeypatch):
    started, start = [], pxla.ExecuteReplicated.__call__
    monkeypatch.setattr(
        pxla.ExecuteReplicated, "__call__", lambda self, *given: started.append(self.name) or start(self, *given)
    )
    program, messages = jax.jit(lambda x: total(x)), jax.jit(lambda x: hvd.sendrecv(x, *neighbours()))
    counts = []
    for made in (program, messages):
        jax.block_until_ready(made(jnp.ones(3)))
        started.clear()
        jax.block_until_ready(made(jnp.ones(3)))
        counts.append(len(started))
    assert counts == [0, 1]


def test_a_barrier_for_effects_waits_for_programs():
    program = jax.jit(lambda x: total(late(x, True)))
    for _ in range(3):
        result = program(jnp.ones(3))
        jax.effects_barrier()
        assert result.is_ready()


def test_a_call_outside_waits_while_jax_traces():
    def object_of(x):
        return x + hvd.broadcast_object(float(hvd.rank() + 1), 0)

    program = jax.jit(lambda x: total(late(x, hvd.rank() == 0)))
    result = program(jnp.ones(3))
    np.testing.assert_array_equal(jax.jit(object_of)(jnp.ones(3)), 2)
    np.testing.assert_array_equal(result, hvd.size())


def test_a_failed_program_does_not_fail_the_next():
    if hvd.size() == 1:
        return
    right, left = neighbours()
    if hvd.rank() == hvd.size() - 1:
        hvd.send(jnp.ones(3), right)
    if hvd.rank() == 0:
        short = jax.jit(lambda x: hvd.recv(late(x, True), left))
        with pytest.raises((RuntimeError, ValueError), match="a message of 12 bytes came for a receive of 8 bytes"):
            jax.block_until_ready(short(jnp.ones(2)))
    exchanged = jax.jit(lambda x: hvd.sendrecv(late(x, True), right, left))
    for _ in range(2):
        np.testing.assert_array_equal(exchanged(jnp.full(3, 1.0 * hvd.rank())), left)


@pytest.mark.slow
def test_programs_run_in_the_order_of_their_calls():
    """Also when the second one has its values sooner, and is so small that XLA would run it at once."""
    slow = jax.jit(lambda x: late(x, True))
    program = jax.jit(lambda x: total(late(x, hvd.rank() == 0)))
    small = jax.jit(lambda x: hvd.allreduce(x, hvd.Sum, name="small"))
    for _ in range(5):
        x, y = jnp.ones(3), jnp.full(3, 10.0)
        results = [program(slow(x)), program(y), small(slow(x)), small(y)]
        for result, value in zip(results, (1, 10, 1, 10), strict=True):
            np.testing.assert_array_equal(result, value * hvd.size())


def test_threads_have_calls_of_their_own_names():
    results = {}

    def work(i):
        program = jax.jit(lambda x: [hvd.allreduce(one, hvd.Sum, name=f"thread {i}") for one in equal_pair(x)])
        results[i] = program(jnp.full(3, 1.0 + i))

    work(0)
    threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2)]
    for thread in threads:
        thread.start()
        thread.join()  # XLA runs one program at a time: other orders would wait for each other
    for i, (first, second) in results.items():
        np.testing.assert_array_equal(first, hvd.size() * (1 + i))
        np.testing.assert_array_equal(second, hvd.size() * 10 * (1 + i))


def test_calls_of_one_place_are_counted_in_each_set():
    """Ranks outside of a set do not have its calls, so that these must not count for the others."""
    if hvd.size() == 1:
        return
    first = hvd.add_process_set([0])

    def total(x, process_set):
        return hvd.allreduce(x, hvd.Sum, process_set=process_set)

    def program(x):
        own = total(x, first) if hvd.rank() == 0 else x
        return own, total(x, hvd.global_process_set)

    own, of_all = jax.jit(program)(jnp.full(2, hvd.rank() + 1.0))
    np.testing.assert_array_equal(own, hvd.rank() + 1.0)
    np.testing.assert_array_equal(of_all, hvd.size() * (hvd.size() + 1) / 2)
    hvd.remove_process_set(first)
