# SPDX-License-Identifier: Apache-2.0
"""Random programs: every rank has the same operations in another order; the victim dies in the middle of one.

    hpccoll run -np 2 python tests/jax/orders.py FIRST LAST [VICTIM]

It prints a line when all programs have ended correctly. The other ranks must get an error that names the victim.
"""

import os
import random
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

import hpccoll.jax as hvd

BOUND = 60
"""Seconds in which the others must notice the victim's death; an idle machine needs a tenth."""


def in_turns(x, name, own):
    """Run three operations of a loop, in this rank's order, whose results are smaller and larger than their arrays."""
    size = hvd.size()
    several = {
        "share": lambda c: hvd.reducescatter(jnp.concatenate([c] * size), name=f"{name}, share"),
        "rows": lambda c: hvd.allgather(c, name=f"{name}, rows")[: len(c)],
        "exchange": lambda c: hvd.alltoall(jnp.concatenate([c * 1.0] * size), name=f"{name}, exchange")[: len(c)],
    }

    def turn(c, _):
        made = {kind: several[kind](c) for kind in own.sample(sorted(several), 3)}
        return (made["share"] + made["rows"] + made["exchange"]) / 3, None

    return jax.lax.scan(turn, x, None, length=2)[0]


def some_operations(agreed, own, count):
    """Choose kinds of operations on a vector of equal values, and the result of each for a vector of x."""
    size = hvd.size()
    kinds = {
        "mean": (lambda x, name: hvd.allreduce(x, name=name), lambda x: x),
        "max": (lambda x, name: hvd.allreduce(x, hvd.Max, name=name), lambda x: x),
        "group": (lambda x, name: sum(hvd.grouped_allreduce([x * 0.5, x * 0.5], name=name)), lambda x: x),
        "root": (lambda x, name: hvd.broadcast(x, size - 1, name=name), lambda x: x),
        "rows": (lambda x, name: hvd.allgather(x, name=name)[: len(x)], lambda x: x),
        "exchange": (
            lambda x, name: hvd.alltoall(jnp.concatenate([x] * size), name=name)[: len(x)],
            lambda x: x,
        ),
        "share": (lambda x, name: hvd.reducescatter(jnp.concatenate([x] * size), name=name), lambda x: x),
        "loop": (
            lambda x, name: jax.lax.fori_loop(0, 2, lambda _, c: hvd.allreduce(c * 2, name=name), x),
            lambda x: 4 * x,
        ),
        "branch": (
            lambda x, name: jax.lax.cond(x[0] > -9, lambda c: hvd.allreduce(c, name=name), lambda c: c, x),
            lambda x: x,
        ),
        "turns": (lambda x, name: in_turns(x, name, own), lambda x: x),
    }
    return [kinds[agreed.choice(sorted(kinds))] for _ in range(count)]


def a_program(seed):
    """Make a graph of operations, equal on all ranks, in this rank's order, and its expected results."""
    agreed, own = random.Random(seed), random.Random(f"{seed} {hvd.rank()}")
    count, n = agreed.randrange(2, 13), agreed.choice([1, 3, 200, 5000])
    needs = {i: agreed.sample(range(i), min(i, agreed.choice([0, 0, 1, 2]))) for i in range(count)}
    operations = some_operations(agreed, own, count)

    def program(x):
        values, left = {}, set(range(count))
        while left:
            i = own.choice(sorted(i for i in left if all(k in values for k in needs[i])))
            left.remove(i)
            source = x + sum((values[k] * 0.125 for k in needs[i]), jnp.zeros(n))
            values[i] = operations[i][0](jnp.tanh(source), f"{seed}.{i}")
        order = own.sample(range(count), count)
        return dict(sorted({i: values[i].sum() for i in order}.items()))

    expected = {}
    for i in range(count):
        expected[i] = operations[i][1](np.tanh(1 + sum(expected[k] * 0.125 for k in needs[i])))
    return program, n, {i: value * n for i, value in expected.items()}


def run(seed):
    program, n, expected = a_program(seed)
    results = jax.device_get(jax.jit(program)(jnp.ones(n)))
    for i, value in expected.items():
        np.testing.assert_allclose(results[i], value, rtol=1e-4, err_msg=f"program {seed}, operation {i}")


def die_soon():
    """Let the victim die during the programs, at a random moment."""
    time.sleep(random.uniform(0.5, 3))
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    first, last, victim = (int(word) for word in (*sys.argv[1:], "-1")[:3])
    hvd.init()
    began = time.monotonic()
    if hvd.rank() == victim:
        threading.Thread(target=die_soon, daemon=True).start()
    try:
        for seed in range(first, last):
            began = time.monotonic()
            run(seed)
    except (RuntimeError, ValueError) as error:
        waited = time.monotonic() - began
        assert f"rank {victim} " in str(error) and "was lost" in str(error), error
        assert waited < BOUND, f"{waited:.1f} s"
        print(f"rank {hvd.rank()} saw it", flush=True)
        time.sleep(5)  # the first to leave ends the whole job
    else:
        print(f"rank {hvd.rank()}: all ended", flush=True)
        hvd.shutdown()


if __name__ == "__main__":
    main()
