# SPDX-License-Identifier: Apache-2.0
"""The report of `hpccoll bench control` and `hpccoll bench startup`: rows of tables, and lines over ranks."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from hpccoll.tools.bench.results import Case, Results
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.study import curves
from hpccoll.tools.study.tables import Table, interval, number

MODELLED = "predecessor, counted by its rules"


@dataclass(frozen=True)
class Line:
    """Values over numbers of ranks."""

    label: str
    ranks: list[int] = field(default_factory=list)
    values: list[Median] = field(default_factory=list)
    modelled: bool = False


@dataclass(frozen=True)
class Plot:
    """The content of one figure."""

    kind: str
    """Part of the name of its file."""
    caption: str
    axis: str
    lines: list[Line]


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    table: Table
    plots: list[Plot]


def parts(results: Results) -> list[Part]:
    """Make the sections of these results.

    :raises ResultsError: a point has too few samples
    """
    kinds: dict[str, list[Case]] = defaultdict(list)
    for key, case in sorted(results.cases.items()):
        kinds[key.kind].append(case)
    found = [_real(kinds["control"])] if kinds["control"] else []
    found += [_virtual(title, cases) for title, cases in _by_tensors(kinds["engine"]).items()]
    return found + ([_start(kinds["start"])] if kinds["start"] else [])


def _real(cases: list[Case]) -> Part:
    columns = ("", "ranks", "nodes", "contestant", "step (µs)", "95 % interval", "samples")
    rows: list[tuple[str, ...]] = []
    for case in cases:
        key, middle = case.key, curves.median(case)
        rows.append((key.what, str(key.ranks), str(key.nodes), key.contestant, number(1e6 * middle.middle),
                     interval(middle, 1e6), str(len(case.samples))))  # fmt: skip
    return Part(Table("control plane", columns, rows), [])


def _by_tensors(cases: list[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (case.key.ranks, case.key.arm)):
        found[f"control plane of virtual ranks, {case.key.what.partition(',')[0]}"].append(case)
    return found


def _virtual(title: str, cases: list[Case]) -> Part:
    columns = ("ranks", "arrival", "tensors", "CPU per rank (µs)", "95 % interval", "messages", "MB", "chain",
               "of the busiest rank", "predecessor (counted): messages", "MB", "chain", "MB at rank 0")  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for case in cases:
        middle, facts, old = curves.median(case), case.facts, case.facts["predecessor"]
        rows.append((
            f"{case.key.ranks:,}", _arrival(case), case.key.arm or "single", number(1e6 * middle.middle),
            interval(middle, 1e6), f"{facts['messages']:,}", f"{facts['bytes'] / 1e6:.3g}", str(facts["chain"]),
            str(facts["messages_max"]), f"{old['messages']:,}", f"{old['bytes'] / 1e6:.3g}", str(old["chain"]),
            f"{old['root_bytes'] / 1e6:.3g}",
        ))  # fmt: skip
    shown = [case for case in cases if _arrival(case) in ("first", "in order")]
    inside = "CPU time inside the engine in a step, mean over the ranks: median."
    times = _lines(shown, lambda case: curves.median(case, 1e6))
    time = Plot("time", inside, "CPU time per rank (µs)", times)
    plain = [case for case in shown if not case.key.arm]
    chain = _lines(plain, lambda case: _exact(case.facts["chain"]))
    chain += [
        Line(f"predecessor, {line.label}", line.ranks, line.values, True)
        for line in _lines(plain, lambda case: _exact(case.facts["predecessor"]["chain"]))
    ]
    about = f"The longest chain of messages that wait for each other; hollow: the {MODELLED}."
    return Part(Table(title, columns, rows), [time, Plot("chain", about, "Chain (messages)", chain)])


def _arrival(case: Case) -> str:
    return case.key.what.partition(", ")[2]


def _lines(cases: list[Case], value: Callable[[Case], Median]) -> list[Line]:
    found: dict[str, Line] = {}
    for case in cases:
        label = " ".join(filter(None, (_arrival(case), case.key.arm)))
        line = found.setdefault(label, Line(label))
        line.ranks.append(case.key.ranks)
        line.values.append(value(case))
    return list(found.values())


def _exact(value: float) -> Median:
    return Median(value, value, value)


def _start(cases: list[Case]) -> Part:
    columns = ("step, and which rank", "ranks", "CPU (ms)", "95 % interval", "received (MB)", "peak (MB)", "kept (MB)")
    rows, lines = list[tuple[str, ...]](), dict[str, Line]()
    for case in sorted(cases, key=lambda case: case.key.ranks):
        middle, facts = curves.median(case), case.facts
        rows.append((case.key.what, f"{case.key.ranks:,}", number(1e3 * middle.middle), interval(middle, 1e3),
                     *(f"{facts[name] / 1e6:.3g}" for name in ("received", "peak", "resident"))))  # fmt: skip
        if case.key.what.endswith("rank 0"):
            line = lines.setdefault(case.key.what, Line(case.key.what))
            line.ranks.append(case.key.ranks)
            line.values.append(curves.median(case, 1e3))
    about = "CPU time of rank 0 for the steps of the start, without MPI's: median."
    plot = Plot("time", about, "CPU time (ms)", list(lines.values()))
    return Part(Table("start of very many ranks", columns, rows), [plot])
