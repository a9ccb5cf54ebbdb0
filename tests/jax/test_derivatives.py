# SPDX-License-Identifier: Apache-2.0
"""The derivatives of all operations against the table of docs/gradients.md."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpccoll
import hpccoll.jax as hvd

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradient_table

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.timeout(60), pytest.mark.slow]
COLUMN = gradient_table.column("hpccoll.jax")
LINEAR = [operation for operation, formula in COLUMN.items() if formula != gradient_table.NONE]


@pytest.mark.parametrize("operation", COLUMN)
def test_derivative(operation):
    rank, size, formula = hvd.rank(), hvd.size(), COLUMN[operation]

    def loss(x):
        result = gradient_table.calls(hvd)[operation](x)
        return (result * jnp.asarray(gradient_table.weights(rank, len(result)), x.dtype)).sum()

    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        if formula == gradient_table.NONE:
            with pytest.raises((AttributeError, ValueError), match=r"no attribute|no derivative"):
                gradient(jnp.arange(1.0, size + 1))
        else:
            expected = gradient_table.expected(formula, operation, rank, size)
            np.testing.assert_allclose(gradient(jnp.arange(1.0, size + 1)), expected, rtol=1e-6)


def test_the_programs_are_those_of_the_table():
    assert set(COLUMN) == set(gradient_table.calls(hvd))


# ---- ranks that pull back in orders of their own ---------------------------------------------------------


def in_own_order(functions):
    """What two functions return, which the ranks call in opposite orders, each in a thread of its own."""
    order = range(2) if hvd.rank() % 2 == 0 else range(1, -1, -1)
    with ThreadPoolExecutor(2) as threads:
        found = {at: threads.submit(functions[at]) for at in order}
    return [found[at].result() for at in range(2)]


@pytest.mark.parametrize("operation", LINEAR)
def test_what_is_pulled_back_belongs_to_its_call(operation):
    """Outside of jit, a loss of f(x) and one of 10 * f(x), in which `f` has an operation without a name."""
    rank, size = hvd.rank(), hvd.size()
    call, x = gradient_table.calls(hvd)[operation], jnp.arange(1.0, size + 1)
    batched = [lambda x: jax.vmap(call)(x[None])[0]] if operation == "allgather" else []
    for function in (call, jax.checkpoint(call), *batched):
        pairs = [jax.vjp(function, x) for _ in range(2)]
        weights = [gradient_table.weights(rank, len(result)) * 10**i for i, (result, _) in enumerate(pairs)]
        backs = [
            lambda back=back, ct=ct: back(jnp.asarray(ct, x.dtype))[0]
            for (_, back), ct in zip(pairs, weights, strict=True)
        ]
        expected = gradient_table.expected(COLUMN[operation], operation, rank, size)
        for i, gradient in enumerate(in_own_order(backs)):
            np.testing.assert_allclose(gradient, 10**i * expected, rtol=1e-6)


def right_and_left():
    rank, size = hvd.rank(), hvd.size()
    return (rank + 1) % size, (rank - 1) % size


def with_one_name_or_tag():
    """Functions of which each call has the same name, or tag, and the derivative of the sum of what each returns.

    Rank k weights its result with k + 1.
    """
    rank, size = hvd.rank(), hvd.size()
    right, left = right_and_left()
    of_all, to_right = size * (size + 1) / 2, right + 1.0
    return {
        "name": (lambda x: hvd.allgather(x, name="pulled back"), of_all),
        "name of a broadcast": (lambda x: hvd.broadcast(x, 0, name="pulled back"), of_all if rank == 0 else 0.0),
        "tag": (lambda x: hvd.sendrecv(x, right, left), to_right),
        "tags": (lambda x: hvd.sendrecv(2 * x, right, left, tag=3), 2 * to_right),
        "tag in a checkpoint": (jax.checkpoint(lambda x: hvd.sendrecv(x, right, left)), to_right),
        "tag in a batch": (lambda x: jax.vmap(lambda x: hvd.sendrecv(x, right, left))(x[None]), to_right),
    }


def pulled_back(function, x):
    """Two pullbacks of a function, for a loss and ten times that."""

    def scaled(factor):
        result, back = jax.vjp(function, x)
        return lambda: back(jnp.ones_like(result) * factor * (hvd.rank() + 1))[0]

    return [scaled(1.0), scaled(10.0)]


@pytest.mark.slow
def test_what_is_pulled_back_belongs_to_its_call_of_one_name_or_tag():
    for kind, (function, derivative) in with_one_name_or_tag().items():
        for i, gradient in enumerate(in_own_order(pulled_back(function, jnp.ones(3)))):
            np.testing.assert_allclose(gradient, 10**i * derivative, rtol=1e-6, err_msg=kind)


def test_what_one_rank_pulls_back_in_programs_belongs_to_its_call():
    """XLA runs the programs of rank 0 one after another; the other ranks have threads, the second call first."""
    for kind, (function, derivative) in with_one_name_or_tag().items():
        own = jax.jit(function) if hvd.rank() == 0 else function
        backs = pulled_back(own, jnp.ones(3))
        with ThreadPoolExecutor(2) as threads:
            second = threads.submit(backs[1]) if hvd.rank() else None
            found = [backs[0](), second.result() if second else backs[1]()]
        for i, gradient in enumerate(found):
            np.testing.assert_allclose(gradient, 10**i * derivative, rtol=1e-6, err_msg=kind)


def test_a_rank_that_differentiates_in_a_program_hears_of_others_that_do_not():
    """Messages have one form, so they meet. Rank k weights what it has from the left with k + 1.

    The derivative of `gathered` needs no result of its call, and that of its square does.
    """
    own = jax.jit if hvd.rank() == 0 else lambda function: function
    right, left = right_and_left()

    def moved(x):
        return (hvd.sendrecv(x, right, left) * (hvd.rank() + 1)).sum()

    def gathered(x):
        return hvd.allgather(x, name="here or there").sum()

    def squared(x):
        return (hvd.allgather(x, name="here or there") ** 2).sum()

    np.testing.assert_allclose(own(jax.grad(moved))(jnp.ones(3)), right + 1.0)
    for loss, other in ((squared, jax.grad(squared)), (gathered, gathered)) if hvd.size() > 1 else ():
        function = jax.jit(jax.grad(loss)) if hvd.rank() == 0 else other
        with pytest.raises(
            Exception, match=r"'here or there': rank 0 has .* and its derivatives in the same program, r"
        ):
            jax.block_until_ready(function(jnp.ones(3)))
    np.testing.assert_allclose(own(gathered)(jnp.ones(3)), 3 * hvd.size())  # no rank differentiates


@pytest.mark.slow
def test_a_second_derivative_that_is_pulled_back_belongs_to_its_call():
    """The first derivative is 3 s x ** 2, as below; it is differentiated twice, once for ten times as much."""
    rank, size = hvd.rank(), hvd.size()
    s, right = size * (size + 1) / 2, right_and_left()[0]
    calls = {
        "allgather": (lambda x: hvd.allgather(x, name="twice"), s),
        "sendrecv": (lambda x: hvd.sendrecv(x, *right_and_left()), right + 1),
    }
    for kind, (call, weight) in calls.items():
        first = jax.grad(lambda x, call=call: ((rank + 1) * call(x) ** 3).sum())
        pairs = [jax.vjp(first, jnp.arange(1.0, 3.0)) for _ in range(2)]
        backs = [lambda back=back, i=i: back(jnp.full(2, 10.0**i))[0] for i, (_, back) in enumerate(pairs)]
        for i, gradient in enumerate(in_own_order(backs)):
            np.testing.assert_allclose(gradient, 10**i * 6 * weight * np.arange(1.0, 3.0), rtol=1e-6, err_msg=kind)


def own_program(function):
    """A program on rank 0, and none on the others."""
    return jax.jit(function) if hvd.rank() == 0 else function


@pytest.mark.parametrize("form", [lambda function: function, jax.jit, own_program], ids=["outside", "jit", "both"])
def test_a_pullback_that_is_applied_again_belongs_to_one_thread(form):
    for kind in ("name", "tag"):
        function, derivative = with_one_name_or_tag()[kind]
        result, back = jax.vjp(form(function), jnp.ones(3))
        ct = jnp.ones_like(result) * (hvd.rank() + 1)
        with ThreadPoolExecutor(1) as thread:
            found = [thread.submit(back, ct * 10**i).result()[0] for i in range(2)]
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"'ThreadPool.*' has applied .* applies it again"):
                back(ct)
        found.append(back(ct * 100)[0])  # the other thread has ended
        for i, gradient in enumerate(found):
            np.testing.assert_allclose(gradient, 10**i * derivative, rtol=1e-6, err_msg=kind)


@pytest.mark.parametrize("form", [lambda function: function, own_program], ids=["outside", "both"])
def test_ranks_hear_of_a_pullback_that_one_refuses(form):
    if hvd.size() == 1:
        return
    _, back = jax.vjp(form(lambda x: hvd.allgather(x, name="heard")), jnp.ones(3))
    ct = jnp.ones(3 * hvd.size())
    with ThreadPoolExecutor(1) as thread:
        thread.submit(back, ct).result()
        if hvd.rank() == 0:
            with pytest.raises(hpccoll.InvalidArgumentError, match="applies it again"):
                back(ct)
        else:
            with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has refused this call: .* applies it again"):
                thread.submit(back, ct).result()
        np.testing.assert_allclose(thread.submit(back, ct).result()[0], hvd.size())


def test_messages_of_a_derivative_meet_no_other_receive():
    right, left = right_and_left()
    _, back = jax.vjp(lambda x: hvd.sendrecv(x, right, left), jnp.ones(3))
    plain = np.zeros(3, np.float32)
    handle = hpccoll.recv_async(plain, right)  # of any tag
    np.testing.assert_array_equal(back(jnp.full(3, hvd.rank() + 1.0))[0], right + 1.0)
    hpccoll.send(np.full(3, 7, np.float32), left)
    handle.wait()
    np.testing.assert_array_equal(plain, 7)


def test_what_is_pushed_forward_belongs_to_its_call():
    """Each rank's tangent is its rank + 1, and ten times that: the sum over the ranks, and that of the root."""
    rank, size, x = hvd.rank(), hvd.size(), jnp.ones(3)
    sums = (lambda x: hvd.allreduce(x, hvd.Sum), size * (size + 1) / 2)
    roots = (lambda x: hvd.broadcast(x, 0), 1.0)
    neighbours = (lambda x: hvd.sendrecv(x, *right_and_left()), right_and_left()[1] + 1.0)
    for call, expected in (sums, roots, neighbours):
        pushed = [jax.linearize(call, x)[1] for _ in range(2)]
        tangents = [lambda push=push, i=i: push(x * (rank + 1) * 10**i) for i, push in enumerate(pushed)]
        for i, tangent in enumerate(in_own_order(tangents)):
            np.testing.assert_allclose(tangent, 10**i * expected, rtol=1e-6)


def test_a_refused_call_is_not_counted():
    rank, size = hvd.rank(), hvd.size()

    def gathered(x, wrong):
        return hvd.allgather(x, rows=[1] * size if wrong else None)

    if size > 1:
        with pytest.raises((ValueError, hpccoll.MismatchError), match="rows say 1 for rank 0"):
            jax.grad(lambda x: gathered(x, rank == 0).sum())(jnp.ones(2))
    gradient = jax.grad(lambda x: (gathered(x, False) * (rank + 1)).sum())(jnp.ones(2))
    np.testing.assert_allclose(gradient, size * (size + 1) / 2)


# ---- second derivatives ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_second_derivatives_of_what_ranks_give_to_each_other():
    """Rank k weights what it gets, to the third power, with k + 1: the sum of the weights is s.

    So the first derivative is 3 s x ** 2, and a second one, that of its sum, 6 s x.
    """
    rank, size = hvd.rank(), hvd.size()
    s, rows = size * (size + 1) / 2, tuple(range(1, size + 1))
    x = np.arange(1.0, rank + 2)
    calls = {
        "broadcast": (lambda x: hvd.broadcast(x, size - 1), np.arange(1.0, size + 1), rank == size - 1),
        "allgather of uneven rows": (lambda x: hvd.allgather(x, rows=rows), x, 1),
        "allgather": (hvd.allgather, np.arange(1.0, 3.0) + rank, 1),
    }
    for kind, (call, x, there) in calls.items():
        first = jax.grad(lambda x, call=call: ((rank + 1) * call(x) ** 3).sum())
        both = jax.jit(lambda x, first=first: (first(x), jax.grad(lambda x: first(x).sum())(x)))
        for found, expected in zip(both(jnp.asarray(x)), (3 * s * x**2, 6 * s * x), strict=True):
            np.testing.assert_allclose(found, there * expected, rtol=1e-6, err_msg=kind)


@pytest.mark.parametrize("form", [lambda f: f, jax.jit, jax.checkpoint], ids=["eager", "jit", "checkpoint"])
def test_a_group_with_integers_has_derivatives_of_the_rest(form):
    """Integers have no tangent. Those of the floats are summed, as the floats are: each rank pushes the same ones."""
    size, x, counts = hvd.size(), jnp.arange(3.0) + hvd.rank(), jnp.arange(2)

    def group(x):
        first, total, last = hvd.grouped_allreduce([x, counts, 2 * x], op=hvd.Sum, name="group with integers")
        return first + last, total

    def squares(x):
        return (group(x)[0] ** 2).sum()

    (_, total), (pushed, none) = form(lambda x: jax.jvp(group, (x,), (jnp.ones(3),)))(x)
    np.testing.assert_array_equal(total, size * np.arange(2))
    np.testing.assert_array_equal(pushed, np.full(3, 3.0 * size))
    assert none.dtype == jax.dtypes.float0
    sums = 3 * (np.arange(3.0) * size + sum(range(size)))
    np.testing.assert_allclose(form(jax.grad(squares))(x), 2 * sums * 3)
    np.testing.assert_allclose(form(jax.jacfwd(jax.grad(squares)))(x), 2 * 3 * 3 * size * np.eye(3))
