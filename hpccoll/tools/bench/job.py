# SPDX-License-Identifier: Apache-2.0
"""The ranks of a measured job: check the conditions, verify, time in turn, verify again, return results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

import hpccoll
from hpccoll.tools.bench import busy, collectives, conditions, control, libraries, measure, training
from hpccoll.tools.bench import ranks as ranks_of
from hpccoll.tools.bench.libraries import UNNAMED, Hpccoll, Library, Memcpy
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Case, Facts, Key, Results, ResultsError

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8")


@dataclass(frozen=True)
class Request:
    """What to measure."""

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    """Knobs of hpccoll, by the name of the arm."""
    peers: tuple[str, ...] = ()
    limits: measure.Limits = field(default_factory=measure.Limits)
    oversubscribed: bool = False
    expected: int = 0
    """The required number of ranks; 0: not given."""
    launch: int = 0
    """The number of earlier launches of this command."""
    command: tuple[str, ...] = ()
    model: str = "resnet50"
    """The trace of `training`, and the seconds of computing in a step of it."""
    compute: float = 0.111
    control: control.Asked = field(default_factory=control.Asked)
    places: tuple[bool, ...] = (False, True)
    """Whether the result replaces the input, where a collective has the choice."""
    styles: tuple[str, ...] = (UNNAMED,)
    """How hpccoll's operations are called."""
    busy: int = 0
    """Processes per core that compute beside the ranks."""


@dataclass(frozen=True)
class Point:
    """One line of the table: a collective, dtype and size."""

    collective: str
    dtype: str
    nbytes: int


Progress = Callable[[Point, list[Case]], None]
"""Called on rank 0 after each point, with the cases of all contestants."""


def run(request: Request, progress: Progress, check: Callable[[], None]) -> Results | None:
    """Measure; all ranks call this together.

    :param check: called on rank 0 before anything is measured; raises a ResultsError if the results would be lost
    :returns: the results on rank 0, None on the others
    :raises ResultsError: on all ranks, with one text: the results would be worthless
    """
    world = hpccoll.init()
    ranks = ranks_of.of(world)
    opened: list[Library] = []
    try:
        _refuse_together(ranks, check if ranks.rank == 0 else None)
        launch = describe(request, world, ranks)
        results = Results([launch])
        open_all(request, ranks, opened)
        with busy.beside(ranks, request.busy) as launch["busy processes"]:
            for point in points(request, ranks.size):
                cases = of_point(point, request, opened, ranks, launch)
                results.cases.update({case.key: case for case in cases})
                if ranks.rank == 0:
                    progress(point, cases)
        fanout = world.base.settings.fanout
        launch["load average after"] = os.getloadavg()[0]
    finally:
        if sys.exc_info()[0] in (None, ResultsError):  # else ranks may have ended
            libraries.close_all(opened)
            hpccoll.shutdown()
    if ranks.rank:
        return None
    for cases in virtual_ranks(request, fanout):
        results.cases.update({case.key: case for case in cases})
        progress(Point("virtual ranks", "", cases[0].key.ranks), cases)
    return results


def open_all(request: Request, ranks: Ranks, opened: list[Library]) -> None:
    """Open the contestants, one after the other, so that those that are open can be closed if one fails.

    :raises ResultsError: a peer is not there
    """
    for arm, knobs in request.arms.items():
        first = Hpccoll(arm, knobs, request.styles[0])
        opened.append(first)
        opened.extend(Hpccoll(arm, knobs, style, first.world) for style in request.styles[1:])
    peers = (peer for peer in request.peers if peer != Memcpy.name)
    opened.extend(_together(ranks, partial(libraries.open_peer, peer, ranks)) for peer in peers)
    opened.append(Memcpy())


def of_point(point: Point, request: Request, opened: list[Library], ranks: Ranks, launch: Facts) -> list[Case]:
    """Verify and time one point with all contestants that support it.

    :raises ResultsError: a result is wrong
    """
    if point.collective in (training.NAME, control.NAME):
        once = [library for library in opened if not isinstance(library, Memcpy)]
        once = [
            library for library in once if not (isinstance(library, Hpccoll) and library.style != request.styles[0])
        ]
        if point.collective == control.NAME:
            return control.real(point.nbytes // 4, once, ranks, launch, request.limits)
        which = training.trace(request.model)
        return training.measured(which, request.compute, once, ranks, launch, request.limits)
    return measured(point, request, opened, ranks, launch)


def virtual_ranks(request: Request, fanout: int) -> Iterator[list[Case]]:
    """Measure the control plane of virtual ranks, on rank 0 only, after the World has ended."""
    asked = request.control
    for which in asked.tensors if control.NAME in request.collectives else ():
        for count in asked.virtual:
            yield control.virtual(which, count, fanout, asked.steps)


def describe(request: Request, world: hpccoll.World, ranks: Ranks) -> Facts:
    """Check the conditions, and describe them.

    :raises ResultsError: see conditions.judge
    """
    reports = ranks.share(conditions.of_rank())
    nodes = ranks.share(world.base.loop.node_of[ranks.rank])
    warnings = conditions.judge(reports, request.expected, request.oversubscribed)
    if request.launch:  # the earlier launches are a part of the load
        warnings = [warning for warning in warnings if " was loaded before " not in warning]
    facts = conditions.of_job(conditions.environment(), conditions.knobs(world), list(request.command))
    common: Facts = ranks.share(facts)[0]
    return common | {
        "ranks": ranks.size,
        "nodes": len(set(nodes)),
        "oversubscribed": bool(conditions.crowded(reports)),
        "warnings": warnings,
        "limits": asdict(request.limits),
        "placement": [report | {"node": node} for report, node in zip(reports, nodes, strict=True)],
    }


def _refuse_together(ranks: Ranks, check: Callable[[], None] | None) -> None:
    """Make a check on some ranks; if it fails on one, it fails on all.

    :raises ResultsError: on all ranks
    """
    problem = ""
    try:
        if check:
            check()
    except ResultsError as error:
        problem = str(error)
    for text in ranks.share(problem):
        if text:
            raise ResultsError(text)


def _together(ranks: Ranks, make: Callable[[], Library]) -> Library:
    """Start a peer library; if it fails on one rank, it fails on all."""
    made, problem = None, ""
    try:
        made = make()
    except ResultsError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way
        problem = f"{type(error).__name__}: {error}"
    for rank, text in enumerate(ranks.share(problem)):
        if text:
            raise ResultsError(f"rank {rank}: {text}")
    assert made is not None
    return made


def points(request: Request, ranks: int) -> Iterator[Point]:
    """Yield all points, small before large; sizes with the same real size only once."""
    for collective in request.collectives:
        if collective == training.NAME:
            yield Point(collective, "float32", training.trace(request.model).nbytes)
            continue
        if collective == control.NAME:
            for which in request.control.tensors:
                yield Point(collective, "float32", 4 * len(control.tensors(which)))
            continue
        for dtype in request.dtypes:
            for nbytes in dict.fromkeys(_real_size(collective, dtype, size, ranks) for size in request.sizes):
                yield Point(collective, dtype, nbytes)


def _real_size(collective: str, dtype: str, nbytes: int, ranks: int) -> int:
    """Return the size that the ranks can share, see collectives.task."""
    if collective == "barrier":
        return 0
    itemsize = numpy_type(dtype).itemsize
    unit = itemsize * (ranks if collectives.COLLECTIVES[collective].parts else 1)
    return max(1, nbytes // unit) * unit


def numpy_type(name: str) -> np.dtype[Any]:
    """Give the NumPy dtype of a name.

    :raises ResultsError: bfloat16 without ml_dtypes
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ResultsError("NumPy has bfloat16 only with ml_dtypes: pip install ml_dtypes") from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def measured(point: Point, request: Request, opened: list[Library], ranks: Ranks, launch: Facts) -> list[Case]:
    """Verify and time one point with all contestants that have it.

    :raises ResultsError: a result is wrong
    """
    there = []
    for library, task in contestants(point, request, opened, ranks):
        call = verified(library, task, ranks, launch)
        if call is not None:
            if not request.limits.fresh:
                task.quiet()
            there.append((library, task, call))
    limits = request.limits
    writes = [task.writer() if limits.fresh else None for _, task, _ in there]
    timed = measure.in_turn([call for _, _, call in there], ranks, limits, writes)
    cases = []
    for (library, task, call), found in zip(there, timed, strict=True):
        check(library, task, ranks, call)
        choice = task.collective.places and not isinstance(library, Memcpy)
        arm = " ".join(filter(None, (library.arm, "in place" if choice and task.in_place else "")))
        key = Key(
            "collective", point.collective, library.name, arm, point.dtype, "host", library.net,
            ranks.size, int(launch["nodes"]), point.nbytes,
        )  # fmt: skip
        samples = np.array(found.samples)
        facts = {"version": library.version, "verified": True, **found.described(limits)}
        if isinstance(library, Hpccoll):
            facts |= {"style": library.style, "knobs of": library.variant}
        numbers = np.zeros(len(samples), np.int32)
        calls = np.full(len(samples), found.calls, np.int32)
        cases.append(Case(key, samples, numbers, calls, found.arrays(), facts))
    return cases


def contestants(
    point: Point, request: Request, opened: list[Library], ranks: Ranks
) -> Iterator[tuple[Library, collectives.Task]]:
    """Yield each library with arrays of its own, and once more in place, where the collective has the choice."""
    collective, dtype = collectives.COLLECTIVES[point.collective], numpy_type(point.dtype)
    for library in opened:
        several = request.places if collective.places and not isinstance(library, Memcpy) else (False,)
        for in_place in several:
            task = collectives.task(point.collective, point.nbytes, dtype, ranks.rank, ranks.size, in_place)
            if task.nbytes or not isinstance(library, Memcpy):
                yield library, task


def verified(library: Library, task: collectives.Task, ranks: Ranks, launch: Facts) -> Callable[[], object] | None:
    """Make the call and check its result; None, and a note in the launch, if the library does not support it."""
    what = f"{task.collective.name} of {task.x.dtype.name}"
    call, missing = None, ""
    try:
        call = library.call(task)
        task.fill()
        call()
    except (libraries.UnsupportedHereError, NotImplementedError) as error:
        missing = str(error)
    except (RuntimeError, TypeError, AttributeError) as error:
        if isinstance(library, Hpccoll):
            raise
        missing = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    without = [text for text in ranks.share(missing) if text]
    if without:
        launch["warnings"] = list(dict.fromkeys([*launch["warnings"], f"{library.name} has no {what}: {without[0]}"]))
        return None
    assert call is not None
    _compare(library, task, ranks)
    return call


def check(library: Library, task: collectives.Task, ranks: Ranks, call: Callable[[], object]) -> None:
    """Check the result again, after the timing.

    :raises ResultsError: it is wrong
    """
    task.fill()
    call()
    _compare(library, task, ranks)


def _compare(library: Library, task: collectives.Task, ranks: Ranks) -> None:
    wrong = "" if isinstance(library, Memcpy) else task.wrong()
    found = [text for text in ranks.share(wrong) if text]
    if found:
        what = f"{task.collective.name} of {task.nbytes} bytes of {task.x.dtype.name}"
        raise ResultsError(f"a wrong result: {library.name} {library.version}, {what}: {found[0]}; nothing was written")
