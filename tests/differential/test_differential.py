# SPDX-License-Identifier: Apache-2.0
"""One description of a program, run by every front end in every mode, gives what NumPy and MPI's standard say.

Here run a few programs, the same each time. `make soak` runs others for hours (soak.py).
"""

import importlib.util
from collections.abc import Iterator

import checks
import plants
import pytest
from hypothesis import HealthCheck, Phase, settings
from job import Job

FRONT_ENDS = ("numpy", "torch", "tensorflow", "jax")
FEW = settings(
    max_examples=12, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module", params=[(2, 1), (3, 2)], ids=["2 ranks", "3 ranks on 2 nodes"])
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    ranks, nodes = request.param
    installed = [name for name in FRONT_ENDS if name == "numpy" or importlib.util.find_spec(name)]
    with Job(ranks, nodes, installed if ranks == 2 else installed[:2]) as running:
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
    with Job(2, 1, [front_end], plant=name) as faulty, pytest.raises(AssertionError):
        test_every_mode_gives_what_numpy_gives(faulty)
