# SPDX-License-Identifier: Apache-2.0
"""Presents the simulated times beside bounds and published points, as pictures and as tables."""

import json
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plan
from plan import Run

from hpccoll.tools.bench import predecessor, training
from hpccoll.tools.model import predict
from hpccoll.tools.study import figures

Curves = dict[str, list[tuple[int, float]]]
"""By the name of a curve: GPUs (ranks), and the value."""
Batch = Callable[[int], float]
"""From bytes to the seconds of a batch."""
INJECTION = {"summit": 23e9, "frontier": 100e9}
PER_NODE = {"summit": 6, "frontier": 8}
NODE_RATE = 50e9
"""Bytes per second of a node's link, ranks of a node, and bytes per second of a rank, as in machine.hpp."""
LATENCY, TICK = 1.4e-6, 1e-3
"""A message over four links with overheads; the bit vector's tick."""
SIZE = plan.SIZES[1]
"""Bytes of the allreduce whose time is drawn over the GPUs."""
COMPUTE = (0.05, 0.111)
"""Seconds of computing in a step: ResNet-50 in FP32 with a batch of 32 per V100 takes about 0.1."""
MODELS = {"resnet50": "ResNet-50", "stemdl": "STEMDL"}
PUBLISHED = [  # GPUs, efficiency, source
    (6_144, 0.87, "ResNet-50, Yin et al. 2019"),
    (27_360, 0.907, "DeepLabv3+, Kurth et al. 2018"),
    (27_600, 0.93, "STEMDL, Romero et al. 2022"),
]
HALVED = 6_000
"""GPUs on which the bit vector is twice as fast as the coordinator that it replaced (Romero et al. 2022, abstract)."""
GPUS = (96, 384, 1_536, 6_144, 27_648)
"""GPUs of curves that are calculated."""
ROWS = (96, 6_144, 27_648)
"""GPUs in tables; `python benchmarks/simulator tables` has all runs."""
TABLED = {"summit": (64, 4608), "frontier": (64, 1000)}
"""Nodes in a table."""


def by_asked(results: list[Run]) -> dict[str, Run]:
    """Return the results by what was asked."""
    return {json.dumps(run["asked"], sort_keys=True): run for run in results}


def seconds(results: list[Run], asked: Run) -> float | None:
    """Return the time of this very run, or None if it was not made."""
    found = by_asked(results).get(json.dumps(asked, sort_keys=True))
    return None if found is None else float(found["seconds"])


def numbers_of_nodes(results: list[Run], what: str, machine: str) -> list[int]:
    """Return the numbers of nodes for which there is any such run."""
    return sorted({r["nodes"] for r in results if (r["what"], r["asked"]["machine"]) == (what, machine)})


def usual(results: list[Run], nbytes: int, machine: str = "summit", wire: str = "none") -> dict[int, float]:
    """Return, by nodes, the seconds of a batch of this size as a job makes it."""
    several = numbers_of_nodes(results, "allreduce", machine)
    times = {n: seconds(results, plan.allreduce(n, nbytes, machine, wire=wire)) for n in several}
    return {n: time for n, time in times.items() if time is not None}


def bound(machine: str, nodes: int, nbytes: int, wire: str = "none") -> float:
    """Return the seconds that an allreduce takes at least: those of a node's link, or of a rank's copies and sums."""
    sent = nbytes / (2 if wire == "fp16" else 1)
    copied = (3 - 1 / PER_NODE[machine]) * nbytes
    return max(2 * (nodes - 1) / nodes * sent / INJECTION[machine], copied / NODE_RATE)


# ---- steps -----------------------------------------------------------------------------------------------


def line(points: list[tuple[int, float]]) -> Batch:
    """Return the line through the times of the smallest and the largest batch; below them in proportion."""
    (small, least), (large, most) = min(points), max(points)
    slope = (most - least) / (large - small)
    return lambda n: max(least * min(1, n / small), least + slope * (n - small))


def batches(results: list[Run]) -> dict[int, Batch]:
    """Return, by nodes of Summit, the time of a batch, for numbers of nodes of which two sizes were simulated."""
    points: dict[int, list[tuple[int, float]]] = {}
    for nbytes in sorted({run["asked"]["bytes"] for run in results if run["what"] == "allreduce"}):
        for nodes, time in usual(results, nbytes).items():
            points.setdefault(nodes, []).append((nbytes, time))
    return {nodes: line(several) for nodes, several in points.items() if len(several) > 1}


def step(batch: Batch, agreeing: float, compute: float, model: str = "resnet50") -> float:
    """Return the seconds of a step in FP32, by the rules of the real engine and with simulated batches."""
    trace = training.trace(model)
    gradients = [(n, share * compute) for n, share in zip(trace.elements, trace.ready, strict=True)]
    free = 0.0
    for moment, elements in predict.raised(gradients, compute, 4):
        for count in predict.fused(elements, predict.FUSION_THRESHOLD // 4):
            free = max(free, moment + agreeing) + batch(4 * count)
    return max(compute, free)


def agreements(results: list[Run], **more: Any) -> dict[int, float]:
    """Return, by nodes, the seconds of an agreement."""
    several = numbers_of_nodes(results, "agreement", "summit")
    times = {n: seconds(results, plan.agreement(n, **more)) for n in several}
    return {n: time for n, time in times.items() if time is not None}


def efficiency(results: list[Run], compute: float, model: str) -> list[tuple[int, float]]:
    """Return the share of a step that is computing, if all ranks compute equally fast."""
    agreed, found = agreements(results), []
    for nodes, batch in sorted(batches(results).items()):
        near = min(agreed, key=lambda n: abs(math.log(n / nodes)))
        found.append((6 * nodes, compute / step(batch, agreed[near], compute, model)))
    return found


def coordinated(ranks: int) -> float:
    """Return the efficiency with a coordinator, whose time is in proportion to the ranks; half on HALVED GPUs."""
    return 1 / (1 + ranks / HALVED)


# ---- curves ----------------------------------------------------------------------------------------------


def agreement_curves(results: list[Run]) -> Curves:
    """Return the microseconds of an agreement on a step, and those of the published bit vector with its tick."""
    found: Curves = {}
    for label, more in (("fan-out 16 (default)", {}), ("fan-out 4", {"fanout": 4})):
        found[label] = [(6 * n, 1e6 * time) for n, time in agreements(results, **more).items()]
    ranks = [n for n, _ in found["fan-out 16 (default)"]]
    found["bit vector, 1 ms ticks"] = [
        (n, 1e6 * (TICK / 2 + predecessor.bit_vector(n, 161).chain * LATENCY)) for n in ranks
    ]
    return found


DRAWN = {  # machine, and what travels between nodes
    "Summit, FP32": ("summit", "none"),
    "Summit, FP16 between nodes": ("summit", "fp16"),
    "Frontier, FP32": ("frontier", "none"),
}


def allreduce_curves(results: list[Run]) -> Curves:
    """Return the milliseconds of an allreduce of 3 MiB; each curve is of one machine."""
    return {
        label: [(PER_NODE[machine] * n, 1e3 * t) for n, t in usual(results, SIZE, machine, wire).items()]
        for label, (machine, wire) in DRAWN.items()
    }


def bound_curves(results: list[Run]) -> Curves:
    """Return, for each curve of an allreduce, the milliseconds that it takes at least."""
    return {
        label: [(n, 1e3 * bound(machine, n // PER_NODE[machine], SIZE, wire)) for n, _ in points]
        for (label, points), (machine, wire) in zip(allreduce_curves(results).items(), DRAWN.values(), strict=True)
    }


def efficiency_curves(results: list[Run]) -> Curves:
    """Return the efficiency of the steps of each model, and that with the coordinator of the old Horovod."""
    found = {
        f"{name}, {1e3 * compute:.0f} ms": efficiency(results, compute, model)
        for model, name in MODELS.items()
        for compute in COMPUTE
    }
    return found | {"coordinator, fitted": [(n, coordinated(n)) for n in GPUS]}


# ---- pictures --------------------------------------------------------------------------------------------


def _save(figure: Any, file: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context(figures.STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})


def draw(results: list[Run], folder: Path) -> None:
    """Write scaling-agreement.svg, scaling-allreduce.svg and scaling-efficiency.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in (("agreement", _agreement), ("allreduce", _allreduce), ("efficiency", _efficiency)):
        _save(figures.drawn(lambda axes, draw_it=function: draw_it(axes, results)), folder / f"scaling-{name}.svg")  # type: ignore[misc]


def _plot(axes: Any, curves: Curves) -> None:
    for number, (label, points) in enumerate(curves.items()):
        axes.plot(*zip(*points, strict=True), label=label,
                  color=figures.COLOURS[number], marker=figures.MARKERS[number])  # fmt: skip


def _ranks_axis(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("GPUs (ranks)")


def _agreement(axes: Any, results: list[Run]) -> None:
    *simulated, (label, calculated) = agreement_curves(results).items()
    _plot(axes, dict(simulated))
    axes.plot(*zip(*calculated, strict=True), color="0.4", linestyle="--", label=label)
    # news of all nodes doubles with each message, and a node handles one at a time
    least = [(ranks, 1e6 * LATENCY * math.log2(ranks / 6)) for ranks, _ in calculated if ranks > 6]
    axes.plot(*zip(*least, strict=True), color="0.5", linestyle=":", label="bound, one message at a time")
    _ranks_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel("Agreement on a step (µs)")


def _allreduce(axes: Any, results: list[Run]) -> None:
    _plot(axes, allreduce_curves(results))
    for number, points in enumerate(bound_curves(results).values()):
        label = "bound, in the colour of each" if number == 0 else None
        axes.plot(*zip(*points, strict=True), color=figures.COLOURS[number], linestyle=":", label=label)
    _ranks_axis(axes)
    axes.set_ylabel("Allreduce of 3 MiB (ms)")
    axes.set_ylim(bottom=0)


def _efficiency(axes: Any, results: list[Run]) -> None:
    *simulated, (label, old) = efficiency_curves(results).items()
    _plot(axes, dict(simulated))
    axes.plot(*zip(*old, strict=True), color="0.4", linestyle="--", label=label)
    axes.axhline(1, color="0.5", linestyle=":", label="bound")
    for number, (ranks, value, source) in enumerate(PUBLISHED):
        axes.plot([ranks], [value], color="black", linestyle="none", marker="*x+"[number], markersize=7, label=source)
    _ranks_axis(axes)
    axes.set_ylabel("Parallel efficiency")
    axes.set_ylim(0, 1.05)


# ---- tables ----------------------------------------------------------------------------------------------


def cell(value: float | None, form: str) -> str:
    """Write a value; nothing for None."""
    return "" if value is None else f"{value:{form}}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Write a table whose first column is text, and whose other ones are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def by_ranks(curves: Curves, form: str, ranks: tuple[int, ...] = ROWS) -> str:
    """Write some values of a picture: a row per number of GPUs.

    :param form: the format of a number, as ".3f"
    """
    values = [dict(points) for points in curves.values()]
    return markdown(["GPUs", *curves], [[f"{n:,}", *(cell(of.get(n), form) for of in values)] for n in ranks])


def by_nodes(results: list[Run]) -> str:
    """Write the milliseconds of allreduces by nodes, FP32 and FP16 between nodes, and the bounds for the most nodes."""
    cases = [(nbytes, wire) for nbytes in plan.SIZES for wire in plan.WIRES]
    texts = [f"{nbytes / 2**20:g} MiB{', FP16' if wire == 'fp16' else ''}" for nbytes, wire in cases]
    rows = []
    for machine, numbers in (("summit", plan.SUMMIT), ("frontier", plan.FRONTIER)):
        several = [usual(results, nbytes, machine, wire) for nbytes, wire in cases]
        least = [bound(machine, numbers[-1], nbytes, wire) for nbytes, wire in cases]
        for nodes in TABLED[machine]:
            times = [of.get(nodes) for of in several]
            rows.append([f"{machine.title()}, {nodes:,}", *(cell(time and 1e3 * time, ".3f") for time in times)])
        rows.append([f"{machine.title()}, bound", *(f"{1e3 * time:.3f}" for time in least)])
    return markdown(["nodes", *texts], rows)


def variants(results: list[Run]) -> str:
    """Write what differs from the usual allreduce of 3 MiB on 64 nodes of Summit."""
    usual_64 = plan.allreduce(64, SIZE)
    slow = {"slowness": 2, "slow_node": 5}
    named = [
        ("64 nodes, as they are", usual_64),
        ("one rail, one adapter of two", plan.allreduce(64, SIZE, rails=1)),
        ("`HPCCOLL_ALGORITHM=ring`", usual_64 | {"algorithm": "ring"}),
        ("flat: 384 ranks that share no memory", plan.flat(SIZE)),
        ("one node half as fast", usual_64 | slow),
        ("one link a quarter as fast", usual_64 | {"slow_link": 5, "slowness": 4}),
    ]
    rows = [[text, cell(1e3 * time, ".3f")] for text, run in named if (time := seconds(results, run)) is not None]
    return markdown(["3 MiB in FP32", "ms"], rows)


def orders(results: list[Run]) -> str:
    """Write how the order of the nodes changes an allreduce of 3 MiB."""
    rows = []
    for machine, nodes in (("summit", 72), ("frontier", 512)):
        one = plan.allreduce(nodes, SIZE, machine)
        several = (one, one | {"group": 0}, one | {"group": 0, "order": "random"})
        times = [seconds(results, run) for run in several]
        rows.append([f"{machine.title()}, {nodes}", *(cell(time and 1e3 * time, ".3f") for time in times)])
    return markdown(["3 MiB, ms", "switches known", "not known", "random order"], rows)


def disturbances(results: list[Run]) -> str:
    """Write what disturbs an agreement, and how the fan-out of the tree changes it."""

    def us(nodes: int, **more: Any) -> str:
        return cell(1e6 * (seconds(results, plan.agreement(nodes, **more)) or math.nan), ".0f")

    near = " and ".join([", ".join(us(1024, fanout=k) for k in (2, 4, 8)), us(1024)])
    far = " and ".join([", ".join(us(1024, fanout=k, hop=5e-6) for k in (4, 8)), us(1024, fanout=16, hop=5e-6)])
    text = (
        f"1,536 ranks agree {us(256, late=0.01)} us after one that is 10 ms late, and in "
        f"{us(256, slow_node=40, slowness=10)} us if one node is ten times as slow. 6,144 take {near} us with "
        f"fan-outs of 2, 4, 8 and 16; with 5 us per link, as over TCP, {far} us with 4, 8 and 16."
    )
    return textwrap.fill(text, 120)


def votes(results: list[Run]) -> str:
    """Write how long a blocking call of 8 bytes takes."""
    rows = []
    for nodes in (n for n in plan.VOTERS if n in (64, 4608)):
        parts = [seconds(results, run) for run in (plan.agreement(nodes), plan.few_bytes(nodes))]
        agreed = sum(part or math.nan for part in parts)
        times = [seconds(results, plan.vote(nodes)), agreed, seconds(results, plan.vote(nodes, radix=2))]
        rows.append([f"{nodes:,}", *(cell(1e6 * (time or math.nan), ".1f") for time in times)])
    return markdown(["nodes, us", "votes", "agreement and exchange", "recursive doubling as in MPI"], rows)


def coarseness(results: list[Run]) -> str:
    """Write what coarser simulation changes."""
    changes = []
    for run in plan.compared():
        finest, *coarser = (seconds(results, run | {"precision": precision}) for precision in plan.PRECISIONS)
        changes.append([time / finest - 1 for time in coarser if time and finest])
    least, most = min(map(min, changes)), max(map(max, changes))
    return f"This changes {len(changes)} batches by {100 * least:+.1f} to {100 * most:+.1f} %."


def line_check(results: list[Run]) -> str:
    """Write how well the line through the smaller batches gives the largest one, where that was simulated."""
    few, some, many = (usual(results, nbytes) for nbytes in plan.SIZES)
    parts = []
    for nodes in sorted(set(few) & set(some) & set(many)):
        if nodes >= 64:
            drawn = line([(plan.SIZES[0], few[nodes]), (plan.SOME, some[nodes])])(plan.MANY)
            parts.append(100 * (drawn / many[nodes] - 1))
    return f"For 16 MiB the line is off by {min(parts):+.0f} to {max(parts):+.0f} %."


def dates(results: list[Run]) -> str:
    """Write when the runs were made."""
    days = sorted({run["date"] for run in results})
    return f"The runs are of {' to '.join(dict.fromkeys((days[0], days[-1])))}."


def tables(results: list[Run]) -> str:
    """Return all results as Markdown: the settings, microseconds, and the day of the run."""
    rows = []
    for run in sorted(results, key=lambda run: (run["what"], run["asked"]["machine"], run["nodes"], run["seconds"])):
        asked = run["asked"]
        more = ", ".join(f"{name} {value}" for name, value in asked.items() if name not in ("what", "machine", "nodes"))
        what = f"{asked['machine']}, {run['what']}{', ' if more else ''}{more}"
        rows.append([f"{run['nodes']:,}", what, f"{1e6 * run['seconds']:.1f}", run["date"]])
    return markdown(["nodes", "what", "us", "made"], rows)
