# SPDX-License-Identifier: Apache-2.0
"""The parts of a step's time: input, computation, exposed communication; and FLOP/s, with their standard errors.

A pass that communicates takes longer than one that does not. This difference, and the wait for the mean, are the
exposed communication. The time of a pass without communication is measured before training begins, and in each pass
whose gradients only add up.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.utils.flop_counter import FlopCounterMode

from hpccoll import study

PARTS = {"input": "input", "alone": "compute", "last": "compute", "wait": "update", "update": "update"}
"""The parts of a step in a scaling study, which finds out by itself how long each was blocked in communication."""


def flops_of(work: Callable[[], object]) -> int:
    """Count the floating-point operations of `work` from the shapes; a multiply-add is two."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@dataclass
class Meter:
    """Seconds: one value per step (`alone`: one per pass)."""

    alone: list[float] = field(default_factory=list)
    input: list[float] = field(default_factory=list)
    compute: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    _now: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, what: str, device: torch.device) -> Iterator[None]:
        """Add the time of this block to `what` of the present step."""
        began = time.perf_counter()
        with study.part(PARTS[what]):
            yield
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
        if what == "alone":
            self.alone.append(seconds)
        self._now[what] = self._now.get(what, 0.0) + seconds

    def forget(self) -> None:
        """Drop what was timed since the last step."""
        self._now = {}

    def end_step(self) -> None:
        """Record the step: input, alone, last (the pass that communicates), wait and update."""
        now, one_pass = self._now, statistics.median(self.alone)
        exposed = max(0.0, now["last"] - one_pass) + now["wait"]
        self.input.append(now["input"])
        self.exposed.append(exposed)
        self.step.append(sum(now.values()))
        self.compute.append(self.step[-1] - exposed - now["input"])
        self._now = {}


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return statistics.fmean(values), error
