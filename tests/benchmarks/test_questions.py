# SPDX-License-Identifier: Apache-2.0
"""Every question is asked once at its smallest size: it runs, and what it measures is verified. No time is judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = (
    "allreduce",
    "operations",
    "many_tensors",
    "idle",
)
SLOW = (
    "small",
    "cg",
    "resnet50",
    "torch_optimizer",
    "torch_ddp",
    "torch_overlap",
)
ASKED = [(question, "hpccoll") for question in QUESTIONS]
ASKED += [pytest.param(question, "hpccoll", marks=pytest.mark.slow) for question in SLOW]
ASKED += [
    ("small", "mpi"),
    pytest.param("resnet50", "mpi", marks=pytest.mark.slow),
    pytest.param("allreduce", "memcpy", marks=pytest.mark.slow),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("question", "library"), ASKED)
def test_question(question: str, library: str, tmp_path: Path) -> None:
    out = tmp_path / "a new folder" / "results"
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "100", sys.executable]
    command += [ROOT / "benchmarks" / f"{question}.py", "--library", library, "--size", "tiny", "--out", out]
    done = subprocess.run(
        [str(word) for word in command], cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=110,
        text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert results and all(r["samples"] and min(r["samples"]) > 0 for r in results)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_gradients_of_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="needs jax: pip install 'hpccoll[jax]'")
    out = tmp_path / "results"
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "100", sys.executable]
    command += [ROOT / "benchmarks" / "jax_gradients.py", "--size", "tiny", "--rounds", "3", "--out", out]
    done = subprocess.run(
        [str(word) for word in command], timeout=110, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    records = [json.loads(line) for line in out.read_text().splitlines()][1:]
    contestants = {record["contestant"] for record in records if "samples" in record}
    assert {"NumPy arrays, in place", "jit", "jit, donated", "JAX's Gloo in jit"} <= contestants
    assert {record["case"] for record in records} > {"8 gradients of ResNet-50", "one float"}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_simulation_beside_mpi_in_turn(tmp_path: Path) -> None:
    out = tmp_path / "results"
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "100", sys.executable]
    command += [ROOT / "benchmarks" / "simulation.py", "--size", "tiny", "--rounds", "3", "--out", out]
    done = subprocess.run(
        [str(word) for word in command], timeout=110, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    records = [json.loads(line) for line in out.read_text().splitlines()][1:]
    ratios = {record["case"]: record["found"]["median"] for record in records if "found" in record}
    assert len(ratios) == 4 and min(ratios.values()) > 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "question",
    [
        "node_stage.py --ranks 2 --most 65536",
        "net_chunks.py --rates 2 --repetitions 1 --rounds 1",
        "elastic_parts.py --runs 1",
    ],
)
def test_a_question_of_one_program(question: str) -> None:
    program, *options = question.split()
    command = [sys.executable, ROOT / "benchmarks" / program, *options]
    done = subprocess.run(
        command, timeout=110, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("wrong", ["x[777] += 0.01", "x[777] = np.nan"])
def test_a_wrong_sum_is_noticed(wrong: str) -> None:
    """The check itself must be able to fail."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np\n"
        "from harness import check_sum, random_data\n"
        "x = random_data(0, 1000); check_sum(x, 1000)\n"
        f"{wrong}\n"
        "try: check_sum(x, 1000)\n"
        "except AssertionError as error: assert '777' in str(error)\n"
        "else: sys.exit('not noticed')\n"
    )
    subprocess.run([sys.executable, "-c", code, ROOT / "benchmarks"], check=True, timeout=60)


@pytest.mark.parametrize(
    ("program", "library", "reason"),
    [
        ("small", "torch", "argument --library: torch has no collectives of its own on CPUs; they are Gloo's: gloo"),
        ("idle", "gloo", "argument --library: invalid choice: 'gloo'"),
        ("small", "horovod", "--library horovod: not installed in the environment of"),
    ],
)
def test_a_library_that_has_no_answer_is_named(program: str, library: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "horovod.py").write_text("raise ModuleNotFoundError('not installed')\n")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{program}.py", "--library", library],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0 and reason in done.stderr and "Traceback" not in done.stderr


def test_nothing_measured_is_an_error(tmp_path: Path) -> None:
    """Asked over a net and on this machine: a library that is not there leaves no empty table."""
    over = "import run, hosts; options = run.arguments('').parse_args(['--libraries', 'gloo', '--rounds', '1'])"
    over += "; run.CONTESTANTS = (); options.nets = ['mpi']"
    over += "; hosts.ask_nets('small', ['hpccoll'], run.Place(2), options)"
    here = [ROOT / "benchmarks" / "run.py", "idle", "--libraries", "gloo", "--out", tmp_path]
    for words in (["-c", over], here):
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=ROOT / "benchmarks", timeout=60, text=True, check=False,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 1 and ": nothing was measured: none of the libraries" in done.stderr, done.stderr
    assert "gloo left out: idle is not for it" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_peer_of_an_elastic_job_that_is_not_installed_has_not_hung() -> None:
    """It was reported as '0 of 1 runs recovered'."""
    there = "import runpy, sys; sys.modules['torchft'] = None; sys.argv = ['elastic.py', '--runs', '1', '--peers', "
    program = f"{there}'torchft', '--cases']; runpy.run_path('elastic.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "benchmarks",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stdout
    assert done.stderr == f"torchft left out: {sys.executable} has no torchft\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run.py", "small", "--libraries", "hpccoll", "horvod"], "--libraries: invalid choice: 'horvod'"),
        (["run.py", "small", "--rounds", "0"], "--rounds: '0': a whole number of 1 or more"),
        (["run.py", "small", "--out", "{}/file/x"], "--out: results cannot be written into {}/file/x: Not a directory"),
        (
            ["before_after.py", "small", "--before", ".", "--out", "{}/file"],
            "cannot be written into {}/file: File exists",
        ),
        (
            ["simulation.py", "--size", "tiny", "--out", "{}/file/x.jsonl"],
            "cannot be written into {}/file: File exists",
        ),
    ],
)
def test_what_a_measurement_could_not_use_is_told_before_it(words: list[str], said: str, tmp_path: Path) -> None:
    """A library of another name was left out without a word; a folder that cannot be written lost what was measured."""
    (tmp_path / "file").touch()
    program, *options = (word.format(tmp_path) for word in words)
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / program, *options], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and said.format(tmp_path) in done.stderr, done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["hosts.py", "--hosts", "2", "1"], "hosts.py: error: --hosts 1: the link between two hosts is measured first"),
        (["pack.py"], "pack.py needs a GPU: nowhere/libcuda.so: "),
        (["beside.py"], "beside.py needs a GPU: nowhere/libcuda.so: "),
        (["staging.py"], "staging.py needs 2 ranks, and this job has 1: hpccoll run -np 2 "),
    ],
)
def test_what_a_program_lacks_is_a_sentence(program: list[str], said: str, tmp_path: Path) -> None:
    """They ended in tracebacks."""
    command = [sys.executable, str(ROOT / "benchmarks" / program[0]), *program[1:]]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"HPCCOLL_CUDA_LIBRARY": "nowhere/libcuda.so"}, timeout=55, text=True,
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode and said in done.stdout and "Traceback" not in done.stdout, done.stdout
