# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's 161 gradients, and one float, in TensorFlow: eager and in tf.function, beside the NumPy call.

    hpccoll run -np 2 python benchmarks/tensorflow_gradients.py

All contestants are measured in turn in one job; Horovod for TensorFlow is one where it is installed.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from shapes import resnet50

import hpccoll
import hpccoll.tensorflow as hvd

Contestant = Callable[[], Any]


def horovod() -> Any:
    try:
        import horovod.tensorflow as module

        module.init()
    except ImportError:
        return None
    return module


def gradients(peer: Any) -> dict[str, Contestant]:
    shapes = resnet50()
    tensors = [tf.constant(np.random.default_rng(0).random(shape, np.float32)) for _, shape in shapes]
    variables = [
        tf.Variable(tensor, name=name.replace(".", "_")) for (name, _), tensor in zip(shapes, tensors, strict=True)
    ]
    host = [np.array(tensor) for tensor in tensors]
    from hpccoll.tensorflow.reducing import Reduction

    reduction = Reduction("bench")

    def arrays() -> None:
        handles = [
            hpccoll.allreduce_async(x, hpccoll.AVERAGE, name=f"numpy.{name}", out=x)
            for x, (name, _) in zip(host, shapes, strict=True)
        ]
        for handle in handles:
            handle.wait()

    program = tf.function(lambda *xs: reduction.combine(xs, variables), autograph=False)
    made = {
        "NumPy arrays, in place": arrays,
        "eager": lambda: reduction.combine(tensors, variables),
        "tf.function": lambda: program(*tensors),
    }
    if peer is not None:
        others = tf.function(lambda *xs: [peer.allreduce(x, name=f"p{i}") for i, x in enumerate(xs)], autograph=False)
        made["Horovod in tf.function"] = lambda: others(*tensors)
    return made


def one_float(peer: Any) -> dict[str, Contestant]:
    one = tf.ones(1)
    program = tf.function(lambda x: hvd.allreduce(x, name="one"), autograph=False)
    made = {"eager": lambda: hvd.allreduce(one, name="eager"), "tf.function": lambda: program(one)}
    if peer is not None:
        made["Horovod, eager"] = lambda: peer.allreduce(one, name="horovod")
    return made


def measure(title: str, contestants: dict[str, Contestant], repeats: int, each: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 2):
        for name, run in contestants.items():
            hvd.barrier()
            start = time.perf_counter()
            for _ in range(each):
                run()
            if repeat >= 2:
                seconds[name].append((time.perf_counter() - start) / each)
    if hvd.rank() == 0:
        print(title)
        for name, times in seconds.items():
            print(f"    {name:28} median {1e6 * statistics.median(times):10.1f} us, best {1e6 * min(times):10.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="how often each contestant has its turn (%(default)s)")
    options = parser.parse_args()
    hvd.init()
    peer = horovod()
    measure("161 gradients of ResNet-50", gradients(peer), options.repeats, 1)
    measure("one float", one_float(peer), options.repeats, 50)
    hvd.shutdown()


if __name__ == "__main__":
    main()
