# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs whose launcher dies: training goes on, the next change ends it, and no process is left."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import pytest

SAID = "the launcher of the job is gone: training goes on, and the next change of the ranks ends it"
ENDS = "so its ranks cannot change: see why `hpccoll run` ended"
THREE = ("-np", "3", "--min-np", "2", "--host-failures", "100")
KILL_LAUNCHER = [6, 0, "after", "kill launcher", 0]
NOTICE = [8, 0, "before", "compute", 2]
"""Time in which all ranks and the agent notice that the launcher is gone."""


def run(folder: Path, plan: list[list[Any]], *arguments: str, **variables: str) -> jobs.Ran:
    """Run a job whose launcher is killed; the output ends when its last process does."""
    ran = jobs.run(folder, plan, *(arguments or THREE), **variables)
    assert ran.status == -signal.SIGKILL, ran.output
    limit = time.monotonic() + 10
    while (left := jobs.processes_of(folder)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not left, (left, ran.output)
    return ran


def test_training_goes_on_to_its_end(tmp_path: Path) -> None:
    ran = run(tmp_path, [KILL_LAUNCHER, NOTICE])
    jobs.check(ran, status=-signal.SIGKILL)
    assert ran.sizes == [3] and ran.output.count(SAID) == 1 and ENDS not in ran.output, ran.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "argument"), [("SIGKILL", 0), ("raise", 0), ("SIGTERM", 0), ("SIGSTOP", 0), ("exit", 3)]
)
def test_a_loss_ends_the_job(tmp_path: Path, deed: str, argument: int) -> None:
    ran = run(tmp_path, [KILL_LAUNCHER, NOTICE, [9, 1, "before", deed, argument]], HPCCOLL_PEER_TIMEOUT="2")
    assert ran.output.count(SAID) == 1 and ran.output.count(ENDS) >= 2, ran.output
    assert "agent of" in ran.output and "and the launcher of the job is gone: its ranks end" in ran.output, ran.output
    assert not ran.log, "the job did not come to its end"


@pytest.mark.slow
def test_a_rank_that_computes_for_long_is_ended_after_a_loss(tmp_path: Path) -> None:
    """Rank 2 is in none of hpccoll's calls, and learns nothing."""
    plan = [KILL_LAUNCHER, [9, 2, "before", "compute", 900], [9, 1, "before", "SIGKILL", 0]]
    ran = run(tmp_path, plan)
    assert ENDS in ran.output and "--timeout" not in ran.output, ran.output


@pytest.mark.slow
def test_a_launcher_that_dies_in_a_change_ends_the_job(tmp_path: Path) -> None:
    """Rank 0 has lost rank 1, and waits for rank 2, which is in none of hpccoll's calls."""
    plan = [[6, 0, "before", "kill launcher", 3], [6, 2, "before", "compute", 6], [6, 1, "before", "SIGKILL", 0]]
    ran = run(tmp_path, plan)
    assert ENDS in ran.output and SAID not in ran.output and not ran.log, ran.output


@pytest.mark.slow
def test_a_new_rank_that_has_not_come_in_ends_and_the_others_go_on(tmp_path: Path) -> None:
    ran = run(tmp_path, [[6, 2, "before", "SIGKILL", 0], [6, 0, "two", "kill launcher", 0]])
    jobs.check(ran, status=-signal.SIGKILL)
    assert ran.sizes == [3, 2] and ran.output.count(SAID) == 1, ran.output


@pytest.mark.slow
def test_ranks_that_wait_for_the_first_generation_end(tmp_path: Path) -> None:
    """Two of three ranks have come when the launcher is killed."""
    program = "import os, sys, time, hpccoll; os.environ['_HPCCOLL_WORKER'] == '2' and time.sleep(90); hpccoll.init()"
    command = [sys.executable, "-P", "-m", "hpccoll", "run", *THREE, sys.executable, "-P", "-c", program]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        time.sleep(3)  # on a busy machine fewer have come, which must end as well
        job.kill()
        assert job.stderr is not None
        said = job.stderr.read()  # until the last process has closed it
    assert "training goes on" not in said


TWO_HOSTS = ("-np", "3", "--min-np", "1", "-H", "localhost:1,127.0.0.1:2", "--host-failures", "3")


@pytest.mark.slow
def test_the_ranks_of_an_agent_that_is_killed_are_lost_once(tmp_path: Path) -> None:
    """The launcher lives, and starts another agent there."""
    plan = [[6, 1, "before", "strike agent", "SIGKILL"], [9, -1, "before", "reach", 4]]
    ran = jobs.run(tmp_path, plan, "-np", "4", "--min-np", "1", "-H", "localhost:1,127.0.0.1:3")
    jobs.check(ran)
    assert ran.sizes == [4, 1, 4] and ran.output.count("host 127.0.0.1 has lost its agent") == 3, ran.output


@pytest.mark.slow
def test_the_ranks_of_an_agent_that_gets_sigterm_leave(tmp_path: Path) -> None:
    """Rank 2 leaves after its step; rank 1 makes none, and is killed."""
    ran = jobs.run(tmp_path, [[6, 1, "before", "strike agent", "SIGTERM"]], *TWO_HOSTS)
    jobs.check(ran)
    assert ran.sizes == [3, 1], ran.output
