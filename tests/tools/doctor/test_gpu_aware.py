# SPDX-License-Identifier: Apache-2.0
"""The proof that MPI can use device memory, on a device that is emulated (device.c), and without one."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hpccoll.checks import proofs
from hpccoll.tools.doctor import gpus

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def emulated(build_c: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libcuda.so.1 of our own goes before the system's."""
    library = build_c("tests/tools/doctor/device.c", flags=("-shared",), name="device.so")
    (tmp_path / "libcuda.so.1").symlink_to(library)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    monkeypatch.setenv("HPCCOLL_GPU_AWARE_RECORD", str(tmp_path / "site" / "record.json"))


def doctor(*more: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "hpccoll", "doctor", "--gpu-aware", *more, "--patience", "60"]
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "140", *program]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def proof() -> tuple[int, dict[str, Any]]:
    """Read the verdict of rank 0, or, where it has none, the first one that is printed."""
    done = doctor("--json")
    verdicts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert verdicts, done.stdout + done.stderr
    return done.returncode, next((v for v in verdicts if "recorded" in v), verdicts[0])


def recorded() -> list[proofs.Proof]:
    found, wrong = proofs.read(proofs.files(os.environ["HPCCOLL_GPU_AWARE_RECORD"], os.environ))
    assert not wrong
    return found


@pytest.mark.slow
def test_memory_that_mpi_can_use_is_proved_by_right_values_and_recorded(emulated: None) -> None:
    status, verdict = proof()
    assert (status, verdict["proved"], verdict["why"]) == (0, True, "")
    (found,) = recorded()
    assert verdict["recorded"] == found.file
    assert found.devices == ["emulated device, CUDA 12.8"]
    assert (found.ranks, found.hosts, found.setup.hpccoll) == (2, [platform.node()], version("hpccoll"))
    assert found.setup.launcher
    done = doctor()
    assert f"GPU-aware MPI: {recorded()[0].line()}" in done.stdout
    assert f"recorded in {found.file}" in done.stdout
    told = subprocess.run([sys.executable, "-m", "hpccoll", "info"], capture_output=True, text=True, timeout=80)
    assert f"verdict 1: {recorded()[0].line()}" in told.stdout


@pytest.mark.slow
def test_memory_that_mpi_cannot_touch_ends_only_the_step(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A "no" takes the place of the "yes" that was there."""
    proof()
    monkeypatch.setenv("PLANTED", "guarded")
    status, verdict = proof()
    assert status != 0
    assert verdict["proved"] is False
    assert "in device memory ended the process with status -" in str(verdict["why"])
    assert [p.proved for p in recorded()] == [False]


@pytest.mark.slow
def test_a_record_that_cannot_be_written_is_said(
    emulated: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HPCCOLL_GPU_AWARE_RECORD", str(tmp_path / "file" / "record.json"))
    done = doctor()
    assert done.returncode == 0
    assert "GPU-aware MPI: proved on " in done.stdout
    assert "the verdict was not recorded: " in done.stderr


def test_no_device_is_an_answer(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "none")
    status, verdict = proof()
    assert status != 0
    assert "no GPU here: rank 0: cuInit: no CUDA-capable device is detected" in str(verdict["why"])


def test_a_knob_that_is_wrong_is_named_before_anything_is_tried(emulated: None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpccoll", "doctor", "--gpu-aware"],
        env={**os.environ, "HPCCOLL_DEVICE_MOED": "nccl"}, capture_output=True, text=True, timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hpccoll doctor: HPCCOLL_DEVICE_MOED is no knob of hpccoll")


def test_a_knob_that_is_wrong_hides_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "0000:65:00.0").mkdir()
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    facts = gpus.collect({"HPCCOLL_DEVICE_MOED": "nccl"})
    assert facts["present"] == ["0000:65:00.0"]
    assert facts["tried"] == []


def test_a_node_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    facts = gpus.collect({"CUDA_VISIBLE_DEVICES": ""})
    assert facts["present"] == facts["visible"] == []
    assert facts["why none"] == "no NVIDIA driver on this node"
