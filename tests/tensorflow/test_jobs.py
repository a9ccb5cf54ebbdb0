# SPDX-License-Identifier: Apache-2.0
"""Jobs with TensorFlow, in processes of their own: its import takes longer than most tests."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,  # tests/system_matrix.py has an environment with TensorFlow
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow: pip install 'hpccoll[tensorflow]'"
    ),
]


def ended(
    program: str, *arguments: str, ranks: int = 2, nodes: int = 1, limit: int = 400, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a program of this folder at some ranks."""
    run = [
        sys.executable,
        "-P",
        "-m",
        "hpccoll",
        "run",
        "--timeout",
        str(limit),
        "-np",
        str(ranks),
        "--nodes",
        str(nodes),
    ]
    return subprocess.run(
        [*run, sys.executable, "-P", str(HERE / program), *arguments],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def job(program: str, *arguments: str, ranks: int = 2, nodes: int = 1) -> str:
    """Run a program that ends well; return what it prints."""
    done = ended(program, *arguments, ranks=ranks, nodes=nodes)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.timeout(450)
def test_two_ranks() -> None:
    """Every operation eager and in tf.function, derivatives, tapes, orders, loops, errors."""
    printed = job("smoke.py")
    assert printed.count("check_tapes passed") == 2


@pytest.mark.timeout(450)
def test_three_ranks_on_two_nodes() -> None:
    job("smoke.py", ranks=3, nodes=2)


@pytest.mark.timeout(450)
def test_training() -> None:
    """A network learns digits; an uneven end of the data; batch normalization; an optimizer of a session."""
    assert job("training.py").count("trained") == 2


@pytest.mark.timeout(450)
def test_functions() -> None:
    """Process sets, facts, groups of variables, local layers, objects."""
    assert job("functions.py", ranks=3).count("passed") == 15


@pytest.mark.timeout(450)
def test_an_operation_that_is_never_begun_is_named() -> None:
    """TensorFlow begins no more operations of a program of which one has failed; a rank may have begun one before."""
    limits = {"HPCCOLL_STALL_WARNING": "5", "HPCCOLL_STALL_LIMIT": "15"}
    done = ended("functions.py", "lost", ranks=3, **limits)
    assert done.returncode
    assert "allreduce 'allreduce.other' has waited 5.0 s for 2 of 3 ranks" in done.stdout
    assert "then StallError: allreduce 'allreduce.other'" in done.stdout
