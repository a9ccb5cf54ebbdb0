# SPDX-License-Identifier: Apache-2.0
"""Jobs with TensorFlow, in separate processes: its import takes longer than most tests."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def ended() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """`ended("program.py", "argument", ranks=2, nodes=1, limit=400, options=(), HPCCOLL_X="1")` runs a job."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs TensorFlow: pip install 'hpccoll[tensorflow]'")

    def run(
        program: str, *arguments: str, ranks: int = 2, nodes: int = 1, limit: int = 400,
        options: tuple[str, ...] = (), **environment: str,
    ) -> "subprocess.CompletedProcess[str]":  # fmt: skip
        command = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", str(limit), "-np", str(ranks)]
        command += options or ("--nodes", str(nodes))
        return subprocess.run(
            [*command, sys.executable, "-P", str(HERE / program), *arguments],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""} | environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit + 30,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def job(ended: Callable[..., "subprocess.CompletedProcess[str]"]) -> Callable[..., str]:
    """`job(...)` with the same arguments runs a job that must succeed, and returns its output."""

    def run(program: str, *arguments: str, **options: object) -> str:
        done = ended(program, *arguments, **options)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    return run
