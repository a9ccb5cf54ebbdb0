# SPDX-License-Identifier: Apache-2.0
"""One description of a program, run by every front end in every mode, gives what NumPy and MPI's standard say.

Here run a few programs, the same each time. `make soak` runs others for hours (soak.py).
"""

from collections.abc import Iterator

import pytest
from differential import checks, plants
from differential.job import Job
from hypothesis import HealthCheck, Phase, settings

JOBS = {
    "NumPy and PyTorch, 2 ranks": (2, 1, ["numpy", "torch"]),
    "NumPy and PyTorch, 3 ranks on 2 nodes": (3, 2, ["numpy", "torch"]),
    "TensorFlow": (2, 1, ["tensorflow"]),
    "JAX": (2, 1, ["jax"]),
}
FEW = settings(
    max_examples=12, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def param(name: str) -> object:
    return pytest.param(JOBS[name], id=name, marks=[pytest.mark.slow] if name in ("TensorFlow", "JAX") else [])


@pytest.fixture(scope="module", params=map(param, JOBS))
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    ranks, nodes, front_ends = request.param
    pytest.importorskip(front_ends[-1])
    with Job(ranks, nodes, front_ends) as running:
        yield running


@pytest.mark.timeout(400)
def test_every_mode_gives_what_numpy_gives(job: Job) -> None:
    for mode in job.modes:
        checks.results(job, mode, FEW)


@pytest.mark.timeout(400)
def test_every_rank_hears_of_one_that_differs(job: Job) -> None:
    for mode in job.modes:
        checks.disagreements(job, mode, FEW)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", plants.PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    front_end = plants.PLANTS[name][1]
    with Job(2, 1, [front_end], plant=name) as faulty, pytest.raises(AssertionError, match="got"):
        test_every_mode_gives_what_numpy_gives(faulty)
