# SPDX-License-Identifier: Apache-2.0
"""What the simulated times say: curves beside the published points, and tables."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpccoll.tools.bench import predecessor, training
from hpccoll.tools.model import predict
from hpccoll.tools.study import figures

Run = dict[str, Any]
PLAIN = {"what", "machine", "nodes", "bytes", "rails", "shard", "depth"}
INJECTION, LATENCY, TICK = 23e9, 1.4e-6, 1e-3
"""The figures of Summit in machine.hpp: bytes per second of a node; a message over four links with overheads."""
COMPUTE = (0.05, 0.111, 0.3)
"""Seconds of computing in a step: ResNet-50 in FP32 with a batch of 32 per V100 takes about 0.1."""
NOISE = 0.01
"""Standard deviation of the computing of a rank; what everybody waits for is the slowest."""
PUBLISHED = [  # GPUs, efficiency, source
    (6_144, 0.87, "ResNet-50, Yin et al. 2019"),
    (27_360, 0.907, "DeepLabv3+, Kurth et al. 2018"),
    (27_600, 0.93, "STEMDL, Laanait et al. 2019"),
]


def select(results: list[Run], **wanted: Any) -> list[Run]:
    """Results whose settings are these and, beside them, the plain ones."""
    found = [one for one in results if all(one["asked"].get(k) == v for k, v in wanted.items())]
    return sorted((one for one in found if set(one["asked"]) <= PLAIN | set(wanted)), key=lambda one: one["nodes"])


def batches(results: list[Run], machine: str = "summit", **more: Any) -> dict[int, Callable[[int], float]]:
    """Seconds of a batch of so many bytes, by nodes: a line through the simulated sizes."""
    points: dict[int, list[tuple[int, float]]] = {}
    for one in select(results, what="allreduce", machine=machine, **more):
        if more or (one["asked"]["depth"] == 4 and one["asked"]["rails"] == (6 if machine == "summit" else 8)):
            points.setdefault(one["nodes"], []).append((one["bytes"], one["seconds"]))
    found: dict[int, Callable[[int], float]] = {}
    for nodes, several in points.items():
        (small, least), (large, most) = min(several), max(several)
        if small < large:
            slope = (most - least) / (large - small)
            found[nodes] = lambda n, a=least, b=slope, s=small: max(a * min(1, n / s), a + b * (n - s))  # type: ignore[misc]
    return found


def step(batch: Callable[[int], float], agreeing: float, compute: float, scale: float = 1.0) -> float:
    """Seconds of a step of ResNet-50: the rules of the real engine, simulated batches.

    :param scale: bytes of an element as a share of float32's
    """
    trace = training.trace("resnet50")
    gradients = [(n, share * compute) for n, share in zip(trace.elements, trace.ready, strict=True)]
    free = 0.0
    for moment, elements in predict.raised(gradients, compute, round(4 * scale)):
        for count in predict.fused(elements, round(predict.FUSION_THRESHOLD / 4 / scale)):
            free = max(free, moment + agreeing) + batch(round(4 * scale * count))
    return max(compute, free)


def slowest(ranks: int) -> float:
    """The expected slowest of so many normal computing times, as a factor: about sqrt(2 ln p) deviations."""
    return 1 + NOISE * math.sqrt(2 * math.log(ranks)) if ranks > 1 else 1.0


def efficiencies(results: list[Run], compute: float) -> list[tuple[int, float, float]]:
    """GPUs, the efficiency of a step, and that with noise."""
    agreed = {one["nodes"]: one["seconds"] for one in select(results, what="agreement")}
    found = []
    for nodes, batch in sorted(batches(results).items()):
        near = min(agreed, key=lambda n: abs(math.log(n / nodes)))
        seconds = step(batch, agreed[near], compute)
        found.append((6 * nodes, compute / seconds, compute / (seconds + compute * (slowest(6 * nodes) - 1))))
    return found


# ---- figures ---------------------------------------------------------------------------------------------


def _save(figure: Any, file: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context(figures.STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})


def _ranks_axis(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("GPUs (ranks)")


def draw(results: list[Run], folder: Path) -> None:
    """Write scaling-agreement.svg, scaling-allreduce.svg and scaling-efficiency.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in (("agreement", _agreement), ("allreduce", _allreduce), ("efficiency", _efficiency)):
        _save(figures.drawn(lambda axes, draw_it=function: draw_it(axes, results)), folder / f"scaling-{name}.svg")  # type: ignore[misc]


def _agreement(axes: Any, results: list[Run]) -> None:
    for number, (label, wanted) in enumerate((("fan-out 16 (default)", {}), ("fan-out 4", {"fanout": 4}))):
        several = select(results, what="agreement", **wanted)
        axes.plot([one["ranks"] for one in several], [1e6 * one["seconds"] for one in several], label=label,
                  color=figures.COLOURS[number], marker=figures.MARKERS[number])  # fmt: skip
    ranks = [6 * 4**i for i in range(7)] + [27_648]
    ticks = [TICK / 2 + predecessor.bit_vector(n, 161).chain * LATENCY for n in ranks]
    axes.plot(ranks, [1e6 * seconds for seconds in ticks], color="0.4", linestyle="--", label="bit vector, 1 ms ticks")
    _ranks_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel("Agreement on a step (µs)")


def _allreduce(axes: Any, results: list[Run]) -> None:
    size = 3 << 20
    for number, (label, more) in enumerate((("as it is", {}), ("parts of 64 elements", {"unit": 64}))):
        if more:
            several = [one for one in select(results, what="allreduce", **more) if one["asked"]["bytes"] == size]
            there = [(one["nodes"], one["seconds"]) for one in several if one["asked"]["depth"] == 4]
        else:
            there = [(nodes, batch(size)) for nodes, batch in sorted(batches(results).items())]
        axes.plot([6 * nodes for nodes, _ in there], [1e3 * seconds for _, seconds in there], label=label,
                  color=figures.COLOURS[number], marker=figures.MARKERS[number])  # fmt: skip
    nodes = sorted(batches(results))
    floor = [1e3 * 2 * (n - 1) / n * size / INJECTION for n in nodes]
    axes.plot([6 * n for n in nodes], floor, color="0.4", linestyle=":", label="floor of the links")
    _ranks_axis(axes)
    axes.set_ylabel("Allreduce of 3 MiB (ms)")
    axes.set_ylim(bottom=0)


def _efficiency(axes: Any, results: list[Run]) -> None:
    for number, compute in enumerate(COMPUTE):
        several = efficiencies(results, compute)
        axes.plot([n for n, _, _ in several], [plain for _, plain, _ in several], color=figures.COLOURS[number],
                  label=f"step of {1e3 * compute:.0f} ms", marker=figures.MARKERS[number])  # fmt: skip
        axes.plot([n for n, _, _ in several], [noisy for _, _, noisy in several], color=figures.COLOURS[number],
                  linestyle=":", label="with noise of 1 %" if number == 0 else None)  # fmt: skip
    for number, (ranks, value, source) in enumerate(PUBLISHED):
        axes.plot([ranks], [value], color="black", linestyle="none", marker="*x+"[number], markersize=7, label=source)
    _ranks_axis(axes)
    axes.set_ylabel("Parallel efficiency")
    axes.set_ylim(0.5, 1.05)


# ---- tables ----------------------------------------------------------------------------------------------


def tables(results: list[Run]) -> str:
    """All results as Markdown: what was asked for beside the defaults, and microseconds."""
    lines = ["| nodes | ranks | what | us | floor of the links, us |", "|---|---|---|---|---|"]
    for one in sorted(results, key=lambda one: (one["what"], one["asked"]["machine"], one["nodes"], one["seconds"])):
        asked = one["asked"]
        more = ", ".join(f"{k} {v}" for k, v in asked.items() if k not in ("what", "machine", "nodes", "bytes"))
        floor, size = "", ""
        if one["what"] == "allreduce":
            wire = 25e9 * 4 if asked["machine"] == "frontier" else INJECTION
            floor = f"{1e6 * 2 * (one['nodes'] - 1) / one['nodes'] * one['bytes'] / wire:.0f}"
            size = f" of {one['bytes'] / 2**20:.1f} MiB"
        what = f"{asked['machine']}, {one['what']}{size}{', ' if more else ''}{more}"
        lines.append(f"| {one['nodes']:,} | {one['ranks']:,} | {what} | {1e6 * one['seconds']:.1f} | {floor} |")
    lines += ["", "| GPUs | " + " | ".join(f"step of {1e3 * c:.0f} ms | with noise" for c in COMPUTE) + " |"]
    lines.append("|---" * (1 + 2 * len(COMPUTE)) + "|")
    several = [efficiencies(results, compute) for compute in COMPUTE]
    for row in zip(*several, strict=True):
        lines.append(f"| {row[0][0]:,} | " + " | ".join(f"{a:.3f} | {b:.3f}" for _, a, b in row) + " |")
    return "\n".join(lines)
