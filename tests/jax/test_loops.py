# SPDX-License-Identifier: Apache-2.0
"""Loops that JAX differentiates: each rank makes each call in each turn, whatever its own arrays are.

Rank 0 has other arrays in each turn, and the other ranks have the same. What must come out is a sum over the turns.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.timeout(60), pytest.mark.slow]

TURNS, SAME = 3, 10.0


def own(turn):
    return turn if hvd.rank() == 0 else jnp.full((), SAME)


def to_all(turn):
    """Messages from rank 0, of which it needs no result."""
    if hvd.rank():
        return hvd.recv(turn, 0)
    for other in range(1, hvd.size()):
        hvd.send(turn, other)
    return turn


def without_result(turn):
    hvd.allreduce(turn, name="without result")
    return turn


def some_calls():
    """By kind, a call, and what comes out of it in a turn."""
    others, size, rank = SAME * (hvd.size() - 1), hvd.size(), hvd.rank()
    right, left = (rank + 1) % size, (rank - 1) % size
    return {
        "sum": (lambda turn: hvd.allreduce(own(turn), hvd.Sum, name="sum"), lambda turn: turn + others),
        "constant": (
            lambda turn: hvd.broadcast(turn if rank == 0 else jnp.zeros(()), 0, name="constant"),
            lambda turn: turn,
        ),
        "message": (lambda turn: hvd.sendrecv(own(turn), right, left), lambda turn: SAME if left else turn),
        "to all": (to_all, lambda turn: turn),
        "without result": (without_result, lambda turn: turn),
    }


FORMS = {
    "jit": lambda loss: jax.jit(jax.value_and_grad(loss)),
    "a checkpoint": lambda loss: jax.jit(jax.value_and_grad(jax.checkpoint(loss))),
    "ranks of which one does not differentiate": lambda loss: (
        jax.value_and_grad(loss) if hvd.rank() else lambda x: (jax.jit(loss)(x), None)
    ),
}


def loss_of(call):
    def loss(x):
        def turn(number, _):
            made = call(lax.stop_gradient(number))
            return number + 1, x * lax.stop_gradient(made)

        return lax.scan(turn, jnp.zeros(()), None, length=TURNS)[1].sum()

    return loss


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow if form == "a checkpoint" else ()) for form in FORMS]
)
def test_calls_of_each_turn_happen(form):
    for kind, (call, result) in some_calls().items():
        expected = sum(result(turn) for turn in range(TURNS))
        for found in FORMS[form](loss_of(call))(jnp.ones(())):  # the loss is linear
            if found is not None:
                np.testing.assert_allclose(found, expected, err_msg=kind)
