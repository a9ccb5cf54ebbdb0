# SPDX-License-Identifier: Apache-2.0
"""Random programs: every rank has the same operations, in an order of its own, and nothing hangs."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.slow]

PROGRAMS = 60


def a_program(seed: int):
    """A graph of operations, the same on all ranks, and in this rank's own order, with what comes of it."""
    agreed, own = random.Random(seed), random.Random(f"{seed} {hvd.rank()}")
    count, n = agreed.randrange(2, 25), agreed.choice([1, 3, 200, 5000])
    needs = {i: agreed.sample(range(i), min(i, agreed.choice([0, 0, 1, 2]))) for i in range(count)}
    factor = {i: agreed.randrange(1, 4) for i in range(count)}

    def program(x):
        values, left = {}, set(range(count))
        while left:
            i = own.choice(sorted(i for i in left if all(k in values for k in needs[i])))
            left.remove(i)
            source = (x + sum((values[k] * 0.125 for k in needs[i]), jnp.zeros(n))) * factor[i]
            values[i] = hvd.allreduce(jnp.tanh(source), name=f"{seed}.{i}")
        order = own.sample(range(count), count)
        return dict(sorted({i: values[i].sum() for i in order}.items()))

    expected = {}
    for i in range(count):
        expected[i] = np.tanh((1 + sum(expected[k] * 0.125 for k in needs[i])) * factor[i])
    return program, n, {i: value * n for i, value in expected.items()}


@pytest.mark.timeout(600)
def test_random_programs_end():
    for seed in range(PROGRAMS):
        program, n, expected = a_program(seed)
        results = jax.jit(program)(jnp.ones(n))
        for i, value in expected.items():
            np.testing.assert_allclose(results[i], value, rtol=1e-4, err_msg=f"program {seed}, operation {i}")
