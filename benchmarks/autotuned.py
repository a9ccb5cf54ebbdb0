# SPDX-License-Identifier: Apache-2.0
"""The online tuner beside Horovod's autotuner: the same trace, with and without, jobs in turn.

    python benchmarks/autotuned.py --np 2 --model resnet50 --compute 0.1 [--horovod PYTHON]

A job replays the trace's gradients, with its computing as waiting, until its tuner has ended, and then `--steps` more,
which count. `--horovod` is a Python that has Horovod and torch; it gets its own
settings (fusion up to 128 MiB, cycles of 1 ms; 3 samples of warm-up, 20 samples of 10 steps). The last line of each
library is the ratio of the medians of its jobs, tuned to untuned: below 1 the tuner has gained.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOROVOD_STEPS = 300
"""Steps after which Horovod's tuner has ended: 3 + 20 samples of 10 steps, and what it drops."""


def gradients(model: str, scale: float) -> list[tuple[int, float]]:
    """Elements of each gradient (that share of them), and the share of the computing after which it is ready."""
    folder = Path(__file__).resolve().parents[1] / "hpccoll/tools/bench/traces"
    found = json.loads((folder / f"{model}.json").read_text())
    return [(max(1, round(scale * n)), at) for n, at in found["gradients"]]


class Hpccoll:
    """This library."""

    def __init__(self) -> None:
        import hpccoll

        self.hpccoll, self.world = hpccoll, hpccoll.init(verbose=0)

    def start(self, name: str, x: Any) -> Any:
        return self.hpccoll.allreduce_async(x, name=name).wait

    def tuned(self, step: int) -> bool:
        tuner = self.world.base.tuner
        return bool(self.hpccoll.allreduce(int(tuner is None or tuner.outcome is not None), op=self.hpccoll.MIN))


class Horovod:
    """Its predecessor."""

    def __init__(self) -> None:
        import horovod.torch as hvd
        import torch

        torch.set_num_threads(1)
        hvd.init()
        self.hvd, self.torch = hvd, torch

    def start(self, name: str, x: Any) -> Any:
        handle = self.hvd.allreduce_async_(self.torch.from_numpy(x), op=self.hvd.Sum, name=name)
        return lambda: self.hvd.synchronize(handle)

    def tuned(self, step: int) -> bool:
        return step >= HOROVOD_STEPS or os.environ["HOROVOD_AUTOTUNE"] == "0"


def job(options: argparse.Namespace) -> None:
    """One rank: the steps of a job, and the median of the last ones."""
    import numpy as np

    library: Any = Horovod() if options.library == "horovod" else Hpccoll()
    trace = gradients(options.model, options.scale)
    arrays = [np.ones(n, np.float32) for n, _ in trace]
    taken: list[float] = []
    step, left = 0, options.steps
    while left:
        began = time.monotonic()
        waits = []
        for i, (_, ready) in enumerate(trace):
            time.sleep(max(0.0, began + ready * options.compute - time.monotonic()))
            arrays[i].fill(1)
            waits.append(library.start(f"gradient.{i}", arrays[i]))
        for wait in waits:
            wait()
        taken.append(time.monotonic() - began)
        step += 1
        if left < options.steps or (step % 20 == 0 and library.tuned(step)):
            left -= 1
    print(json.dumps({"steps": step, "seconds": statistics.median(taken[-options.steps :])}), flush=True)


def main() -> None:
    """Run the jobs in turn, and say what the tuners gained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--compute", type=float, default=0.1, help="seconds of a step's computing")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each gradient's elements")
    parser.add_argument("--steps", type=int, default=100, help="steps that count, at the end of a job")
    parser.add_argument("--launches", type=int, default=3, help="jobs with the tuner, and as many without")
    parser.add_argument("--horovod", help="a Python that has Horovod")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        job(options)
        return
    pythons = {"hpccoll": sys.executable} | ({"horovod": options.horovod} if options.horovod else {})
    found: dict[tuple[str, bool], list[float]] = {}
    for launch in range(options.launches):
        for name, python in pythons.items():
            for tuner in (False, True):
                words = [python, __file__, "--library", name, "--model", options.model]
                words += [f"--{key}={getattr(options, key)}" for key in ("compute", "scale", "steps")]
                env = os.environ | {"HPCCOLL_AUTOTUNE": str(int(tuner)), "HOROVOD_AUTOTUNE": str(int(tuner))}
                launcher = [sys.executable, "-m", "hpccoll", "run", "-np", str(options.np), "--nodes", "1"]
                done = subprocess.run([*launcher, *words], env=env, stdout=subprocess.PIPE, text=True, check=True)
                result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
                found.setdefault((name, tuner), []).append(result["seconds"])
                print(launch, name, "tuned  " if tuner else "untuned", result, flush=True)
    for name in pythons:
        ratio = statistics.median(found[name, True]) / statistics.median(found[name, False])
        print(f"{name}: {ratio:.3f} of the time without its tuner")


if __name__ == "__main__":
    main()
