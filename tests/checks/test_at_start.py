# SPDX-License-Identifier: Apache-2.0
"""The checks of every init(): one line for each likely mistake, silence otherwise."""

import os
import subprocess
import sys

import pytest
from reports import report

from hpccoll import testing
from hpccoll.checks import at_start

INIT = "import hpccoll; hpccoll.init(verbose=0); hpccoll.barrier(); hpccoll.shutdown()"
MANY = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot leave another free")


def lines(*before: str, ranks: int = 2, **variables: str) -> list[str]:
    """Read the lines that a job prints about its checks."""
    command = [*before, sys.executable, "-m", "hpccoll", "run", "-np", str(ranks), "--timeout", "100"]
    done = subprocess.run(
        [*command, sys.executable, "-c", INIT],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("hpccoll: check:")]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ordinary_jobs_are_met_with_silence(ranks: int) -> None:
    assert lines(ranks=ranks) == []


@MANY
def test_two_ranks_on_one_core_while_another_is_free() -> None:
    core = str(min(os.sched_getaffinity(0)))
    (line,) = lines("taskset", "-c", core)
    assert f"ranks 0, 1 are bound to cpu {core} while no rank is on cpu" in line
    assert "Bind each rank" in line


@pytest.mark.slow
@MANY
def test_the_knob_silences_it() -> None:
    core = str(min(os.sched_getaffinity(0)))
    assert lines("taskset", "-c", core, HPCCOLL_CHECK="0") == []


def test_more_threads_than_cores_are_one_line() -> None:
    (line,) = lines(OMP_NUM_THREADS="999")
    assert "ranks 0, 1: OMP_NUM_THREADS=999 on" in line


def test_threads_of_one_process_are_not_checked(capfd: pytest.CaptureFixture[str]) -> None:
    testing.run(testing.threads(4), lambda world: world.shutdown())
    assert "hpccoll: check:" not in capfd.readouterr().err


def facts(rank: int, node: int, **changes: object) -> dict[str, dict[str, object]]:
    return report(rank, node, **changes).facts  # type: ignore[arg-type]


def judged(nodes: list[int], seen: list[dict[str, dict[str, object]]]) -> list[str]:
    """Give the lines of rank 0 where each rank has seen this on its node."""
    ranks = {node: [rank for rank, other in enumerate(nodes) if other == node] for node in nodes}
    found = [at_start.judge_node([(rank, seen[rank]) for rank in mates]) for mates in ranks.values()]
    return at_start.lines(found, several=len(ranks) > 1)


def test_a_full_shared_memory_and_the_name_trap() -> None:
    """Memory for one World but not for two; a host that calls itself 127.0.1.1 beside another one."""
    tight = facts(0, 0, memory={"free": 8 << 20, "total": 64 << 20})
    trapped = facts(1, 1, names={"in /etc/hosts": ["127.0.1.1"]})
    shared, trap = judged([0, 1], [tight, trapped])
    assert "h1: /dev/shm has 8 MiB free of 64 MiB; a World of 1 ranks" in shared
    assert "/etc/hosts of h2 gives h2 the address 127.0.1.1" in trap


def test_what_init_itself_raises_is_not_said_twice() -> None:
    assert judged([0], [facts(0, 0, memory={"free": 0, "total": 1 << 20})]) == []


def test_a_finding_of_all_nodes_is_one_line() -> None:
    crowd = [facts(r, r // 2, placement={"cpus": "0", "threads": 1}) for r in range(64)]
    (line,) = judged([r // 2 for r in range(64)], crowd)
    assert "and 29 more like these" in line


def test_facts_that_cannot_be_judged_stop_no_start() -> None:
    assert judged([0], [{"names": {"host": "h"}}]) == ["what the ranks found cannot be judged: KeyError: 'placement'"]
