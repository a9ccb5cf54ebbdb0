# SPDX-License-Identifier: Apache-2.0
"""An elastic training in compiled steps; one rank is lost in the middle of it, and replaced.

The program waits for no step: it learns of the loss when it starts the next step, or when it commits the results.
"""

import os
import signal
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import hpccoll.jax as hvd
from hpccoll import elastic

WAY, VICTIM, STEPS, RANKS = sys.argv[1], Path(sys.argv[2]), 12, 3

hvd.init()
optimizer = hvd.DistributedOptimizer(optax.adam(0.1))
own = optax.adam(0.1)
data = np.random.default_rng(0).standard_normal((100, 12, 8)).astype(np.float32)
parameters = {"w": jnp.zeros(8), "b": jnp.zeros(())}


@jax.jit
def gradients(w, x):
    return jax.grad(lambda w: jnp.mean((x @ w["w"] + w["b"] - x[:, 0]) ** 2))(w)


@jax.jit
def step(w, state, x):
    updates, state = optimizer.update(gradients(w, x), state, w)
    return optax.apply_updates(w, updates), state


@elastic.run
def train(state):
    while state.step < STEPS or hvd.size() < RANKS:
        time.sleep(0.02)  # a new rank comes in after hundreds of steps, not thousands
        part = np.array_split(data[state.step % 100], hvd.size())[hvd.rank()]
        results = step(state.parameters, state.optimizer, part)
        if state.step == 5 and hvd.rank() == 2 and not VICTIM.exists():
            VICTIM.touch()
            if WAY == "raises":
                raise KeyError("a fault of this rank")
            os.kill(os.getpid(), signal.SIGKILL)
        state.parameters, state.optimizer = results
        state.step += 1
        state.commit()


state = elastic.ObjectState(parameters=parameters, optimizer=optimizer.init(parameters), key=jax.random.key(0), step=0)
train(state)

w, s = parameters, own.init(parameters)
for number in range(state.step):
    updates, s = own.update(gradients(w, data[number % 100]), s, w)
    w = optax.apply_updates(w, updates)
for found, expected in zip(jax.tree.leaves(state.parameters), jax.tree.leaves(w), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
if hvd.rank() == 0:
    print(f"the weights of {STEPS} or more steps, with {hvd.size()} ranks at the end")
