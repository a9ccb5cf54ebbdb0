# SPDX-License-Identifier: Apache-2.0
"""Ranks that another system starts: their store, their variables, and who is to blame when they fail."""

import os
import subprocess
import sys

import pytest

from hpccoll import detect, errors
from hpccoll.tools.launch.blame import Failure, error_of
from hpccoll.tools.launch.direct.job_store import JobStore, variables_at

PROGRAM = """
import numpy as np, hpccoll
world = hpccoll.init()
print(world.rank, world.size, world.local_rank, int(hpccoll.allreduce(np.array([world.rank]))[0]))
"""
LOST, RAISED = errors.PeerLostError("rank 1 was lost"), ValueError("rate")


@pytest.mark.timeout(120)
def test_ranks_find_each_other_by_their_variables() -> None:
    with JobStore(["127.0.0.1"]) as store:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM], env={**os.environ, **own}, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )
            for own in variables_at(store.text, ["here", "here"], "Somebody")
        ]  # fmt: skip
        outputs = [rank.communicate(timeout=100) for rank in ranks]
    assert [out.split() for out, _ in outputs] == [["0", "2", "0", "1"], ["1", "2", "1", "1"]], outputs
    assert "started by Somebody" in outputs[0][1] and "authenticated" in outputs[0][1]


def test_places_of_ranks_on_two_machines() -> None:
    with JobStore([], secret="ab" * 32) as store:
        made = variables_at(store.text, ["b", "a", "b"], "Spark")
    places = [detect.place(own) for own in made]
    assert [(p.rank, p.local_rank, p.local_size, p.node) for p in places if p] == [
        (0, 0, 2, "0"), (1, 0, 1, "1"), (2, 1, 2, "0")
    ]  # fmt: skip
    assert {p.launcher for p in places if p} == {"Spark"} and len({p.job for p in places if p}) == 1
    assert not any("abab" in value for value in (made[0]["_HPCCOLL_JOB"], made[0]["_HPCCOLL_RANK"]))


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ([Failure(0, "h", "t", LOST), Failure(1, "h", "killed", lost=True)], 1),
        ([Failure(0, "h", "t", LOST), Failure(1, "h", "t", RAISED)], 1),
        ([Failure(2, "h", "t", RAISED), Failure(0, "h", "t", ValueError())], 2),
        ([Failure(0, "h", "ended by its agent"), Failure(3, "h", "t", RAISED)], 0),
    ],
)
def test_the_first_cause_is_named(failures: list[Failure], rank: int) -> None:
    error = error_of(failures)
    assert error.rank == rank
    assert error.lost == (rank == 1 and failures[1].lost)
    assert str(error).startswith(f"rank {rank} (host h) {'was lost: killed' if error.lost else 'raised:'}")
