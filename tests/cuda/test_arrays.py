# SPDX-License-Identifier: Apache-2.0
"""Whole jobs whose arrays lie in device memory, in orders of execution that punish who does not wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
JOB = Path(__file__).parent / "job.py"


def job(fake: Path, ranks: int, nodes: int, *programs: str, fails: bool = False, **environment: str) -> str:
    """Run programs of job.py; what the ranks said."""
    launch = [
        sys.executable,
        "-m",
        "hpccoll",
        "run",
        "-np",
        str(ranks),
        "--nodes",
        str(nodes),
        "--timeout",
        "60",
    ]
    command = [*launch, sys.executable] if ranks > 1 else [sys.executable]
    own = {"HPCCOLL_CUDA_LIBRARY": str(fake), "FAKE_CUDA_DEVICES": "2", "HPCCOLL_DEVICE_MODE": "staged"}
    done = subprocess.run(
        [*command, str(JOB), *programs],
        env={**os.environ, **own, **environment}, text=True, capture_output=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("ranks", "nodes", "order"), [(1, 1, "lazy"), (2, 1, "3"), (3, 2, "lazy"), (4, 2, "eager")]
)
def test_every_operation_and_type(fake_cuda: Path, ranks: int, nodes: int, order: str) -> None:
    job(fake_cuda, ranks, nodes, "operations", FAKE_CUDA_ORDER=order)


@pytest.mark.parametrize(("ranks", "nodes", "order"), [(1, 1, "4"), (2, 2, "lazy"), (3, 2, "5")])
def test_types_streams_handles(fake_cuda: Path, ranks: int, nodes: int, order: str) -> None:
    job(
        fake_cuda, ranks, nodes, "libraries", "groups", "asynchronous", "in_place_in_order", "sets", "joined",
        FAKE_CUDA_ORDER=order,
    )  # fmt: skip


@pytest.mark.parametrize("planted", ["another_stream_before", "another_stream_after"])
def test_a_stream_that_is_not_in_order_is_found(fake_cuda: Path, planted: str) -> None:
    assert "AssertionError" in job(fake_cuda, 1, 1, planted, fails=True, FAKE_CUDA_ORDER="lazy")


def test_what_cannot_be_moved_is_refused(fake_cuda: Path) -> None:
    job(fake_cuda, 1, 1, "refused")
    job(fake_cuda, 2, 1, "refused", FAKE_CUDA_ORDER="6")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_device_that_fails_is_an_error(fake_cuda: Path, ranks: int) -> None:
    job(fake_cuda, ranks, 1, "broken", FAKE_CUDA_FAIL="work:700:90")


def test_a_job_on_the_host_opens_no_driver(tmp_path: Path) -> None:
    """Neither the driver nor NCCL is in the process, though a knob says where they would be."""
    code = (
        "import hpccoll, numpy; hpccoll.init(); hpccoll.allreduce(numpy.ones(3)); hpccoll.shutdown(); "
        "print([line for line in open('/proc/self/maps') if 'cuda' in line.lower() or 'nccl' in line])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], text=True, capture_output=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
