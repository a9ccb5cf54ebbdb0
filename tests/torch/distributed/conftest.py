# SPDX-License-Identifier: Apache-2.0
"""One default process group for the tests of a file: torch has one per process, and other tests make theirs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist


@pytest.fixture(scope="module")
def whole() -> Iterator[dist.ProcessGroup]:
    """The default process group over all ranks of the job."""
    torch.set_num_threads(1)
    dist.init_process_group("hpccoll")
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def group(whole: dist.ProcessGroup) -> dist.ProcessGroup:
    torch.manual_seed(1)
    return whole


@pytest.fixture
def run_job(tmp_path: Path) -> Callable[[str], str]:
    """Run a program on two ranks and return its output."""

    def run(program: str) -> str:
        (tmp_path / "program.py").write_text(program)
        launch = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "200"]
        command = [*launch, sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=220)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
