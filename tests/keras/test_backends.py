# SPDX-License-Identifier: Apache-2.0
"""The tests of this folder as jobs, one per backend of Keras; and what needs a job of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LAUNCH = [sys.executable, "-P", "-m", "hpccoll", "run", "--nodes", "1", "-np", "2"]


def backends(*names: str) -> list[object]:
    absent = {name for name in names if importlib.util.find_spec(name) is None}
    skip = pytest.mark.skipif(True, reason="the backend is not installed")
    return [pytest.param(name, marks=[skip] if name in absent else []) for name in names]


def run(backend: str, *command: str, limit: int = 280, launcher: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    options = ["--timeout", str(limit), *([f"--launcher-options={launcher}"] if launcher else [])]
    return subprocess.run(
        [*LAUNCH, *options, "python", "-P", *command], cwd=ROOT, env=environment, text=True, check=False,
        timeout=limit + 30, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("backend", backends("jax", "tensorflow"))  # torch: in the tests under the launcher
def test_all_of_it(backend: str) -> None:
    done = run(backend, "-m", "pytest", "-q", "-pno:cacheprovider", "--only-mpi", "tests/keras", limit=900)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", backends("torch", "jax", "tensorflow"))
def test_a_program_for_horovod(backend: str, tmp_path: Path) -> None:
    """Only its import has changed; with TensorFlow it has imported horovod.tensorflow.keras."""
    program = (HERE / "horovod_mnist.py").read_text()
    assert program.count("horovod.keras") == 1
    module = "hpccoll.tensorflow.keras" if backend == "tensorflow" else "hpccoll.keras"
    (tmp_path / "train.py").write_text(program.replace("horovod.keras", module))
    done = run(backend, str(tmp_path / "train.py"))
    assert done.returncode == 0, done.stdout
    assert "Test accuracy: 0.9" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", backends("torch", "jax", "tensorflow"))
def test_a_killed_rank_is_named(backend: str) -> None:
    done = run(backend, str(HERE / "killed.py"), launcher="--enable-recovery")  # or it ends the other rank, too
    assert "rank 0 saw it: " in done.stdout, done.stdout
    told = done.stdout.split("rank 0 saw it: ")[1]
    assert "rank 1" in told
    assert "was lost" in told


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", backends("torch", "jax", "tensorflow"))
def test_training_goes_on_when_a_rank_is_lost_and_when_one_comes(backend: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "3", "--min-np", "2", "python", "-P"]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "HPCCOLL_TRACE_DIR": "none"}
    done = subprocess.run(
        [*command, HERE / "elastic_fit.py", tmp_path / "victim"], env=environment, text=True, check=False, timeout=350,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " epochs, with 3 ranks at the end" in done.stdout, done.stdout
    assert "rank 0 (host localhost, slot 0) was lost" in done.stdout
