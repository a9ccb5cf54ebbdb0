# SPDX-License-Identifier: Apache-2.0
"""Results as text, in columns like those of the OSU micro-benchmarks, and as JSON."""

import json
import math
from typing import Any

import numpy as np

from hpccoll.tools.bench import collectives, distance, statistics
from hpccoll.tools.bench.measure import FARTHEST, MEAN, NEAREST, TRIES
from hpccoll.tools.bench.results import Case, Facts, Key, Results, launch_values, warnings

COLUMNS = (
    f"{'# Size':>11} {'Library':<23} {'Median(us)':>11} {'95% interval':>21} {'Avg(us)':>11} {'Min(us)':>10} "
    f"{'Max(us)':>11} {'algbw(GB/s)':>11} {'busbw(GB/s)':>11} {'Iterations':>10}  Distance"
)

ENGINE_COLUMNS = (
    f"{'':>11} {'':<10} {'':<10} {'engine CPU per rank (us)':>32} {'all ranks':>20} {'':>6} {'busiest':>8} "
    f"{'most':>8} | predecessor, by its rules\n"
    f"{'# Ranks':>11} {'Arrival':<10} {'Tensors':<10} {'Median':>10} {'95% interval':>21} "
    f"{'messages':>10} {'MB':>9} {'chain':>6} {'messages':>8} {'KiB/rank':>8} | {'messages':>10} {'MB':>9} "
    f"{'chain':>6} {'MB, rank 0':>10}"
)
START_COLUMNS = (
    f"{'# Ranks':>11} {'Step, and which rank':<28} {'CPU(ms)':>10} {'95% interval(ms)':>19} {'received(MB)':>13} "
    f"{'peak(MB)':>9} {'kept(MB)':>9} {'Samples':>8}"
)


def heading(case: Case, launch: Facts) -> str:
    """Return the lines above a collective's table."""
    key = case.key
    where = f"{key.ranks} rank{'s' if key.ranks > 1 else ''} on {key.nodes} node{'s' if key.nodes > 1 else ''}"
    version = f"hpccoll {launch.get('hpccoll', '?')} {launch.get('revision') or launch.get('build', '')}".strip()
    if key.kind == "engine":
        return f"\n# control plane, virtual ranks: {key.what.partition(',')[0]}\n# {version}\n{ENGINE_COLUMNS}"
    if key.kind == "start":
        return f"\n# start-up, one of very many ranks\n# {version}\n{START_COLUMNS}"
    version += _repeated(case.facts)
    if key.kind == "control":
        return f"\n# control plane: {key.what}, {where}\n# {version}\n{COLUMNS}"
    if key.kind == "step":
        return f"\n# steps of {key.what}, {where}\n# {version}\n{COLUMNS}"
    return f"\n# {key.what}, {key.dtype}, {key.memory} memory, {where}\n# {version}\n{COLUMNS}"


def _repeated(facts: Facts) -> str:
    """Say how the calls were repeated; "" for a file that does not tell."""
    if "warm-up calls" not in facts:
        return ""
    return f"; {facts['warm-up calls']} warm-up calls and up to {TRIES} to try; inputs {facts['inputs']}"


def line(case: Case) -> str:
    """The line of a case.

    A `*` marks an interval wider than requested, `?` too few samples for an interval, `r` the range of few launches.
    """
    key, micro = case.key, case.samples * 1e6
    value, interval = _median(case)
    if key.kind == "engine":
        return engine_line(case)
    if key.kind == "start":
        return start_line(case)
    rates = ["", ""]
    if key.kind == "collective" and key.bytes:
        algbw, busbw = collectives.bandwidths(key.what, key.bytes, key.ranks, value / 1e6)
        rates = [f"{algbw / 1e9:.4g}", f"{busbw / 1e9:.4g}"]
    least, most = case.calls.min(), case.calls.max()
    iterations = f"{len(micro)}x{least}" if least == most else f"{case.calls.sum()}"
    average = f"{1e6 * mean:.2f}" if (mean := osu_average(case)) is not None else ""
    return (
        f"{key.bytes:>11} {key.contestant:<23} {value:>11.2f} {interval:>21} {average:>11} {micro.min():>10.2f} "
        f"{micro.max():>11.2f} {rates[0]:>11} {rates[1]:>11} {iterations:>10}  {distance_of(case)}"
    ).rstrip() + "".join(_at_each_distance(case))


def osu_average(case: Case) -> float | None:
    """Return the mean over the iterations and the ranks, in seconds; None: the file does not have it."""
    if MEAN not in case.parts:
        return None
    return float(np.average(case.parts[MEAN], weights=case.calls))


def distance_of(case: Case) -> str:
    """Return how far the ranks' cores were from each other; `m`: the cores moved while batches were measured."""
    ends = [case.parts[name] for name in (NEAREST, FARTHEST) if name in case.parts]
    found = distance.text(case.facts.get("distance", ()), np.concatenate(ends) if ends else ())
    return f"{found} m" if case.facts.get("batches marked") else found


def _at_each_distance(case: Case) -> list[str]:
    """Return a line with the median at each distance, if the cores had several: a median over all of them is none."""
    lines = []
    several = at_each_distance(case)
    for low, samples in several if len(several) > 1 else ():
        place = f"  at {distance.text((), [low])}"
        lines.append(f"\n{'':>11} {place:<23} {1e6 * np.median(samples):>11.2f} {'':>21} {len(samples)} of "
                     f"{len(case.samples)} samples")  # fmt: skip
    return lines


def at_each_distance(case: Case) -> list[tuple[float, Any]]:
    """Return the samples at each distance of the farthest cores: its smallest latency, and the samples."""
    if FARTHEST not in case.parts:
        return []
    latencies = case.parts[FARTHEST]
    bounds = distance.classes(latencies)
    place = distance.class_of(latencies, bounds)
    return [(low, case.samples[place == i]) for i, low in enumerate(bounds)]


def _median(case: Case, unit: float = 1e6) -> tuple[float, str]:
    """The median, in units of 1/`unit` seconds, and its interval or range as text."""
    found = over_launches(case)
    value = found.middle * unit
    if math.isnan(found.low):
        return value, "? "
    mark = "r" if found.ranged else "*" if case.facts.get("ended") == "limit" else " "
    return value, f"{found.low * unit:.2f} .. {found.high * unit:.2f}{mark}"


def over_launches(case: Case) -> statistics.Median:
    """The median over launches; of a single launch its own, with the interval of this launch, or with nan."""
    several = case.by_launch()
    if len(several) > 1:
        return statistics.estimate(statistics.resampled(several))
    try:
        return statistics.median(case.samples)
    except ValueError:
        return statistics.Median(float(np.median(case.samples)), math.nan, math.nan)


def engine_line(case: Case) -> str:
    """Return a step of virtual ranks, and the counted step of the predecessor."""
    value, interval = _median(case)
    facts, old = case.facts, case.facts["predecessor"]
    return (
        f"{case.key.ranks:>11,} {case.key.what.partition(', ')[2]:<10} {case.key.arm or 'single':<10} {value:>10.2f} "
        f"{interval:>21} {facts['messages']:>10,} {facts['bytes'] / 1e6:>9.3f} {facts['chain']:>6} "
        f"{facts['messages_max']:>8} {facts['memory_max'] / 1024:>8.0f} | {old['messages']:>10,} "
        f"{old['bytes'] / 1e6:>9.3f} {old['chain']:>6} {old['root_bytes'] / 1e6:>10.1f}"
    )


def start_line(case: Case) -> str:
    """Return a step of the start of one rank."""
    value, interval = _median(case, 1e3)
    facts = case.facts
    return (
        f"{case.key.ranks:>11,} {case.key.what:<28} {value:>10.2f} {interval:>19} "
        f"{facts['received'] / 1e6:>13.3f} {facts['peak'] / 1e6:>9.2f} {facts['resident'] / 1e6:>9.2f} "
        f"{len(case.samples):>8}"
    )


def same_table(key: Key) -> tuple[Any, ...]:
    """Return a key that is equal for the cases of one table."""
    if key.kind == "engine":
        return (key.kind, key.what.partition(",")[0])
    if key.kind == "start":
        return (key.kind,)
    return (key.kind, key.what, key.dtype, key.memory, key.ranks, key.nodes)


def text(results: Results) -> str:
    """Return all tables, then the warnings."""
    lines: list[str] = []
    order = {name: i for i, name in enumerate(collectives.COLLECTIVES)}
    cases = sorted(
        results.cases.values(), key=lambda c: (order.get(c.key.what, 99), same_table(c.key), c.key.bytes, c.key.ranks)
    )
    before: tuple[Any, ...] = ()
    for case in cases:
        if same_table(case.key) != before:
            before = same_table(case.key)
            lines.append(heading(case, results.launches[0] if results.launches else {}))
        lines.append(line(case))
    lines += ["", *closing(results)]
    return "\n".join(lines).lstrip("\n")


def closing(results: Results) -> list[str]:
    """Return the lines below the tables: launches and warnings."""
    count = len(results.launches)
    lines = [f"# {count} launch{'es' if count > 1 else ''}; every result was verified before and after its timing"]
    if any(not case.facts.get("verified") for case in results.cases.values()):
        lines = [f"# {count} launch{'es' if count > 1 else ''}"]
    return (
        lines
        + _about_columns(results)
        + _about_intervals(results)
        + [f"# warning: {warning}" for warning in warnings(results)]
    )


def _about_columns(results: Results) -> list[str]:
    """Explain the average, the iterations and the distances."""
    cases = results.cases.values()
    lines = []
    if any(MEAN in case.parts for case in cases):
        lines.append(
            "# Median, Min, Max: the slowest rank's times; Avg: the mean over iterations and ranks, as in OSU's"
        )
        lines.append("# Iterations: samples x calls of each")
    if any(FARTHEST in case.parts for case in cases):
        lines.append("# Distance: of the cores of ranks that follow each other, one way of a cache line")
    left = sum(case.facts.get("batches left out", 0) for case in cases)
    if left:
        lines.append(f"# {left} batches are left out, for the cores' distance changed while they were measured")
    if any(case.facts.get("batches marked") for case in cases):
        lines.append("# m: the distance changed so often that batches are kept during which it did")
    return lines


def _about_intervals(results: Results) -> list[str]:
    """Explain the intervals of one launch, and the ranges of a few."""
    counts = {len(np.unique(case.launch)) for case in results.cases.values()}
    lines = (
        ["# the intervals are of one launch; another launch may differ by more: --launches 6"] if 1 in counts else []
    )
    if any(1 < count < statistics.ENOUGH for count in counts):
        lines.append(f"# r: the range of the launches' medians; an interval needs {statistics.ENOUGH} launches")
    return lines


def described(results: Results) -> str:
    """Return the output of `show --facts`: the conditions of the launches."""
    names = ("date", "command", "hpccoll", "build", "revision", "launcher", "job", "ranks", "nodes")
    lines = [f"{name}: {launch_values(results.launches, name)}" for name in names]
    for launch in results.launches[:1]:
        lines += [f"machine: {launch.get('machine')}", f"packages: {launch.get('packages')}"]
        hosts = dict.fromkeys(rank.get("host") for rank in launch.get("placement", []))
        lines.append(f"hosts: {', '.join(map(str, hosts))}")
    return "\n".join(lines)


def as_json(results: Results) -> str:
    """Return all cases with their statistics, and the launches, as one JSON document."""
    return json.dumps({"launches": results.launches, "cases": [_record(c) for c in results.cases.values()],
                       "warnings": warnings(results)}, indent=1)  # fmt: skip


def _record(case: Case) -> Facts:
    key = case.key
    found: Facts = {name: getattr(key, name) for name in ("kind", "what", "library", "arm", "dtype", "memory", "net")}
    found |= {"ranks": key.ranks, "nodes": key.nodes, "bytes": key.bytes, "samples": len(case.samples), **case.facts}
    found |= {"min_s": float(case.samples.min()), "max_s": float(case.samples.max())}
    found |= interval(case)
    found |= {"mean_of_ranks_s": osu_average(case), "iterations": int(case.calls.sum())}
    found["distances"] = [{"line_s": low, "samples": len(some), "median_s": float(np.median(some))}
                          for low, some in at_each_distance(case)]  # fmt: skip
    if key.kind == "collective" and key.bytes:
        algbw, busbw = collectives.bandwidths(key.what, key.bytes, key.ranks, found["median_s"])
        found |= {"algbw_bytes_per_s": algbw, "busbw_bytes_per_s": busbw}
    return found


def interval(case: Case) -> Facts:
    """The median, and the interval of one launch, the range of a few, or the interval over several."""
    found, launches = over_launches(case), len(np.unique(case.launch))
    low, high = (None, None) if math.isnan(found.low) else (found.low, found.high)
    of = "samples of a launch" if launches == 1 else "range of launches" if found.ranged else "launches"
    return {"median_s": found.middle, "low_s": low, "high_s": high, "interval": of, "launches": launches}
