# SPDX-License-Identifier: Apache-2.0
"""Steps of data-parallel training, replayed: gradients become ready while the step computes, and are summed.

A trace has the gradients of a model in the order in which they become ready, with their sizes and the share of the
computation before each. The computation itself is replaced by waiting, as for the host of an accelerator. Each gradient
is given to the library when it is ready; the step ends when all are summed. The time beyond the computation is exposed
communication.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import accumulate, pairwise
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll.tools.bench import measure
from hpccoll.tools.bench.libraries import Library, Start
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Case, Facts, Key, ResultsError

NAME = "training"
BACKWARD = 2 / 3
"""Share of the backward pass in the computing of a step: two of the three matrix products of each layer."""
PATTERN = np.arange(61, dtype=np.float32)
"""Repeated in every gradient: cheap to make and to check at any size."""
TRACES = resources.files("hpccoll.tools.bench") / "traces"


@dataclass(frozen=True)
class Trace:
    """The gradients of a model in the order in which they become ready."""

    model: str
    elements: tuple[int, ...]
    ready: tuple[float, ...]
    """The share of the computing after which each is ready."""
    source: str

    @property
    def nbytes(self) -> int:
        """The bytes of all gradients in float32."""
        return 4 * sum(self.elements)


def models() -> list[str]:
    """Return the traces that come with hpccoll."""
    return sorted(file.name.removesuffix(".json") for file in TRACES.iterdir() if file.name.endswith(".json"))


def trace(model: str) -> Trace:
    """Find a trace: the name of one that comes with hpccoll, a file, or `even:25M:160` (elements and tensors).

    :raises ResultsError: there is none, or the file is none of `hpccoll bench record`
    """
    if model.startswith("even:"):
        return _even(model)
    file: Any = Path(model) if model.endswith(".json") else TRACES / f"{model}.json"
    if not file.is_file():
        raise ResultsError(f"--model {model}: there are {', '.join(models())}, even:ELEMENTS:TENSORS, or a file.json")
    try:
        found = json.loads(file.read_text())
        elements, ready = zip(*found["gradients"], strict=True)
        return Trace(found["model"], tuple(map(index, elements)), tuple(map(float, ready)), found["source"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ResultsError(f"--model {model}: no trace as `hpccoll bench record` writes it: {error!r}") from None


def _even(text: str) -> Trace:
    found = re.fullmatch(r"even:([\d.]+(?:e\d+)?)([KM]?):(\d+)", text)
    try:
        elements = int(float(found[1]) * {"": 1, "K": 1e3, "M": 1e6}[found[2]]) if found else 0
    except (ValueError, OverflowError):  # 1.2.3, 1e999
        elements = 0
    tensors = int(found[3]) if found else 0
    if not 1 <= tensors <= elements:
        raise ResultsError(f"--model {text}: even:ELEMENTS:TENSORS, as even:25M:160, with an element in each tensor")
    bounds = [elements * i // tensors for i in range(tensors + 1)]
    sizes = tuple(b - a for a, b in pairwise(bounds))
    done = list(accumulate(sizes))
    return Trace(text, sizes, tuple(1 - BACKWARD * (1 - part / done[-1]) for part in done), "equal tensors")


class Step:
    """One rank's gradients, and a step that sums them.

    :param compute: seconds of computing in a step
    """

    def __init__(self, which: Trace, compute: float, ranks: Ranks) -> None:
        self.gradients = {f"{which.model}.{i}": np.zeros(n, np.float32) for i, n in enumerate(which.elements)}
        self.ready = [compute * share for share in which.ready]
        self.compute, self.ranks = compute, ranks

    def run(self, start: Start) -> None:
        """Compute and sum once."""
        began, waits = time.perf_counter(), []
        for (name, x), ready in zip(self.gradients.items(), self.ready, strict=True):
            _sleep_until(began + ready)
            waits.append(start(name, x))
        _sleep_until(began + self.compute)
        for wait in waits:
            wait()

    def wrong(self, start: Start) -> str:
        """Check a step with known sums; return "" or a text about the error. Writes zeros again, for the timing."""
        rank, size = self.ranks.rank, self.ranks.size
        for x in self.gradients.values():
            x[...] = np.resize(PATTERN, x.size) + rank
        self.run(start)
        found = ""
        for name, x in self.gradients.items():
            expected = np.resize(PATTERN, x.size) * size + size * (size - 1) // 2
            wrong = ~(np.abs(x - expected) <= 4e-3 * np.abs(expected))  # also where x is NaN
            if wrong.any():
                found = found or f"rank {rank}: {int(wrong.sum())} of {x.size} sums of {name} are wrong"
            x[...] = 0
        return found


def _sleep_until(moment: float) -> None:
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def measured(
    which: Trace, compute: float, opened: list[Library], ranks: Ranks, launch: Facts, limits: measure.Limits
) -> list[Case]:
    """Verify and time steps with all contestants that support asynchronous sums.

    :raises ResultsError: a sum is wrong
    """
    step = Step(which, compute, ranks)
    starts: list[tuple[Library, Start]] = []
    for library in opened:
        start = library.start()
        if start is None:
            text = f"{library.name} has no asynchronous allreduce and no training step"
            launch["warnings"] = list(dict.fromkeys([*launch["warnings"], text]))
            continue
        _verify(step, library, start, ranks)
        starts.append((library, start))
    calls: list[Callable[[], object]] = [partial(step.run, start) for _, start in starts]
    cases = []
    for (library, start), timed in zip(starts, measure.in_turn(calls, ranks, limits), strict=True):
        _verify(step, library, start, ranks)
        key = Key(
            "step", f"{NAME} {which.model}", library.name, library.arm, "float32", "host", library.net,
            ranks.size, int(launch["nodes"]), which.nbytes,
        )  # fmt: skip
        samples = np.array(timed.samples)
        parts = {"compute": np.full(len(samples), compute), "exposed communication": samples - compute}
        facts = {"version": library.version, "verified": True, **timed.described(limits), "trace": which.source}
        counts = np.full(len(samples), timed.calls, np.int32)
        cases.append(Case(key, samples, np.zeros(len(samples), np.int32), counts, parts, facts))
    return cases


def _verify(step: Step, library: Library, start: Start, ranks: Ranks) -> None:
    found = [text for text in ranks.share(step.wrong(start)) if text]
    if found:
        raise ResultsError(f"a wrong result: {library.name} {library.version}, {NAME}: {found[0]}; nothing was written")
