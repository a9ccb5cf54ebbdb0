# SPDX-License-Identifier: Apache-2.0
"""`hpccoll tune`: measures candidates for each knob in turn with the defaults, and writes those that are faster."""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpccoll import config, durable
from hpccoll.errors import HpccollError
from hpccoll.tools.bench import start, statistics, training
from hpccoll.tools.bench.results import Results, ResultsError
from hpccoll.tools.launch import installed
from hpccoll.tools.numbers import above_zero, whole, zero_or_more
from hpccoll.tools.tune import choose

STEP, LARGE = ("training",), ("allreduce", "--sizes", "64K,1M,16M")
CROSSOVERS = ("allreduce", "--sizes", "4K,32K,256K,2M")
CANDIDATES: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "fusion_threshold": (STEP, (4 << 20, 64 << 20)),
    "raise_bytes": (STEP, (1 << 20, 16 << 20)),
    "raise_window": (STEP, (0.0005, 0.005)),
    "chunk_bytes": (LARGE, (64 << 10, 256 << 10, 1 << 20)),
    "algorithm": (LARGE, ("direct", "stages", "ring")),
    "latency_bytes": (CROSSOVERS, (5_000, 80_000, 320_000)),
    "rails": (LARGE, (1, 2)),
}
"""The measured workload of each knob, and its candidates."""
BETWEEN_NODES = ("algorithm", "latency_bytes", "rails")
"""Knobs that have an effect on several nodes only."""
ALL = "all choices"
Measure = Callable[[Sequence[str], Mapping[str, Mapping[str, Any]]], Results]
"""Measures a workload (words of `hpccoll bench`) with the defaults and with arms, in turn."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll tune`."""
    parser = commands.add_parser("tune", help="find knobs for this machine by measuring, and write a site file")
    parser.add_argument("-np", "-n", dest="ranks", type=whole(1), help="ranks (default: one per core)")
    parser.add_argument("--nodes", default="1", metavar="N", help="let the ranks act as N nodes")
    parser.add_argument("--launches", type=int, default=5, metavar="N", help="launches of each measurement (5)")
    parser.add_argument("--seconds", type=zero_or_more, default=0.5, help="at most, per case and candidate (0.5)")
    parser.add_argument("--timeout", type=above_zero, default=600, metavar="SECONDS", help="per launch (600)")
    parser.add_argument("--model", default="resnet50", help="the trace of gradients (resnet50)")
    parser.add_argument("--compute", type=zero_or_more, default=0.02, help="seconds of computing in a step (0.02)")
    parser.add_argument("--knobs", default=",".join(CANDIDATES), help="the knobs to try (all)")
    parser.add_argument("--oversubscribed", action="store_true", help="accept more ranks than processors")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.toml", help="the site file")
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Measure and choose.

    :returns: the exit status: 0, 1 if a measurement failed, 2 if the arguments do not fit
    """
    wanted = arguments.knobs.split(",")
    if unknown := [knob for knob in wanted if knob not in CANDIDATES]:
        print(f"hpccoll tune: --knobs {unknown[0]}: there are {', '.join(CANDIDATES)}", file=sys.stderr)
        return 2
    if arguments.launches < statistics.ENOUGH:
        print(f"hpccoll tune: --launches {arguments.launches}: a choice needs intervals, which "
              f"{statistics.ENOUGH} launches have", file=sys.stderr)  # fmt: skip
        return 2
    knobs = [knob for knob in wanted if arguments.nodes != "1" or knob not in BETWEEN_NODES]
    if left_out := [knob for knob in wanted if knob not in knobs]:
        _tell(f"{', '.join(left_out)}: not measured, as they have an effect on several nodes only: --nodes N")
    if not knobs:
        return 2
    if reason := _no_defaults(knobs):
        print(f"hpccoll tune: {reason}", file=sys.stderr)
        return 2
    try:
        durable.check(arguments.out)
    except OSError as error:
        print(f"hpccoll tune: {arguments.out} cannot be written: {error}", file=sys.stderr)
        return 2
    try:
        training.trace(arguments.model)
        text = tuned(knobs, _measure(arguments), _tell)
    except (HpccollError, ValueError) as error:
        print(f"hpccoll tune: {error}", file=sys.stderr)
        return 1 if isinstance(error, ResultsError | ValueError) else 2
    if text is None:
        print("no setting is better than the defaults here: nothing is written")
        return 0
    try:
        durable.write_text(arguments.out, text)
    except OSError as error:
        print(text)
        print(f"hpccoll tune: {arguments.out} was not written: {error}; its text stands above", file=sys.stderr)
        return 1
    print(f"{arguments.out} is written: export HPCCOLL_SITE_FILE={arguments.out.resolve()}")
    return 0


def _no_defaults(knobs: Sequence[str]) -> str:
    """Return why the jobs would not have the defaults of these knobs, which candidates are compared with; "": none."""
    try:
        mine, defaults = config.read(), config.Config()
    except HpccollError as error:
        return str(error)
    changed = [knob for knob in knobs if getattr(mine, knob) != getattr(defaults, knob)]
    if not changed:
        return ""
    return (
        f"{changed[0]} is {getattr(mine, changed[0])} here and not the default, {getattr(defaults, changed[0])}: unset "
        f"{config.variable(changed[0])}, or {config.variable('site_file')}, whose choices the new file would lack"
    )


def tuned(knobs: Sequence[str], measure: Measure, tell: Callable[[str], None]) -> str | None:
    """Choose a value for each knob, and measure all choices together once more.

    :param tell: takes a line for the user
    :returns: the site file; None where the defaults are the best
    :raises ResultsError: a measurement failed
    """
    chosen: dict[str, tuple[Any, choose.Judged]] = {}
    for knob in knobs:
        words, candidates = CANDIDATES[knob]
        judged = choose.judge(measure(words, {f"{knob}={value}": {knob: value} for value in candidates}))
        found = choose.best(judged)
        for tried in judged:
            tell(f"{tried.arm}: {tried.text()}{' (chosen)' if tried is found else ''}")
        if found:
            value = next(value for value in candidates if found.arm == f"{knob}={value}")
            chosen[knob] = (value, found)
    while chosen:
        arm = {knob: value for knob, (value, _) in chosen.items()}
        together = _all_cases(measure, {knob: CANDIDATES[knob][0] for knob in chosen}, arm)
        tell(f"{ALL}: {together.text()}")
        if together.gains:
            return choose.site_file(chosen, together, _heading())
        weakest = max(chosen, key=lambda knob: chosen[knob][1].mean)
        tell(f"{weakest}: left at its default, because all choices together are not better")
        del chosen[weakest]
    return None


def _all_cases(measure: Measure, words: Mapping[str, Sequence[str]], arm: Mapping[str, Any]) -> choose.Judged:
    """Measure an arm with every workload of the choices."""
    ratios: dict[str, statistics.Median] = {}
    for workload in dict.fromkeys(tuple(workload) for workload in words.values()):
        (judged,) = choose.judge(measure(workload, {ALL: arm}))
        ratios |= judged.ratios
    return choose.Judged(ALL, ratios)


def _measure(arguments: argparse.Namespace) -> Measure:
    launch = start.Launch(arguments.ranks or installed.cores(), arguments.nodes, arguments.launches, arguments.timeout)

    def measure(words: Sequence[str], arms: Mapping[str, Mapping[str, Any]]) -> Results:
        words_of_bench = [*words, "--seconds", str(arguments.seconds), "--model", arguments.model]
        words_of_bench += ["--compute", str(arguments.compute), "--place", "out"]
        for name, knobs in arms.items():
            words_of_bench += ["--arm", f"{name}:{','.join(f'{knob}={value}' for knob, value in knobs.items())}"]
        words_of_bench += ["--oversubscribed"] if arguments.oversubscribed else []
        with start.folder_of(None, None) as folder:
            return start.measured(words_of_bench, launch, [], folder)

    return measure


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _heading() -> str:
    date = time.strftime("%Y-%m-%d %H:%M")
    return f"Written by `hpccoll tune` on {platform.node()}, {date}: {' '.join(['hpccoll', *sys.argv[1:]])}"
