# SPDX-License-Identifier: Apache-2.0
"""Samples per second of fit() with hpccoll.keras, beside one process and tf.distribute.

    python benchmarks/keras_fit.py --backends torch jax tensorflow --ranks 2

It starts a job per backend. In each, rank 0 alone and all ranks together train the same network in turn, so that other
load on the machine affects both. The batch per rank stays the same, so two ranks with a core each reach at most twice
the samples per second. MultiWorkerMirroredStrategy runs beside it for the backend tensorflow; fit() of Keras 3 fails
with it (keras-team/keras#20585), and its line then has the error.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

BATCH = 64
STEPS, ROUNDS = (int(os.environ.get(f"KERAS_FIT_{name}", default)) for name, default in (("STEPS", 30), ("ROUNDS", 5)))
STRATEGY = "--strategy"


def network():
    """Return a network of the usual size for MNIST: 1.2 million weights."""
    import keras

    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"), keras.layers.MaxPooling2D(), keras.layers.Flatten(),
            keras.layers.Dense(128, "relu"), keras.layers.Dense(10),
        ]
    )  # fmt: skip


def compiled(optimizer):
    import keras

    model = network()
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def seconds(model, x, y) -> float:
    began = time.perf_counter()
    model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
    return time.perf_counter() - began


def rank_program() -> None:
    """Run one rank; rank 0 prints a line of JSON."""
    import keras
    import numpy as np

    import hpccoll.keras as hvd

    hvd.init()
    x = np.random.default_rng(hvd.rank()).standard_normal((BATCH * STEPS, 28, 28, 1)).astype("float32")
    y = np.random.default_rng(1).integers(0, 10, BATCH * STEPS)
    together, alone = compiled(hvd.DistributedOptimizer(keras.optimizers.Adam())), compiled(keras.optimizers.Adam())
    times: dict[str, list[float]] = {"alone": [], "together": []}
    for _ in range(ROUNDS + 1):  # the first one compiles
        if hvd.rank() == 0:
            times["alone"].append(seconds(alone, x, y))
        hvd.barrier()
        times["together"].append(seconds(together, x, y))
        hvd.barrier()
    if hvd.rank() == 0:
        rate = {name: len(x) / float(np.median(some[1:])) for name, some in times.items()}
        rate["together"] *= hvd.size()
        print("result " + json.dumps(rate), flush=True)
    hvd.shutdown()


def strategy_program() -> None:
    """Train the same network under tf.distribute, in a process per rank."""
    import keras
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    size = strategy.num_replicas_in_sync
    x = np.random.default_rng(0).standard_normal((BATCH * STEPS * size, 28, 28, 1)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, np.zeros(len(x), np.int64))).batch(BATCH * size)
    with strategy.scope():
        model = compiled(keras.optimizers.Adam())
    model.fit(data, verbose=0)
    began = time.perf_counter()
    model.fit(data, verbose=0)
    print("result " + json.dumps({"tf.distribute": len(x) / (time.perf_counter() - began)}), flush=True)


def results(output: str) -> dict[str, float]:
    lines = [line.split("result ", 1)[1] for line in output.splitlines() if "result {" in line]
    return json.loads(lines[0]) if lines else {}


def job(backend: str, ranks: int, limit: float) -> str:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", str(ranks), "--timeout", str(int(limit))]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, sys.executable, "-P", __file__, "--rank"], env=environment, text=True, check=False,
        timeout=limit + 60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    rate = results(done.stdout)
    if not rate:
        return f"{backend:>11}: failed: {_why(done.stdout)}"
    return (
        f"{backend:>11}: one process {rate['alone']:8.0f} samples/s, {ranks} ranks {rate['together']:8.0f}, "
        f"{rate['together'] / rate['alone']:.2f} times as many"
    )


def strategy(ranks: int, limit: float) -> str:
    ports = [_free_port() for _ in range(ranks)]
    workers = [f"127.0.0.1:{port}" for port in ports]
    running = []
    for index in range(ranks):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), "KERAS_BACKEND": "tensorflow"}
        running.append(
            subprocess.Popen(
                [sys.executable, "-P", __file__, STRATEGY], env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    try:
        outputs = [process.communicate(timeout=limit)[0] for process in running]
    except subprocess.TimeoutExpired:
        return f"tf.distribute: no end after {limit:.0f} s"
    finally:
        for process in running:
            process.kill()
    rate = results(outputs[0])
    return (
        f"tf.distribute: {ranks} ranks {rate['tf.distribute']:8.0f}" if rate else f"tf.distribute: {_why(outputs[0])}"
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _why(output: str) -> str:
    lines = [line for line in output.splitlines() if "Error" in line]
    return (lines or output.splitlines() or ["no output"])[-1][:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=["torch", "jax", "tensorflow"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS, help="of an epoch (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="epochs of each, after the first (%(default)s)")
    parser.add_argument("--limit", type=float, default=500, help="seconds for a job")
    arguments = parser.parse_args()
    os.environ |= {"KERAS_FIT_STEPS": str(arguments.steps), "KERAS_FIT_ROUNDS": str(arguments.rounds)}
    for backend in arguments.backends:
        print(job(backend, arguments.ranks, arguments.limit), flush=True)
    if "tensorflow" in arguments.backends:
        print(strategy(arguments.ranks, arguments.limit), flush=True)
    epochs = f"{arguments.rounds} epochs of {arguments.steps} steps"
    print(f"{Path(__file__).name}: {BATCH} samples per rank and step, median of {epochs}")


if __name__ == "__main__":
    {"--rank": rank_program, STRATEGY: strategy_program}.get((*sys.argv, "")[1], main)()
