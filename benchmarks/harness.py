# SPDX-License-Identifier: Apache-2.0
"""Measures a question: the same verification and report for hpccoll and for each of its peers.

A program of this folder answers one question. It yields cases for one library (`--library`). run.py starts it several
times in each library's environment, in turn, so that all libraries see the same machine in the same minutes. The loop
is that of `hpccoll bench`: it writes the inputs before each call, and measures how far the ranks' cores are from each
other. It uses mpi4py for every library, so that it disturbs all of them alike.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import bursts
import numpy as np
from libraries import Library, open_library
from mpi4py import MPI
from numpy.typing import NDArray
from questions import QUESTIONS
from results import quartiles

from hpccoll.tools.bench import distance, statistics
from hpccoll.tools.bench.measure import FARTHEST, Limits, in_turn, sample
from hpccoll.tools.bench.ranks import MpiRanks

COMM = MPI.COMM_WORLD
TINY = "tiny"  # the size of a smoke test: everything runs and is verified, the times mean nothing


@dataclass
class Case:
    """One point of a table: `run` is timed after `verify` has passed."""

    variant: str  # "in place", "one group", ...
    label: str  # "64 KiB", "161 gradients", ...
    run: Callable[[], object]
    verify: Callable[[], None]
    bytes: int = 0  # payload of one rank
    write: Callable[[], object] | None = None  # writes the input before each run, which takes no part in the time
    once: bool = False  # the run itself is long: no repetition
    figures: Callable[[float], dict[str, float]] = lambda seconds: {}  # other quantities, computed from the median time


@dataclass
class Result:
    library: str
    version: str
    variant: str
    label: str
    bytes: int
    ranks: int
    samples: list[float]  # seconds of one operation on the slowest rank, one per repetition
    figures: dict[str, float]
    lines: list[float] = field(default_factory=list)
    """Seconds of a cache line between the farthest neighbours on a host, one per repetition; 0: not known."""
    distances: tuple[str, ...] = ()
    """Names of the distances of the ranks' cores, where the system knows them."""


Cases = Callable[[Library, argparse.Namespace], Iterator[Case]]


@dataclass
class Samples:
    """The slowest rank's time of each repetition, and the distance of the cores in each."""

    seconds: list[float]
    lines: list[float] = field(default_factory=list)
    distances: tuple[str, ...] = ()


def measure(case: Case, limits: Limits) -> Samples:
    """Time `case.run`: repetitions long enough for the clock, started together."""
    if case.once:
        COMM.Barrier()
        return Samples([COMM.allreduce(sample(case.run, None, 1), MPI.MAX)])
    timed = in_turn([case.run], MpiRanks(MPI), limits, [case.write if limits.fresh else None])[0]
    return Samples(timed.samples, timed.parts[FARTHEST], tuple(timed.names))


class Bursts:
    """Measures on request (bursts.py)."""

    def __init__(self, fresh: bool) -> None:
        self.fresh = fresh
        self.distances = distance.Distances(MpiRanks(MPI))

    def measure(self, case: Case, inner: int, repetitions: int) -> dict[str, object]:
        """Return the slowest rank's seconds of one call, per repetition, and of a cache line (0: not known)."""
        write = case.write if self.fresh else None
        sample(case.run, write, 1)  # after the sleep, and after the other job
        samples = np.empty(repetitions)
        for i in range(repetitions):
            COMM.Barrier()
            samples[i] = sample(case.run, write, inner)
        COMM.Allreduce(MPI.IN_PLACE, samples, MPI.MAX)
        moved = self.distances.moved()
        return {"seconds": samples.tolist(), "line": self.distances.ends()[1], "moved": moved}


class Remembered(dict[str, float]):
    """Median seconds of cases that a later case is compared with."""

    def figures(self, name: str) -> Callable[[float], dict[str, float]]:
        """Return a function for Case.figures that remembers the time by this name, and gives no figures."""

        def remember(seconds: float) -> dict[str, float]:
            self[name] = seconds
            return {}

        return remember


def random_data(rank: int, count: int, dtype: object = np.float32) -> NDArray[np.float32]:
    """Return the contribution of rank `rank`; every rank can compute it, and so check the sum."""
    values = np.random.default_rng([7, rank]).standard_normal(count, dtype=np.float32)
    return values.astype(dtype)


def check_sum(result: NDArray[np.float32], count: int, dtype: object = np.float32, tolerance: float = 1e-5) -> None:
    """Compare with the float64 sum of all ranks' random data; values that cancel were rounded, too."""
    inputs = [random_data(rank, count, dtype).astype(np.float64) for rank in range(COMM.size)]
    expected, size = sum(inputs), sum(np.abs(x) for x in inputs)
    wrong = ~(np.abs(result.astype(np.float64) - expected) <= tolerance * size)  # also where the result is NaN
    if wrong.any():
        where = int(np.flatnonzero(wrong)[0])
        values = f"{result[where]} instead of {expected[where]}"
        raise AssertionError(f"{int(wrong.sum())} of {count} sums are wrong, the first at {where}: {values}")


def size_label(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size} B"


def library_name(word: str) -> str:
    if word in ("torch", "pytorch", "ddp"):
        raise argparse.ArgumentTypeError(f"{word} has no collectives of its own on CPUs; they are Gloo's: gloo")
    return word


def main(question: str, cases: Cases, add_arguments: Callable[[argparse.ArgumentParser], None] | None = None) -> None:
    """Run the command line that all questions share."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--library", default="hpccoll", choices=QUESTIONS[Path(sys.argv[0]).stem], type=library_name)
    parser.add_argument("--seconds", type=float, default=0.5, help="time spent on each case")
    parser.add_argument("--most", type=int, default=400, help="repetitions at most")
    parser.add_argument(
        "--out",
        help="append the results to this file, a JSON line each; to a new one, if it ends with / or is a folder",
    )
    parser.add_argument("--size", choices=(TINY, "full"), default="full")
    parser.add_argument(
        "--inputs", choices=("written", "kept"), default="written", help="write the inputs before each call, or never"
    )
    parser.add_argument("--bursts", metavar="SOCKET", help="measure when told to (before_after.py)")
    if add_arguments:
        add_arguments(parser)
    options = parser.parse_args()
    try:
        library = open_library(options.library)
    except ModuleNotFoundError as error:
        reason = f"--library {options.library}: {error} in the environment of {sys.executable}"
        sys.exit(reason if COMM.rank == 0 else 1)
    try:
        if options.bursts:
            hello = {"rank": COMM.rank, "package": sys.modules["hpccoll"].__file__}
            bursts.serve(options.bursts, hello, cases(library, options), Bursts(options.inputs == "written").measure)
        else:
            _answer(library, cases(library, options), options)
    finally:
        library.close()


def _answer(library: Library, cases: Iterable[Case], options: argparse.Namespace) -> None:
    """Verify, time and report each case."""
    out = None if COMM.rank or not options.out else file_for(options.out)
    limits = Limits(
        width=0, seconds=0 if options.size == TINY else options.seconds, most=options.most, least=statistics.LEAST,
        warmup=1, fresh=options.inputs == "written",
    )  # fmt: skip
    for case in cases:
        case.verify()
        found = measure(case, limits)
        figures = case.figures(float(np.median(found.seconds)))
        identity = (library.name, library.version, case.variant, case.label, case.bytes, COMM.size)
        _report(Result(*identity, found.seconds, figures, found.lines, found.distances), out)


def file_for(out: str) -> Path:
    """Name a file of this job: on some file systems, jobs that run at the same time cannot share a file."""
    path = Path(out)
    if not out.endswith("/") and not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path, prefix=f"{COMM.size}-ranks-", suffix=".jsonl", delete=False) as file:
        return Path(file.name)


def _report(result: Result, out: Path | None) -> None:
    if COMM.rank:
        return
    low, middle, high = (f"{seconds * 1e6:.1f}" for seconds in quartiles(result.samples).values())
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result.figures.items())
    what = f"{result.library:10} {result.variant:24} {result.label:16}"
    where = distance.text(result.distances, result.lines)
    print(f"{what} {middle:>11} us  ({low} .. {high})  {where}  {figures}".rstrip(), flush=True)
    if out:
        with out.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
