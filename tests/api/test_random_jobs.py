# SPDX-License-Identifier: Apache-2.0
"""Random programs of a whole World, in threads of several layouts and as jobs; `make check` runs more of them."""

import subprocess
import sys

import pytest
import random_jobs

import hpccoll
from hpccoll import testing


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ranks, nodes", [(2, ""), (3, ""), (2, "1+1"), (3, "2+1"), (4, "2+2"), (4, "1+1+2")])
def test_threads(threads, ranks, nodes, seed):
    worlds = threads(ranks, nodes=nodes, **random_jobs.knobs(seed))
    testing.run(worlds, lambda world: random_jobs.run(world, seed, 4))


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize("seed", range(100, 103))
def test_job(seed):
    with hpccoll.World(verbose=0, **random_jobs.knobs(seed)) as world:
        random_jobs.run(world, seed, 4)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("level", ["funneled", pytest.param("serialized", marks=pytest.mark.slow)])
def test_job_without_all_threads_of_mpi(level):
    """No background thread drives, whatever the knobs say."""
    run = ["run", "-np", "3", "--nodes", "2", "--timeout", "100", "-x", f"MPI4PY_RC_THREAD_LEVEL={level}"]
    program = [sys.executable, "-P", random_jobs.__file__, "--seconds", "0", "--rounds", "10"]
    subprocess.run([sys.executable, "-m", "hpccoll", *run, *program], check=True)


def test_a_wrong_result_is_noticed(threads, monkeypatch):
    monkeypatch.setitem(random_jobs.REDUCTIONS, hpccoll.SUM, lambda x, **_: x[0] + 1)
    with pytest.raises(AssertionError, match=r"op=<Reduction\.SUM"):
        testing.run(threads(2), lambda world: random_jobs.run(world, 0, 4))
