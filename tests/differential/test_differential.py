# SPDX-License-Identifier: Apache-2.0
"""One description of a program, run by every front end in every mode, gives what NumPy and MPI's standard say.

Here run a few programs, the same each time. `make soak` runs others for hours (soak.py).
"""

from collections.abc import Iterator

import pytest
from differential import checks, drivers, plants_table
from differential.job import Job
from differential.modes import NOT_FRAMEWORKS
from differential.plants import IN_CI, PLANTS
from hypothesis import HealthCheck, Phase, settings

JOBS = {
    "2 ranks": (2, 1, ["numpy", "c", "torch"]),
    "3 ranks on 2 nodes": (3, 2, ["numpy", "c", "torch"]),
    "C++ and Fortran": (3, 2, ["cpp", "fortran", "languages"]),
    "TensorFlow, 2 ranks": (2, 1, ["tensorflow"]),
    "TensorFlow, 3 ranks on 2 nodes": (3, 2, ["tensorflow"]),
    "JAX, 2 ranks": (2, 1, ["jax"]),
    "JAX, 3 ranks on 2 nodes": (3, 2, ["jax"]),
}
FEW = settings(
    max_examples=8, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def param(name: str) -> object:
    return pytest.param(JOBS[name], id=name, marks=[pytest.mark.slow] if "," in name else [])


def skip_without(front_end: str) -> None:
    if why := drivers.problem(front_end):
        pytest.skip(why)
    if front_end not in NOT_FRAMEWORKS:
        pytest.importorskip(front_end)


@pytest.fixture(scope="module", params=map(param, JOBS))
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    ranks, nodes, front_ends = request.param
    for front_end in front_ends:
        skip_without(front_end)
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


@pytest.mark.timeout(400)
def test_every_rank_hears_of_a_wrong_argument(job: Job) -> None:
    for mode in job.modes:
        checks.misuses(job, mode, FEW)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.slow) for name in PLANTS]
)
def test_a_planted_fault_is_found(name: str) -> None:
    """The first programs of a table that plants_table.py makes: which fault, after how many programs."""
    skip_without(PLANTS[name].front_end)
    assert "not found" not in plants_table.row(name)
