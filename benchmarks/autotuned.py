# SPDX-License-Identifier: Apache-2.0
"""Compares the online tuner with Horovod's autotuner on the same trace; jobs with and without tuner run in turn.

    python benchmarks/autotuned.py --scale 0.02 --compute 0.01 [--horovod PYTHON] [--out benchmarks/results]

A job replays the trace's gradients and waits instead of computing, until its tuner has ended: for `--limit` seconds at
most, and it prints a line if that was too short. Then it measures `--steps` more steps. The last line of each library
is the ratio of the medians of its jobs, tuned to untuned: below 1 the tuner has gained.

`--horovod` is a Python that has Horovod and torch. Horovod begins with its defaults (fusion up to 128 MiB, cycles of
1 ms); its tuner has ended when its log no longer grows. That tuner tries 21 pairs of threshold and cycle time, each in
five samples, for every combination of its switches: with its defaults 4 x 21 x 5 samples of 10 steps. So the switches
are fixed here (cache on, no hierarchical allgather), and it tunes the same knobs as ours.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import results

CHECK = 20
"""Steps between two checks whether the tuner has ended."""
SETTLED = 25
"""Samples without a new line in Horovod's log, after which its tuner has ended: a value takes five, the first 20."""
LOG = "HOROVOD_AUTOTUNE_LOG"
FIXED = {"HOROVOD_CACHE_CAPACITY": "1024", "HOROVOD_HIERARCHICAL_ALLGATHER": "0"}


def gradients(model: str, scale: float) -> list[tuple[int, float]]:
    """Return each gradient's elements, times `scale`, and the share of the computing after which it is ready."""
    folder = Path(__file__).resolve().parents[1] / "hpccoll/tools/bench/traces"
    found = json.loads((folder / f"{model}.json").read_text())
    return [(max(1, round(scale * n)), at) for n, at in found["gradients"]]


class Hpccoll:
    """This library."""

    def __init__(self, sample: int) -> None:
        import hpccoll

        self.hpccoll, self.world = hpccoll, hpccoll.init(verbose=0)

    def start(self, name: str, x: Any) -> Any:
        return self.hpccoll.allreduce_async(x, name=name).wait

    def all_of(self, mine: bool) -> bool:
        return bool(self.hpccoll.allreduce(int(mine), op=self.hpccoll.MIN, name="all_of"))

    def has_tuned(self, step: int) -> bool:
        tuner = self.world.base.tuner
        return tuner is None or tuner.outcome is not None


class Horovod:
    """Its predecessor."""

    def __init__(self, sample: int) -> None:
        import horovod.torch as hvd
        import torch

        torch.set_num_threads(1)
        hvd.init()
        self.hvd, self.torch, self.settled = hvd, torch, SETTLED * sample
        self.size, self.grown = 0, 0
        self.log = Path(os.environ[LOG]) if hvd.rank() == 0 and os.environ["HOROVOD_AUTOTUNE"] == "1" else None

    def start(self, name: str, x: Any) -> Any:
        handle = self.hvd.allreduce_async_(self.torch.from_numpy(x), op=self.hvd.Sum, name=name)
        return lambda: self.hvd.synchronize(handle)

    def all_of(self, mine: bool) -> bool:
        return bool(self.hvd.allreduce(self.torch.tensor([int(mine)]), op=self.hvd.Min, name="all_of")[0])

    def has_tuned(self, step: int) -> bool:
        if self.log is None:
            return True
        size = self.log.stat().st_size
        if size != self.size:
            self.size, self.grown = size, step
        return step - self.grown > self.settled


def job(options: argparse.Namespace) -> None:
    """Run one rank: the steps of a job; print the median of the last ones."""
    import numpy as np

    library: Any = {"horovod": Horovod, "hpccoll": Hpccoll}[options.library](options.sample)
    trace = gradients(options.model, options.scale)
    arrays = [np.ones(n, np.float32) for n, _ in trace]
    taken: list[float] = []
    started = time.monotonic()
    left, tuned, ended = options.steps, False, False
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
        left -= ended
        if not ended and len(taken) % CHECK == 0:
            tuned = library.all_of(library.has_tuned(len(taken)))
            ended = tuned or library.all_of(time.monotonic() - started > options.limit)
    result = {"steps": len(taken), "tuner ended": tuned, "seconds": statistics.median(taken[-options.steps :])}
    print(json.dumps(result), flush=True)


def launch(options: argparse.Namespace, library: str, python: str, tuner: bool) -> dict[str, Any]:
    """Run one job.

    :returns: the facts that one of its ranks printed
    """
    words = [python, __file__, "--library", library, "--model", options.model]
    words += [f"--{key}={getattr(options, key)}" for key in ("compute", "scale", "steps", "sample", "limit")]
    launcher = [sys.executable, "-m", "hpccoll", "run", "-np", str(options.np), "--nodes", "1", "--timeout", "3600"]
    with tempfile.NamedTemporaryFile(prefix="horovod-autotune-") as log:
        env = os.environ | {LOG: log.name, **FIXED} if library == "horovod" else dict(os.environ)
        for prefix, steps in (("HPCCOLL", "STEPS"), ("HOROVOD", "STEPS_PER_SAMPLE")):
            env |= {f"{prefix}_AUTOTUNE": str(int(tuner)), f"{prefix}_AUTOTUNE_{steps}": str(options.sample)}
        done = subprocess.run([*launcher, *words], env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return {"library": library, "tuner": tuner, **found}


def main() -> None:
    """Run the jobs in turn, and print the gains of the tuners."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--compute", type=float, default=0.1, help="seconds of a step's computing")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each gradient's elements")
    parser.add_argument("--steps", type=int, default=100, help="steps that count, at the end of a job")
    parser.add_argument("--sample", type=int, default=10, help="steps of a tuner's sample, of both libraries")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a tuner may take")
    parser.add_argument("--launches", type=int, default=3, help="jobs with the tuner, and as many without")
    parser.add_argument("--horovod", help="a Python that has Horovod")
    parser.add_argument("--out", type=results.folder, help="folder of the results")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        job(options)
        return
    facts = results.facts("autotuned")
    pythons = {"hpccoll": sys.executable} | ({"horovod": options.horovod} if options.horovod else {})
    found: list[dict[str, Any]] = []
    for number in range(options.launches):
        for name, python in pythons.items():
            for tuner in (False, True):
                found.append(launch(options, name, python, tuner))
                print(number, name, "tuned  " if tuner else "untuned", found[-1], flush=True)
                if options.out:
                    results.write(options.out / f"autotuned-{options.np}-ranks.jsonl", facts, found)
    for name in pythons:
        medians = [
            statistics.median(line["seconds"] for line in found if (line["library"], line["tuner"]) == (name, tuner))
            for tuner in (True, False)
        ]
        print(f"{name}: {medians[0] / medians[1]:.3f} of the time without its tuner")


if __name__ == "__main__":
    main()
