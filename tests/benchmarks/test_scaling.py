# SPDX-License-Identifier: Apache-2.0
"""A scaling study as docs/slurm.md describes it: several runs into one folder, then the table and the curve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)], timeout=110, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def rows(table: str) -> list[list[str]]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return cells[2:]


@pytest.mark.timeout(120)
def test_a_study_of_two_sizes(tmp_path: Path) -> None:
    step = [BENCHMARKS / "scaling.py", "--size", "tiny", "--seconds", "0.1", "--out", f"{tmp_path}/runs/"]
    for nodes in (1, 2, 2):
        run("-m", "hpccoll", "run", "-np", nodes, "--nodes", nodes, "--timeout", "100", sys.executable, *step)
    curve = tmp_path / "curve.svg"
    table = rows(run(BENCHMARKS / "scaling_report.py", tmp_path / "runs", "--plot", curve))
    ways = ["FP16 between nodes", "FP16 between nodes", "fp32", "fp32"]
    assert [row[1:5] for row in table] == [
        [way, nodes, nodes, runs] for way, (nodes, runs) in zip(ways, [("1", "1"), ("2", "2")] * 2, strict=True)
    ]
    assert "<svg" in curve.read_text()


def test_what_the_report_says(tmp_path: Path) -> None:
    """Known samples: 100 ms of computing in steps of 125 ms on one node, of 200 ms (two runs) on four."""
    for file, ranks, nodes, samples in (("a", 2, 1, [0.125]), ("b", 8, 4, [0.19, 0.2]), ("c", 8, 4, [0.3])):
        result = {
            "library": "hpccoll", "version": "1", "variant": "fp32", "label": "x", "ranks": ranks, "samples": samples,
            "figures": {"nodes": float(nodes), "compute": 0.1},
        }  # fmt: skip
        (tmp_path / f"{file}.jsonl").write_text(json.dumps(result) + "\n")
    small, large = rows(run(BENCHMARKS / "scaling_report.py", tmp_path))
    assert small[2:] == ["1", "2", "1", "125.0", "125.0 .. 125.0", "25.0", "0.800", "1.000"]
    assert large[2:] == ["4", "8", "2", "200.0", "195.0 .. 250.0", "100.0", "0.500", "0.625"]


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "scaling_report.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1 and f"{tmp_path}: no results" in done.stderr


def test_a_curve_without_matplotlib_is_refused_in_one_line(tmp_path: Path) -> None:
    """As in an environment without it: a module that cannot be imported stands in its place."""
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError\n")
    result = {
        "library": "hpccoll", "version": "1", "variant": "fp32", "label": "x", "ranks": 2, "samples": [0.1],
        "figures": {"nodes": 1.0, "compute": 0.1},
    }  # fmt: skip
    (tmp_path / "a.jsonl").write_text(json.dumps(result) + "\n")
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "scaling_report.py", tmp_path, "--plot", tmp_path / "curve.svg"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "fp32" in done.stdout
    assert done.stderr == "--plot: matplotlib is not installed: python -m pip install matplotlib\n"


@pytest.mark.parametrize(
    ("program", "library", "reason"),
    [
        ("scaling", "torch", "argument --library: torch has no collectives of its own on CPUs; they are Gloo's: gloo"),
        ("idle", "gloo", "argument --library: invalid choice: 'gloo'"),
        ("small", "horovod", "--library horovod: not installed in the environment of"),
    ],
)
def test_a_library_that_has_no_answer_is_named(program: str, library: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "horovod.py").write_text("raise ModuleNotFoundError('not installed')\n")
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{program}.py", "--library", library],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0 and reason in done.stderr and "Traceback" not in done.stderr
