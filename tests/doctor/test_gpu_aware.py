# SPDX-License-Identifier: Apache-2.0
"""The proof that MPI can use device memory, on a device that is emulated (device.c), and without one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpccoll.doctor import gpus

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def emulated(build_c: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libcuda.so.1 of our own goes before the system's."""
    library = build_c("tests/doctor/device.c", flags=("-shared", "-fPIC"), name="device.so")
    (tmp_path / "libcuda.so.1").symlink_to(library)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")


def proof() -> tuple[int, dict[str, object]]:
    """The verdict that is printed first."""
    program = [sys.executable, "-m", "hpccoll", "doctor", "--gpu-aware", "--json", "--patience", "20"]
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "90", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    verdicts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert verdicts, done.stdout + done.stderr
    return done.returncode, verdicts[0]


def test_memory_that_mpi_can_use_is_proved_by_right_values(emulated: None) -> None:
    assert proof() == (0, {"proved": True, "why": "", "device": "emulated device"})


def test_memory_that_mpi_cannot_touch_ends_only_the_step(
    emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "guarded")
    status, verdict = proof()
    assert status != 0
    assert verdict["proved"] is False
    assert "in device memory ended the process with status -" in str(verdict["why"])


def test_no_device_is_an_answer(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "none")
    status, verdict = proof()
    assert status != 0
    assert "no GPU here: rank 0: cuInit: no CUDA-capable device is detected" in str(verdict["why"])


def test_a_node_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    facts = gpus.collect({"CUDA_VISIBLE_DEVICES": ""})
    assert facts["present"] == facts["visible"] == []
    assert facts["why none"] == "no NVIDIA driver on this node"
