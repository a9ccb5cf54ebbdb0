# SPDX-License-Identifier: Apache-2.0
"""Reports of a program's steps to `hpccoll study`, in three lines.

    >>> from hpccoll import study
    >>> for _ in range(8):
    ...     with study.step(items=256):                     # around one step: items are what this rank worked on
    ...         with study.part("compute"):                 # optional, as often as there are parts
    ...             total = hpccoll.allreduce(np.ones(4))
    >>> study.finish()                                      # all ranks, before shutdown()

Without `HPCCOLL_STUDY`, which `hpccoll study` sets, `finish()` writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpccoll import config
from hpccoll.default_world import current, is_initialized
from hpccoll.errors import InvalidArgumentError

if TYPE_CHECKING:
    from hpccoll.tools.bench.results import Case

__all__ = ["finish", "part", "step"]

EXPOSED = "exposed communication"


@dataclass
class _Step:
    """One step of this rank."""

    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    items: float = 0.0
    inside: float = 0.0
    """Seconds, without those blocked, of the parts that have ended inside the part that is open."""


_steps: list[_Step] = []
_current: _Step | None = None
_load: float | None = None
"""The load average when the first step began."""


def _waited() -> float:
    """Seconds for which callers of the default World have been blocked."""
    return current(None).stats()["waited_ns"] / 1e9 if is_initialized() else 0.0


@contextlib.contextmanager
def step(items: float = 0) -> Iterator[None]:
    """Time one step of this rank.

    What the rank was blocked for in operations of hpccoll (`waited_ns` of `World.stats()`) becomes the part `exposed
    communication`, unless the program reports that part itself, as one does that makes thousands of small calls in a
    step: what those take before they need the driver is left out.

    :param items: samples, cells or whatever this rank worked on, for items per second of all ranks
    :raises InvalidArgumentError: another step is open, whose time would count twice
    """
    global _current, _load
    if _current is not None:
        raise InvalidArgumentError("study.step inside a step: end that one first; study.part names a part of a step")
    _load = os.getloadavg()[0] if _load is None else _load
    this = _current = _Step(items=items)
    waited, began = _waited(), time.perf_counter()
    try:
        yield
        this.seconds = time.perf_counter() - began
        this.parts.setdefault(EXPOSED, _waited() - waited)
        _steps.append(this)
    finally:
        _current = None


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Time a part of the step around it; parts of one name are added. A part inside a part counts for itself alone.

    :param name: `compute`, `input`, `control plane` or any other; what no part names is `other`. The time that the rank
        is blocked in a part counts for the part alone if the program times it as `exposed communication`
    :raises InvalidArgumentError: a file of results can have no such name
    """
    if not isinstance(name, str) or name in ("", ".") or "\0" in name:
        raise InvalidArgumentError(f"study.part: {name!r} is no name of a part")
    this, waited, began = _current, _waited(), time.perf_counter()
    if this is None:
        yield
        return
    before, this.inside = this.inside, 0.0
    try:
        yield
        took, blocked = time.perf_counter() - began, _waited() - waited
        own = took - this.inside - (0.0 if name == EXPOSED else blocked)
        this.parts[name] = this.parts.get(name, 0.0) + own
        before += took - blocked
    finally:
        this.inside = before


def finish(warmup: int = 5, name: str = "") -> None:
    """Gather the steps of all ranks on rank 0, which writes them; all ranks of the default World call it.

    The slowest rank of each step counts, with its parts.

    :param warmup: steps at the beginning that are left out
    :param name: of the program in tables and figures; "": that of its file
    :raises InvalidArgumentError: the ranks did different numbers of steps, or none was left
    :raises ResultsError: what these ranks measured is worthless; on all ranks
    """
    from hpccoll.tools.bench import conditions, files
    from hpccoll.tools.bench.results import Results

    here = current()
    mine = [(s.seconds, s.parts, s.items) for s in _steps[warmup:]]
    done = len(_steps)
    _steps.clear()
    about = conditions.of_rank() | {"load": _load or 0.0}
    ranks = here.allgather_object((mine, about, here.base.loop.node_of[here.rank], done))
    counts = sorted({steps for *_, steps in ranks})
    if len(counts) > 1 or counts[0] <= warmup:
        raise InvalidArgumentError(
            f"study.finish: the ranks did {' or '.join(map(str, counts))} steps, and the first {warmup} are left out "
            "(warmup): all must do the same number of steps, and more than are left out"
        )
    file = config.read().study
    if not file:
        return
    reports = [report for _, report, *_ in ranks]
    warnings = conditions.judge(reports, here.size, oversubscribed=True)  # the study knows whether that is meant
    if here.rank:
        return
    launch = conditions.of_job(conditions.environment(), conditions.knobs(here), sys.argv)
    launch |= {
        "ranks": here.size,
        "nodes": len({node for _, _, node, _ in ranks}),
        "oversubscribed": bool(conditions.crowded(reports)),
        "warnings": warnings,
        "placement": [report | {"node": node} for _, report, node, _ in ranks],
    }
    case = _case([steps for steps, *_ in ranks], name or Path(sys.argv[0]).stem, launch["nodes"])
    files.write(Path(file), Results([launch], {case.key: case}))


def _case(ranks: list[list[tuple[float, dict[str, float], float]]], name: str, nodes: int) -> Case:
    """The slowest rank of each step."""
    from hpccoll.tools.bench.results import Case, Key

    slowest = [max(steps, key=lambda one: one[0]) for steps in zip(*ranks, strict=True)]
    seconds = np.array([one[0] for one in slowest])
    names = dict.fromkeys(part for one in slowest for part in one[1])
    parts = {part: np.array([one[1].get(part, 0.0) for one in slowest]) for part in names}
    items = float(np.mean([sum(one[2] for one in steps) for steps in zip(*ranks, strict=True)]))
    here = current()
    key = Key("step", name, "hpccoll", "", "", "host", str(here.base.settings.net), here.size, nodes, 0)
    zeros = np.zeros(len(seconds), np.int32)
    facts = {"version": "", "verified": False, "ended": "program", "items": items}
    return Case(key, seconds, zeros, zeros + 1, parts, facts)
