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
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MPIS = ("openmpi", "mpich", "intelmpi")


@dataclass(frozen=True)
class Contestant:
    library: str  # as libraries.py knows it
    folder: str  # virtual environment
    options: tuple[str, ...] = ()  # of its mpirun

    @property
    def reason_missing(self) -> str:
        """Empty when it can run."""
        return "" if self.bin("mpirun").exists() else f"no {self.folder}"

    def bin(self, program: str) -> Path:
        return ROOT / self.folder / "bin" / program


OPEN_MPI = ("--bind-to", "none")
CONTESTANTS = (
    Contestant("memcpy", ".venv", OPEN_MPI),
    Contestant("hpccoll", ".venv", OPEN_MPI),
    Contestant("mpi", ".venv", OPEN_MPI),
    Contestant("mpi", ".venv-mpich"),
    Contestant("mpi", ".venv-impi"),
    Contestant("gloo", ".venv-torch", OPEN_MPI),
    Contestant("horovod", ".venv-horovod", OPEN_MPI),
)
QUESTIONS = {  # program: libraries asked
    "small": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "allreduce": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "many_tensors": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "resnet50": ("memcpy", "hpccoll", "mpi", "gloo", "horovod"),
    "overlap": ("hpccoll", "mpi"),
    "hierarchy": ("hpccoll",),
    "idle": ("hpccoll",),
}


def environment(contestant: Contestant) -> dict[str, str]:
    """A clean one: the caller's without its virtual environment, and what MPI needs here."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HPCCOLL_", "PYTHON"))}
    env["PATH"] = f"{ROOT / contestant.folder / 'bin'}:{env['PATH']}"
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env |= {"OMPI_MCA_mpi_yield_when_idle": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if os.geteuid() == 0:
        env |= {
            f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
            for prefix in ("OMPI", "PRTE")
            for suffix in ("", "_CONFIRM")
        }
    return env


def ask(question: str, contestant: Contestant, ranks: int, options: list[str], timeout: float) -> list[dict]:
    """One run of one program; its results."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.jsonl"
        command = [contestant.bin("mpirun"), "-np", ranks, *contestant.options, contestant.bin("python")]
        command += [HERE / f"{question}.py", "--library", contestant.library, "--out", out, *options]
        done = subprocess.run(
            [str(word) for word in command],
            env=environment(contestant),
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(
                f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return [json.loads(line) for line in out.read_text().splitlines()]


def merge(rounds: list[dict]) -> list[dict]:
    """Results of the same case in several rounds become one."""
    cases: dict[tuple[str, ...], dict] = {}
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


def table(results: list[dict]) -> str:
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


def best(results: list[dict], way: str) -> float | None:
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


def save(question: str, ranks: int, results: list[dict], folder: Path, facts: dict[str, object]) -> None:
    """JSON with medians and quartiles; HDF5 with every sample."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{question}-{ranks}-ranks"
    with h5py.File(folder / f"{stem}.h5", "w") as file:
        file.attrs.update({name: str(value) for name, value in facts.items()})
        for result in results:
            group = f"{result['label']}/{result['library']}/{result['way']}"
            file[group] = result["samples"]
            file[group].attrs.update(unit="s", bytes=result["bytes"], version=result["version"])
    slim = [{name: value for name, value in result.items() if name != "samples"} for result in results]
    for result, whole in zip(slim, results, strict=True):
        result["repetitions"] = len(whole["samples"])
    (folder / f"{stem}.json").write_text(json.dumps({**facts, "results": slim}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], help="default: all")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each library")
    parser.add_argument("--libraries", nargs="+", help="only these")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "local")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    options, passed_on = parser.parse_known_args()
    for question in options.questions or QUESTIONS:
        for ranks in options.ranks:
            facts = {
                "question": question,
                "command": " ".join(sys.argv),
                "date": time.strftime("%Y-%m-%d %H:%M:%S"),
                "ranks": ranks,
                "machine": machine(),
            }
            rounds: list[dict] = []
            for turn in range(options.rounds):
                for contestant in CONTESTANTS:
                    wanted = options.libraries or QUESTIONS[question]
                    if contestant.library not in wanted:
                        continue
                    if contestant.reason_missing:
                        if turn == 0:
                            print(
                                f"{contestant.library} left out: {contestant.reason_missing}", file=sys.stderr
                            )
                        continue
                    rounds += ask(question, contestant, ranks, passed_on, options.timeout)
            results = merge(rounds)
            print(f"\n{question}, {ranks} ranks\n\n{table(results)}", flush=True)
            save(question, ranks, results, options.out, facts)


if __name__ == "__main__":
    main()
