# SPDX-License-Identifier: Apache-2.0
"""Measure a question with hpccoll and every installed peer, in turn, and print the results side by side.

    python benchmarks/run.py resnet50 --ranks 2 4

Each peer has a separate virtual environment beside the project (benchmarks/README.md has the commands that make it). A
missing peer is left out, with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import results
from questions import QUESTIONS

from hpccoll.tools.bench import distance
from hpccoll.tools.numbers import whole

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MPIS = ("openmpi", "mpich", "intelmpi")
Result = dict[str, Any]  # a line of a program's --out, and later its median and quartiles


@dataclass(frozen=True)
class Contestant:
    library: str  # as libraries.py knows it
    folder: str  # virtual environment

    @property
    def reason_missing(self) -> str:
        """Return why it cannot run; empty if it can."""
        return "" if (self.programs / "mpirun").exists() else f"no {self.folder}"

    @property
    def programs(self) -> Path:
        return ROOT / self.folder / "bin"


CONTESTANTS = (
    Contestant("memcpy", ".venv"),
    Contestant("hpccoll", ".venv"),
    Contestant("mpi", ".venv"),
    Contestant("mpi", ".venv-mpich"),
    Contestant("mpi", ".venv-impi"),
    Contestant("gloo", ".venv-torch"),
    Contestant("horovod", ".venv-horovod"),
)


@dataclass(frozen=True)
class Place:
    """The place of a run's ranks: this machine, or hosts on which a prefix runs commands."""

    ranks: int
    prefix: tuple[str, ...] = ()  # a command that runs another
    hosts: str = ""  # in mpirun's form
    variables: tuple[tuple[str, str], ...] = ()
    nodes: int = 1  # number of nodes into which this machine is split

    def stem(self, question: str) -> str:
        """Return the name of the file for results."""
        return f"{question}-{self.ranks}-ranks" + (f"-{self.nodes}-nodes" if self.nodes > 1 else "")


def environment(programs: Path, place: Place) -> dict[str, str]:
    """Return the caller's variables, without those that would change one contestant only; its programs come first."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HPCCOLL_", "HOROVOD_", "OMPI_", "I_MPI_"))
    }
    env["PATH"] = f"{programs}:{Path(sys.executable).parent}:{env['PATH']}"
    env["PYTHONPATH"] = str(ROOT)  # peers measure the distance of the cores with the package of this tree
    return env | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | dict(place.variables)


def ask(question: str, contestant: Contestant, place: Place, options: list[str], timeout: float) -> list[Result]:
    """Run one program, with the binding that `hpccoll run` chooses for its MPI; return its results."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.jsonl"
        command = [
            *place.prefix,
            sys.executable,
            "-m",
            "hpccoll",
            "run",
            "--launcher",
            contestant.programs / "mpirun",
        ]
        command += ["-H", place.hosts] if place.hosts else ["-np", place.ranks, "--nodes", place.nodes]
        command += ["--timeout", timeout, contestant.programs / "python", HERE / f"{question}.py"]
        command += ["--library", contestant.library, "--out", out, *options]
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=environment(contestant.programs, place), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in out.read_text().splitlines()]


def ask_all(question: str, libraries: Sequence[str], place: Place, options: argparse.Namespace) -> list[Result]:
    """Measure every present contestant in turn, `options.rounds` times."""
    answers: list[Result] = []
    for number in range(options.rounds):
        for contestant in CONTESTANTS:
            if contestant.library not in (options.libraries or libraries):
                continue
            if contestant.library not in libraries:
                if number == 0:
                    print(f"{contestant.library} left out: {question} is not for it", file=sys.stderr)
            elif not contestant.reason_missing:
                answers += ask(question, contestant, place, options.passed_on, options.timeout)
            elif number == 0:
                print(f"{contestant.library} left out: {contestant.reason_missing}", file=sys.stderr)
    return merge(answers)


def merge(answers: list[Result]) -> list[Result]:
    """Merge the results of each case from several rounds."""
    cases: dict[tuple[str, ...], Result] = {}
    for result in answers:
        key = (result["label"], result["library"], result["variant"])
        if key in cases:
            for name in ("samples", "lines", "distances"):
                cases[key][name] += result[name]
        else:
            cases[key] = result
    at_each = [one for result in cases.values() for one in at_each_distance(result, cases.values())]
    return [result | results.quartiles(result["samples"]) for result in at_each]


def at_each_distance(result: Result, cases: Iterable[Result]) -> Iterator[Result]:
    """Divide a result by the distances of the cores at which all these cases were measured."""
    bounds = distance.classes([seconds for case in cases for seconds in case["lines"]])
    lines = np.array(result["lines"] or [0.0] * len(result["samples"]))
    places = distance.class_of(lines, bounds)
    for place in sorted(set(places)):
        some = np.flatnonzero(places == place)
        samples = [result["samples"][i] for i in some]
        where = distance.text(sorted(set(result["distances"])), lines[some])
        yield result | {"samples": samples, "lines": lines[some].tolist(), "distance": where, "place": int(place)}


def refuse_none(question: str, cases: list[Result]) -> list[Result]:
    """Refuse an empty table.

    :raises SystemExit: nothing was measured
    """
    if not cases:
        raise SystemExit(f"{question}: nothing was measured: none of the libraries asked for is there, see above")
    return cases


def table(cases: list[Result]) -> str:
    """Return Markdown: a line per case and distance of the cores.

    It has the ratios to the floor and to the best MPI of this label, variant and distance.
    """
    lines = [
        "| what | library | variant | median us | quartiles | x memcpy | x best MPI | cores |",
        "|---|---|---|---:|---|---:|---:|---|",
    ]
    groups = defaultdict(list)
    for result in cases:
        groups[result["label"]].append(result)
    for label, group in groups.items():
        for result in group:
            there = [r for r in group if r["place"] == result["place"]]
            floor = best([r for r in there if r["library"] == "memcpy"], result["variant"])
            mpi = best([r for r in there if r["library"] in MPIS], result["variant"])
            ratios = " | ".join(f"{result['median'] / other:.2f}" if other else "" for other in (floor, mpi))
            micro = [f"{result[name] * 1e6:.1f}" for name in ("median", "low", "high")]
            lines.append(
                f"| {label} | {result['library']} {result['version']} | {result['variant']} "
                f"| {micro[0]} | {micro[1]} .. {micro[2]} | {ratios} | {result['distance']} |"
            )
            if result["figures"]:
                lines[-1] += " " + ", ".join(f"{name} {value:.4g}" for name, value in result["figures"].items())
    return "\n".join(lines)


def best(cases: list[Result], variant: str) -> float | None:
    """Return the fastest time of the same variant, or of all variants if no case has it."""
    same = [r["median"] for r in cases if r["variant"] == variant] or [r["median"] for r in cases]
    return min(same, default=None)


def save(stem: str, cases: list[Result], folder: Path, facts: dict[str, object]) -> None:
    """Write JSON Lines with medians and quartiles, and HDF5 with every sample."""
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{stem}.h5", "w") as file:
        file.attrs.update({name: str(value) for name, value in facts.items()})
        for result in cases:
            where = f"{result['label']}/{result['library']}/{result['variant']}/{result['distance'] or 'any distance'}"
            series = file.create_dataset(where, data=result["samples"])
            series.attrs.update(unit="s", bytes=result["bytes"], version=result["version"])
    dropped = ("samples", "lines", "distances")
    slim = [
        {name: value for name, value in result.items() if name not in dropped} | {"repetitions": len(result["samples"])}
        for result in cases
    ]
    results.write(folder / f"{stem}.jsonl", facts, slim)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=whole(1), default=3, help="turns of each library")
    names = dict.fromkeys(contestant.library for contestant in CONTESTANTS)
    parser.add_argument("--libraries", nargs="+", choices=[*names], help="only these; mpi: all MPIs")
    folder = {"type": results.folder, "default": str(results.LOCAL)}
    parser.add_argument("--out", **folder, help="folder for JSON Lines and HDF5")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    return parser


def facts(question: str, place: Place) -> dict[str, object]:
    return results.facts(question) | {"ranks": place.ranks, "nodes": place.nodes}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], help="default: all")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1], help="let the ranks act as so many nodes")
    options, options.passed_on = parser.parse_known_args()
    for question in options.questions or QUESTIONS:
        for place in (Place(ranks, nodes=nodes) for ranks in options.ranks for nodes in options.nodes):
            about = facts(question, place)
            cases = refuse_none(question, ask_all(question, QUESTIONS[question], place, options))
            print(f"\n{question}, {place.ranks} ranks, nodes: {place.nodes}\n\n{table(cases)}", flush=True)
            save(place.stem(question), cases, options.out, about)


if __name__ == "__main__":
    main()
