# SPDX-License-Identifier: Apache-2.0
"""All ranks stop after the same step, also if only compiled programs have made operations."""

import random
import threading
import time

import jax
import jax.numpy as jnp
import pytest

import hpccoll
import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(120)]
FOREVER, SIDE = 3_000, 200


@pytest.mark.parametrize("seed", range(4))
def test_a_step_that_nothing_waits_for(seed: int) -> None:
    """The program asks at once after it has started a step, which the ranks end at different times."""
    hvd.init()
    long = hvd.rank() == 1  # XLA runs a short program before its call returns

    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        return hvd.allreduce(x @ x / SIDE if long else x, op=hvd.Average, name="step")

    shared, own = random.Random(seed), random.Random(100 * seed + hvd.rank())
    asker, delay = shared.randrange(hvd.size()), shared.uniform(0, 0.02)
    x, steps = jnp.ones((SIDE, SIDE)), 0
    with hpccoll.preemption(()) as p:
        if hvd.rank() == asker:
            threading.Timer(delay, p.ask).start()
        while steps < FOREVER:
            x = step(x)
            steps += 1
            if p.should_stop():
                break
            time.sleep(own.expovariate(5000))
    assert hvd.allgather_object(steps) == [steps] * hvd.size()
    assert steps < FOREVER
    hvd.shutdown()
