# SPDX-License-Identifier: Apache-2.0
"""Programs of this folder at several ranks."""

from collections.abc import Callable
from typing import Any

import pytest

slow = pytest.mark.slow  # tests/system_matrix.py has environments with the oldest and the newest TensorFlow
Job = Callable[..., str]


@pytest.mark.timeout(100)
def test_in_short(job: Job) -> None:
    """What `make test` has of TensorFlow; without Keras, which would take 2 s more."""
    assert "rank 0 passed" in job("smoke.py", limit=60, TF_USE_LEGACY_KERAS="1")


@slow
@pytest.mark.timeout(450)
def test_two_ranks(job: Job) -> None:
    """Every operation eager and in tf.function, derivatives, tapes, orders, loops, errors."""
    printed = job("operations.py")
    assert printed.count("check_tapes passed") == 2


@slow
@pytest.mark.timeout(450)
def test_three_ranks_on_two_nodes(job: Job) -> None:
    job("operations.py", ranks=3, nodes=2)


@slow
@pytest.mark.timeout(450)
def test_training(job: Job) -> None:
    """A network learns digits; an uneven end of the data; batch normalization; an optimizer of a session."""
    assert job("training.py").count("trained") == 2


@slow
@pytest.mark.timeout(450)
def test_functions(job: Job) -> None:
    """Process sets, facts, groups of variables, local layers, objects."""
    assert job("functions.py", ranks=3).count("passed") == 15


@slow
@pytest.mark.timeout(450)
def test_an_operation_that_is_never_begun_is_named(ended: Callable[..., Any]) -> None:
    """TensorFlow begins no more operations of a program of which one has failed; a rank may have begun one before."""
    limits = {"HPCCOLL_STALL_WARNING": "5", "HPCCOLL_STALL_LIMIT": "15"}
    done = ended("functions.py", "lost", ranks=3, **limits)
    assert done.returncode
    assert "allreduce 'allreduce.other' has waited 5.0 s for 2 of 3 ranks" in done.stdout
    assert "then StallError: allreduce 'allreduce.other'" in done.stdout
