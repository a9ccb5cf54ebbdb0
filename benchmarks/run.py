# SPDX-License-Identifier: Apache-2.0
"""Ask a question of hpccoll and of every peer that is installed, in turn, and print the answers side by side.

    python benchmarks/run.py resnet50 --ranks 2 4

A peer lives in a virtual environment of its own beside the project (benchmarks/README.md says how each is made);
one that is missing is left out with the reason.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

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
        """Empty when it can run."""
        return "" if self.bin("mpirun").exists() else f"no {self.folder}"

    def bin(self, program: str) -> Path:
        return ROOT / self.folder / "bin" / program


CONTESTANTS = (
    Contestant("memcpy", ".venv"),
    Contestant("hpccoll", ".venv"),
    Contestant("mpi", ".venv"),
    Contestant("mpi", ".venv-mpich"),
    Contestant("mpi", ".venv-impi"),
    Contestant("gloo", ".venv-torch"),
    Contestant("horovod", ".venv-horovod"),
)
QUESTIONS = {  # program: libraries asked
    "small": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "allreduce": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "reducescatter": ("hpccoll", "mpi"),
    "many_tensors": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "resnet50": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "overlap": ("hpccoll", "mpi"),
    "torch_optimizer": ("hpccoll", "gloo", "horovod"),
    "torch_ddp": ("hpccoll", "gloo"),
    "torch_overlap": ("hpccoll", "gloo", "horovod"),
    "hierarchy": ("hpccoll",),
    "idle": ("hpccoll",),
    "scaling": ("hpccoll", "mpi", "horovod"),
}


@dataclass(frozen=True)
class Place:
    """Where the ranks of a run are: on this machine, or on hosts that a prefix leads to."""

    ranks: int
    prefix: tuple[str, ...] = ()  # a command that runs another
    hosts: str = ""  # as mpirun has it
    variables: tuple[tuple[str, str], ...] = ()
    nodes: int = 1  # that the ranks of this machine act as

    def stem(self, question: str) -> str:
        """Of the file for results."""
        return f"{question}-{self.ranks}-ranks" + (f"-{self.nodes}-nodes" if self.nodes > 1 else "")


def environment(contestant: Contestant, place: Place) -> dict[str, str]:
    """The caller's, but for what would change one contestant only."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HPCCOLL_", "HOROVOD_", "OMPI_", "I_MPI_"))
    }
    env["PATH"] = f"{ROOT / contestant.folder / 'bin'}:{Path(sys.executable).parent}:{env['PATH']}"
    return env | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | dict(place.variables)


def ask(
    question: str, contestant: Contestant, place: Place, options: list[str], timeout: float
) -> list[Result]:
    """One run of one program, each MPI with the binding that `hpccoll run` chooses for it; its results."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.jsonl"
        command = [
            *place.prefix,
            sys.executable,
            "-m",
            "hpccoll",
            "run",
            "--launcher",
            contestant.bin("mpirun"),
        ]
        command += ["-H", place.hosts] if place.hosts else ["-np", place.ranks, "--nodes", place.nodes]
        command += ["--timeout", timeout, contestant.bin("python"), HERE / f"{question}.py"]
        command += ["--library", contestant.library, "--out", out, *options]
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=environment(contestant, place), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in out.read_text().splitlines()]


def ask_all(
    question: str, libraries: Sequence[str], place: Place, options: argparse.Namespace
) -> list[Result]:
    """Every contestant that is there, in turn, `options.rounds` times."""
    results: list[Result] = []
    for turn in range(options.rounds):
        for contestant in CONTESTANTS:
            if contestant.library not in (options.libraries or libraries):
                continue
            if not contestant.reason_missing:
                results += ask(question, contestant, place, options.passed_on, options.timeout)
            elif turn == 0:
                print(f"{contestant.library} left out: {contestant.reason_missing}", file=sys.stderr)
    return merge(results)


def merge(rounds: list[Result]) -> list[Result]:
    """Results of the same case in several rounds become one."""
    cases: dict[tuple[str, ...], Result] = {}
    for result in rounds:
        key = (result["label"], result["library"], result["way"])
        if key in cases:
            cases[key]["samples"] += result["samples"]
        else:
            cases[key] = result
    for result in cases.values():
        low, middle, high = np.quantile(result["samples"], (0.25, 0.5, 0.75))
        result |= {"low": float(low), "median": float(middle), "high": float(high)}
    return list(cases.values())


def table(results: list[Result]) -> str:
    """Markdown: a line a case; beside it the ratio to the floor and to the best MPI of the same label and way."""
    lines = [
        "| what | library | way | median us | quartiles | x memcpy | x best MPI |",
        "|---|---|---|---:|---|---:|---:|",
    ]
    groups = defaultdict(list)
    for result in results:
        groups[result["label"]].append(result)
    for label, group in groups.items():
        for result in group:
            floor = best([r for r in group if r["library"] == "memcpy"], result["way"])
            mpi = best([r for r in group if r["library"] in MPIS], result["way"])
            ratios = " | ".join(f"{result['median'] / other:.2f}" if other else "" for other in (floor, mpi))
            micro = [f"{result[name] * 1e6:.1f}" for name in ("median", "low", "high")]
            lines.append(
                f"| {label} | {result['library']} {result['version']} | {result['way']} "
                f"| {micro[0]} | {micro[1]} .. {micro[2]} | {ratios} |"
            )
            if result["figures"]:
                lines[-1] += " " + ", ".join(
                    f"{name} {value:.4g}" for name, value in result["figures"].items()
                )
    return "\n".join(lines)


def best(results: list[Result], way: str) -> float | None:
    """The fastest of the same way; where ways differ, the fastest of all."""
    same = [r["median"] for r in results if r["way"] == way] or [r["median"] for r in results]
    return min(same, default=None)


def machine() -> dict[str, object]:
    facts: dict[str, object] = {"cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            facts["processor"] = line.split(":", 1)[1].strip()
            break
    facts["load average before"] = os.getloadavg()[0]
    return facts


def save(stem: str, results: list[Result], folder: Path, facts: dict[str, object]) -> None:
    """JSON with medians and quartiles; HDF5 with every sample."""
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{stem}.h5", "w") as file:
        file.attrs.update({name: str(value) for name, value in facts.items()})
        for result in results:
            series = file.create_dataset(
                f"{result['label']}/{result['library']}/{result['way']}", data=result["samples"]
            )
            series.attrs.update(unit="s", bytes=result["bytes"], version=result["version"])
    slim = [
        {name: value for name, value in result.items() if name != "samples"}
        | {"repetitions": len(result["samples"])}
        for result in results
    ]
    (folder / f"{stem}.json").write_text(json.dumps({**facts, "results": slim}, indent=1) + "\n")


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each library")
    parser.add_argument("--libraries", nargs="+", help="only these")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "local", help="folder for JSON and HDF5"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    return parser


def facts(question: str, place: Place) -> dict[str, object]:
    return {
        "question": question,
        "command": " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "ranks": place.ranks,
        "nodes": place.nodes,
        "machine": machine(),
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], help="default: all")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[1], help="let the ranks act as so many nodes"
    )
    options, options.passed_on = parser.parse_known_args()
    for question in options.questions or QUESTIONS:
        for place in (Place(ranks, nodes=nodes) for ranks in options.ranks for nodes in options.nodes):
            about = facts(question, place)
            results = ask_all(question, QUESTIONS[question], place, options)
            print(f"\n{question}, {place.ranks} ranks, nodes: {place.nodes}\n\n{table(results)}", flush=True)
            save(place.stem(question), results, options.out, about)


if __name__ == "__main__":
    main()
