# SPDX-License-Identifier: Apache-2.0
"""Contestants in one job that take turns, so that other load on the machine affects all of them alike.

A round is one turn of each contestant, in an order that moves by one per round. A ratio is made within a round; its
median and the 95 % interval of the median (order statistics, no assumption about the distribution) are reported.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import results
from mpi4py import MPI
from shapes import resnet50

import hpccoll

COMM = MPI.COMM_WORLD

PARTS = ("gradients", "one", "overlap")

NUMPY, ELSEWHERE = "NumPy arrays, in place", "NumPy arrays, into others"

Samples = dict[str, list[float]]


@dataclass
class Contestant:
    """A measured call: `run` returns when its results are ready; `verify` raises AssertionError if they are wrong."""

    run: Callable[[], Any]
    verify: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Bar:
    """A limit: the time of `name` divided by that of `reference` is at most `most`; without a reference, in seconds."""

    name: str
    reference: str
    most: float


def measure(contestants: dict[str, Contestant], rounds: int, each: int) -> Samples:
    """Verify all, then time them in turn; return the seconds of one run on the slowest rank, one sample per round.

    :param each: runs per turn
    """
    for name, contestant in contestants.items():
        try:
            contestant.verify()
        except AssertionError as error:
            raise SystemExit(f"{name}: the result is wrong: {error}") from error
        contestant.run()
    names = list(contestants)
    samples: Samples = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            run = contestants[name].run
            COMM.Barrier()
            start = time.perf_counter()
            for _ in range(each):
                run()
            samples[name].append(COMM.allreduce((time.perf_counter() - start) / each, MPI.MAX))
    return samples


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the lower end of the 95 % interval of the median, the median, and the upper end."""
    ordered, n = sorted(values), len(values)
    below, outside = 0, 0.5**n
    while n - 2 * below > 2 and outside + math.comb(n, below + 1) * 0.5**n < 0.025:
        below += 1
        outside += math.comb(n, below) * 0.5**n
    return ordered[below], statistics.median(ordered), ordered[n - 1 - below]


def report(title: str, samples: Samples, bars: list[Bar], records: list[results.Record]) -> None:
    """Print a table of times and ratios on rank 0, and add them to `records`."""
    if COMM.rank:
        return
    print(f"{title}, {COMM.size} ranks", flush=True)
    for name, times in samples.items():
        low, middle, high = (1e6 * value for value in interval(times))
        print(f"    {name:34} {middle:12.1f} us  ({low:.1f} .. {high:.1f})", flush=True)
        records.append({"case": title, "contestant": name, "ranks": COMM.size, "samples": times})
    known = [bar for bar in bars if bar.name in samples and (not bar.reference or bar.reference in samples)]
    records += [_judged(bar, samples) | {"case": title} for bar in known]


def _judged(bar: Bar, samples: Samples) -> results.Record:
    """Print the limit and the result."""
    values, what, unit = samples[bar.name], bar.name, " s"
    if bar.reference:
        values = [mine / theirs for mine, theirs in zip(values, samples[bar.reference], strict=True)]
        what, unit = f"{bar.name} / {bar.reference}", ""
    low, middle, high = interval(values)
    words = "as demanded" if middle <= bar.most else "MORE than demanded"
    words += ", but the interval holds both" if low <= bar.most <= high else ""
    print(f"    {what}: {middle:.3g} ({low:.3g} .. {high:.3g}), at most {bar.most:g}{unit}: {words}", flush=True)
    return {"demanded": what, "found": {"low": low, "median": middle, "high": high}, "most": bar.most}


def random_gradients(options: argparse.Namespace) -> list[np.ndarray]:
    """Return ResNet-50's gradients with this rank's values."""
    shapes = resnet50()[-8:] if options.size == "tiny" else resnet50()
    random = np.random.default_rng(COMM.rank)
    return [random.random(shape, np.float32) for _, shape in shapes]


def check(given: list[np.ndarray], found: list[np.ndarray], factor: float) -> None:
    """Check that the results are `factor` times the sum of all ranks' arrays."""
    assert len(given) == len(found), f"{len(found)} results of {len(given)}"
    for i, (x, result) in enumerate(zip(given, found, strict=True)):
        expected = factor * COMM.allreduce(x.astype(np.float64))
        np.testing.assert_allclose(result.reshape(x.shape), expected, rtol=1e-5, err_msg=f"gradient {i}")


def in_numpy(given: list[np.ndarray], *, in_place: bool = True) -> Contestant:
    """Return a contestant that averages NumPy arrays, an operation each, in place or into existing arrays."""
    host = [x.copy() for x in given]
    results = host if in_place else [np.zeros_like(x) for x in given]
    name = "numpy" if in_place else "elsewhere"

    def run() -> None:
        handles = [
            hpccoll.allreduce_async(x, hpccoll.AVERAGE, name=f"{name}.{i}", out=out)
            for i, (x, out) in enumerate(zip(host, results, strict=True))
        ]
        for handle in handles:
            handle.wait()

    def verify() -> None:
        run()
        check(given, results, 1 / COMM.size)

    return Contestant(run, verify)


def arguments(text: str, rounds: int, parts: Sequence[str] = PARTS) -> argparse.Namespace:
    """Read the command line that these programs share."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each contestant (%(default)s)")
    parser.add_argument("--size", choices=("tiny", "full"), default="full", help="tiny: as a test")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="default: all parts")
    parser.add_argument(
        "--out", type=results.file, help="the file of the results (default: in benchmarks/results/local)"
    )
    return parser.parse_args()


def keep(question: str, options: argparse.Namespace, records: list[results.Record]) -> None:
    """Write the file of this run, on rank 0."""
    if COMM.rank == 0:
        path = options.out or results.LOCAL / f"{question}-{COMM.size}-ranks.jsonl"
        results.write(path, results.facts(question), records)
        print(f"{path}", flush=True)
