# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's 161 gradients and one float in `jit`, one operation each, beside the NumPy call, mpi4jax and Gloo.

    OMP_NUM_THREADS=1 hpccoll run -np 2 python benchmarks/jax_gradients.py

All take turns in one job. mpi4jax is a contestant if it is installed; JAX itself uses Gloo between processes on CPUs.
NumPy arrays are reduced in place. A third question: after which share of a training step do the requests for gradients
begin, if the backward pass computes them one after another?
"""

import argparse
import socket
from typing import Any

import in_turn
import jax
import jax.numpy as jnp
import numpy as np
import overlap
from in_turn import COMM, NUMPY, Bar, Contestant
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hpccoll.jax as hvd

OURS, MPI4JAX, GLOO = "jit", "mpi4jax in jit", "JAX's Gloo in jit"
IN_PLACE = "jit, donated"
GRADIENTS = [Bar(OURS, NUMPY, 2.0), Bar(OURS, MPI4JAX, 0.7), Bar(OURS, GLOO, 0.1)]
ONE = [Bar(OURS, MPI4JAX, 0.6), Bar(OURS, GLOO, 0.6)]


def start() -> None:
    """Start JAX's coordinator, which its own collectives need before the first array."""
    port = 0
    if COMM.rank == 0:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{COMM.bcast(port)}", COMM.size, COMM.rank)


def mpi4jax_or_none() -> Any:
    try:
        import mpi4jax
    except ImportError:
        return None
    return mpi4jax


def of_program(program: Any, given: list[np.ndarray], factor: float, arrays: Any = None) -> Contestant:
    xs = arrays if arrays is not None else [jnp.asarray(x) for x in given]
    return Contestant(
        lambda: jax.block_until_ready(program(xs)), lambda: in_turn.check(given, jax.device_get(program(xs)), factor)
    )


def donated(given: list[np.ndarray], name: str) -> Contestant:
    """Return a contestant whose runs reduce the results of the run before, in place."""
    program = jax.jit(
        lambda xs: [hvd.allreduce(x, name=f"{name} donated.{i}") for i, x in enumerate(xs)], donate_argnums=0
    )
    left = [[jnp.array(x) for x in given]]

    def run() -> None:
        left[0] = jax.block_until_ready(program(left[0]))

    def verify() -> None:
        run()
        in_turn.check(given, jax.device_get(left[0]), 1 / COMM.size)

    return Contestant(run, verify)


def with_gloo(given: list[np.ndarray]) -> Contestant:
    mesh = Mesh(np.array(jax.devices()), "ranks")
    spread = NamedSharding(mesh, PartitionSpec("ranks"))
    arrays = [
        jax.make_array_from_single_device_arrays(
            (COMM.size, *x.shape), spread, [jax.device_put(x[None], jax.local_devices()[0])]
        )
        for x in given
    ]
    mapped = jax.shard_map(
        lambda xs: [jax.lax.psum(x, "ranks") for x in xs],
        mesh=mesh, in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec(),
    )  # fmt: skip
    return of_program(jax.jit(mapped), given, 1.0, arrays)


def contestants(given: list[np.ndarray], name: str) -> dict[str, Contestant]:
    ours = jax.jit(lambda xs: [hvd.allreduce(x, name=f"{name}.{i}") for i, x in enumerate(xs)])
    made = {OURS: of_program(ours, given, 1 / COMM.size), IN_PLACE: donated(given, name)}
    if (peer := mpi4jax_or_none()) is not None:
        from mpi4py import MPI

        theirs = jax.jit(lambda xs: [peer.allreduce(x, op=MPI.SUM, comm=COMM) for x in xs])
        made[MPI4JAX] = of_program(theirs, given, 1.0)
    return made | {GLOO: with_gloo(given)}


def training_step(size: str) -> overlap.Step:
    """Return a step of dense layers, whose gradients are each an operation."""
    layers, inputs = overlap.layers(size)

    def loss(weights: list[Any]) -> Any:
        x = jnp.asarray(inputs)
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    @jax.jit
    def step(weights: list[Any]) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights)
        return value, [w - 1e-6 * g for w, g in zip(weights, hvd.allreduce_gradients(gradients), strict=True)]

    weights = [jnp.asarray(w) for w in layers]
    return lambda: jax.block_until_ready(step(weights))


def main() -> None:
    options = in_turn.arguments(__doc__ or "", 20)
    start()
    hvd.init()
    measure_all(options)
    hvd.shutdown()
    jax.distributed.shutdown()


def measure_all(options: argparse.Namespace) -> None:
    records: list[Any] = []
    if "gradients" in options.only:
        given = in_turn.random_gradients(options)
        found = in_turn.measure({NUMPY: in_turn.in_numpy(given)} | contestants(given, "gradient"), options.rounds, 1)
        in_turn.report(f"{len(given)} gradients of ResNet-50", found, GRADIENTS, records)
    if "one" in options.only:
        scalar = [np.full(1, 1.0 + COMM.rank, np.float32)]
        found = in_turn.measure(contestants(scalar, "one"), options.rounds, 1 if options.size == "tiny" else 50)
        in_turn.report("one float", found, ONE, records)
    if "overlap" in options.only:
        overlap.report(overlap.measure(training_step(options.size)), records)
    in_turn.keep("jax_gradients", options, records)


if __name__ == "__main__":
    main()
