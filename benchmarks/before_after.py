# SPDX-License-Identifier: Apache-2.0
"""How much slower or faster did a change make hpccoll? Two built checkouts are measured in turn, in one run.

    python benchmarks/before_after.py --before ../before small allreduce resnet50

A launch starts the same program in both trees. Both jobs stay alive, and one sleeps while the other measures a burst of
a few milliseconds, so that both see the same machine. A pair is a burst of each; their order alternates. A pair during
which the ranks' cores came nearer to each other or farther apart is left out; pairs at each distance have a row. The
time of a burst is that of its fastest repetition, because other load on the machine only adds time. A row of the table
has the median of the ratio after / before over all pairs, its standard error between launches, the quartiles of the
pairs, and the ratio of the fastest bursts of all. The program does not judge the times.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import hosts
import numpy as np
import results
from bursts import Job
from run import HERE, ROOT, Place, environment

from hpccoll.tools.bench import distance

QUESTIONS = {  # program, options
    "small": ("small", []),
    "allreduce": ("allreduce", []),
    "operations": ("operations", []),
    "many_tensors": ("many_tensors", []),
    "resnet50": ("resnet50", []),
    "torch_optimizer": ("torch_optimizer", []),
    "hosts": ("allreduce", ["--smallest", str(64 << 10), "--largest", str(8 << 20)]),
}
TURNS = 4  # times the pairs that are wanted, at most, where cores move
REPETITION = 1e-3  # seconds; a repetition has as many calls as take this time
FEWEST = 3  # repetitions of a burst, so that an interrupted one does not count


class Pair(NamedTuple):
    before: float  # seconds of one call
    after: float
    line: float  # seconds of a cache line between the ranks' cores; 0: not known


@dataclass(frozen=True)
class Question:
    name: str
    place: Place
    options: list[str]  # for the program


def start(tree: Path, question: Question, folder: Path, timeout: float) -> Job:
    """Start the question's program in this tree."""
    program, passed = QUESTIONS[question.name]
    place = question.place
    ranks = ["-H", place.hosts] if place.hosts else ["-np", str(place.ranks), "--nodes", str(place.nodes)]
    python = [sys.executable, "-P"]  # hpccoll comes from PYTHONPATH, not from the current folder
    command = [*place.prefix, *python, "-m", "hpccoll", "run", *ranks, "--timeout", str(timeout), *python]
    command += [str(HERE / f"{program}.py"), *passed, *question.options]
    variables = environment(Path(sys.executable).parent, place) | {"PYTHONPATH": f"{tree}:{HERE}"}
    job = Job(command, variables, place.ranks, folder, timeout)
    for hello in job.announced():
        if Path(hello["package"]).resolve().parents[1] != tree:
            job.fail(f"{hello['package']} was imported, not the package of {tree}")
    return job


def pairs_of(before: Job, after: Job, pairs: int, seconds: float) -> list[Pair]:
    """Return the fastest repetition of each burst; the jobs take turns to be first."""
    once = min(min(job.measure(1, 3)["seconds"]) for job in (before, after))
    inner = max(1, int(REPETITION / max(once, 1e-7)))
    repetitions = max(FEWEST, int(seconds / (inner * once)))
    measured: list[Pair] = []
    for i in range(TURNS * pairs):
        jobs = (before, after) if i % 2 else (after, before)
        bursts = {job: job.measure(inner, repetitions) for job in jobs}
        lines = [bursts[job]["line"] for job in (before, after)]
        moved = bursts[jobs[1]]["moved"] or distance.differ(np.array(lines[:1]), np.array(lines[1:]))
        if not moved:
            measured.append(Pair(min(bursts[before]["seconds"]), min(bursts[after]["seconds"]), max(lines)))
        if len(measured) == pairs:
            break
    if not measured:
        print("before_after.py: the cores moved during each pair, so this launch has no row", file=sys.stderr)
    for job in (before, after):
        job.go_on()
    return measured


def launch(question: Question, options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[Pair]]]:
    """Start both jobs; yield each case with its pairs."""
    jobs: list[Job] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            jobs.append(start(options.before, question, Path(folder), options.timeout))
            jobs.append(start(options.after, question, Path(folder), options.timeout))
            while any(cases := [job.announced()[0] for job in jobs]):
                if cases[0] != cases[1]:
                    raise SystemExit(f"{question.name}: {cases[0]} before, but {cases[1]} after")
                yield cases[0], pairs_of(*jobs, options.pairs, options.seconds)
            for job in jobs:
                job.end()
        finally:
            for job in jobs:
                job.stop()


def compare(question: Question, options: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of the cases after each launch, each record over all launches so far."""
    launches = defaultdict(list)
    for _ in range(options.launches):
        for case, pairs in launch(question, options):
            launches[json.dumps(case)].append(pairs)
        yield [
            json.loads(case) | {"distance": where} | figures(some)
            for case, measured in launches.items()
            for where, some in by_distance(measured)
        ]


def by_distance(launches: list[list[Pair]]) -> Iterator[tuple[str, list[list[Pair]]]]:
    """Yield each distance of the cores, and the pairs of each launch that were measured at it; launches have some."""
    bounds = distance.classes([pair.line for pairs in launches for pair in pairs])
    for at in range(-1, len(bounds)):
        some = [[pair for pair in pairs if distance.class_of([pair.line], bounds)[0] == at] for pairs in launches]
        if some := [pairs for pairs in some if pairs]:
            yield distance.text((), [pair.line for pairs in some for pair in pairs]), some


def figures(launches: list[list[Pair]]) -> dict[str, Any]:
    """Return the ratios after / before, and the seconds from which they are computed."""
    ratios = [[pair.after / pair.before for pair in pairs] for pairs in launches]
    before, after, _ = zip(*(pair for pairs in launches for pair in pairs), strict=True)
    medians = [statistics.median(some) for some in ratios]
    error = statistics.stdev(medians) / len(medians) ** 0.5 if len(medians) > 1 else 0.0
    return {
        "ratio": results.quartiles([ratio for some in ratios for ratio in some]),
        "error": error,
        "launches": medians,
        "fastest ratio": min(after) / min(before),
        "before": results.quartiles(before),
        "after": results.quartiles(after),
        "pairs": len(before),
    }


def row(case: dict[str, Any]) -> str:
    ratio = case["ratio"]
    cells = [case["label"], case["variant"]]
    cells += [f"{case[tree]['median'] * 1e6:,.4g}" for tree in ("before", "after")]
    cells += [f"{ratio['median']:.3f} ± {case['error']:.3f}", f"{ratio['low']:.3f} .. {ratio['high']:.3f}"]
    cells += [f"{case['fastest ratio']:.3f}", str(case["pairs"]), case["distance"]]
    return f"| {' | '.join(cells)} |"


HEAD = """| case | variant | before us | after us | after / before | quartiles | of the fastest | pairs | cores |
|---|---|---:|---:|---:|---|---:|---:|---|"""


def revision(tree: Path) -> str:
    """Return the commit that a checkout is at."""
    git = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


@contextlib.contextmanager
def placed(name: str, ranks: int, nodes: int) -> Iterator[Place]:
    """Provide the place of a question's ranks; two hosts exist only while they are measured."""
    if name != "hosts":
        yield Place(ranks, nodes=nodes)
        return
    with hosts.hosts_up(2, "1gbit", ""):
        yield hosts.place(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--before", type=Path, required=True, help="a built checkout")
    parser.add_argument("--after", type=Path, default=ROOT, help="another (default: this one)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1, help="let the ranks act as so many nodes")
    parser.add_argument("--launches", type=int, default=10, help="of both trees")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of bursts per case and launch")
    parser.add_argument("--seconds", type=float, default=0.003, help="of a burst")
    folder = {"type": results.folder, "default": str(results.LOCAL)}
    parser.add_argument("--out", **folder, help="folder for the JSON Lines")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a launch")
    options, passed = parser.parse_known_args()
    options.before, options.after = options.before.resolve(), options.after.resolve()
    for name in options.questions:
        facts = results.facts(name) | {"trees": [revision(tree) for tree in (options.before, options.after)]}
        with placed(name, options.ranks, options.nodes) as place:
            for cases in compare(Question(name, place, passed), options):
                results.write(options.out / f"before-after-{place.stem(name)}.jsonl", facts, cases)
        print("\n".join([f"\n{name}, {place.ranks} ranks\n", HEAD, *map(row, cases)]), flush=True)


if __name__ == "__main__":
    main()
