# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs over hosts, without MPI: a rank, a host, a link and the launcher are lost (cluster.sh; needs root)."""

import importlib.util
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from namespaces import PROGRAMS, cluster, hosts_up, python

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SSH = Path(tempfile.gettempdir(), "hpccoll-cluster", "ssh", "config")


def module(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"elastic_{path.stem}", path)
    assert found and found.loader
    made = importlib.util.module_from_spec(found)
    sys.modules[found.name] = made
    found.loader.exec_module(made)
    return made


jobs = module(ROOT / "tests" / "elastic" / "jobs.py")


@pytest.fixture(autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS)
    with hosts_up(3, uncounted):
        yield


UNTIL_SILENT = ("-c", (ROOT / "tests" / "netns" / "until_silent.py").read_text())
"""Before words of Python: what they start is waited for, too."""


def run(folder: Path, plan: list[list[Any]], then: tuple[str, ...] = (), **variables: str) -> Any:
    """Run the stepping program on three hosts; when it has made its mark, do something to the cluster."""
    (folder / "plan.json").write_text(json.dumps(plan))

    def wait_and_act() -> None:
        limit = time.monotonic() + 120
        while not (folder / "mark").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        cluster(*then)

    if then:
        threading.Thread(target=wait_and_act, daemon=True).start()
    environment = {"STEPPING": str(folder), "HPCCOLL_DETERMINISTIC": "1", "HPCCOLL_CHECK": "0",
                   "HPCCOLL_TRACE_DIR": "none", "PYTHONPATH": str(ROOT), **variables}  # fmt: skip
    options = ["-x", "STEPPING", "-H", "h1:1,h2:1,h3:1", "-np", 3, "--min-np", 2, "--timeout", 100]
    command = ["-P", "-m", "hpccoll", "run", f"--launcher-options=-F {SSH}", *options]
    done = python(
        "h1", *UNTIL_SILENT, *command, sys.executable, "-P", ROOT / "tests/elastic/stepping.py", **environment
    )
    result = folder / "result.json"
    found = json.loads(result.read_text()) if result.exists() else {"log": [], "weights": "", "size": 0}
    return jobs.Ran(done.returncode, done.stdout, found["log"], bytes.fromhex(found["weights"]), found["size"])


def test_a_killed_rank_is_replaced_on_its_host(tmp_path: Path) -> None:
    ran = run(tmp_path, [[6, 1, "after", "SIGKILL", 0], [10, -1, "before", "reach", 3]])
    jobs.check(ran)
    assert ran.sizes == [3, 2, 3] and "rank 1 (host h2, slot 0) was lost" in ran.output, ran.output


def test_the_others_go_on_without_a_host_that_has_crashed(tmp_path: Path) -> None:
    plan = [[6, 0, "before", "mark", 0], [8, -1, "before", "fall", 2]]
    ran = run(tmp_path, plan, ("crash", "h3"))
    jobs.check(ran)
    assert ran.sizes == [3, 2] and "rank 2 (host h3, slot 0) was lost" in ran.output, ran.output


def test_a_host_that_is_cut_off_ends_and_the_others_go_on(tmp_path: Path) -> None:
    plan = [[6, 0, "before", "mark", 0], [8, -1, "before", "fall", 2]]
    ran = run(tmp_path, plan, ("linkdown", "h3"), HPCCOLL_PEER_TIMEOUT="3")
    jobs.check(ran)
    assert ran.sizes == [3, 2] and "rank 2 (host h3, slot 0) was lost" in ran.output, ran.output


KILLED = 128 + 9
KILL_LAUNCHER = [6, 0, "after", "kill launcher", 0]
ENDS = "so its ranks cannot change: see why `hpccoll run` ended"


def left_of(folder: Path) -> list[tuple[int, str]]:
    """Processes of the job that are still there after some seconds."""
    limit = time.monotonic() + 20
    while (left := jobs.processes_of(folder)) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def test_training_goes_on_without_the_launcher(tmp_path: Path) -> None:
    ran = run(tmp_path, [KILL_LAUNCHER])
    jobs.check(ran, status=KILLED)
    assert ran.sizes == [3] and ran.output.count("the launcher of the job is gone: training goes on") == 1, ran.output
    assert not left_of(tmp_path)


def test_a_loss_without_the_launcher_ends_the_job_on_all_hosts(tmp_path: Path) -> None:
    """What rank 2 says comes through ssh, which outlives the launcher."""
    ran = run(tmp_path, [KILL_LAUNCHER, [9, 1, "before", "SIGKILL", 0]])
    assert ran.status == KILLED and ran.output.count(ENDS) >= 2 and not ran.log, ran.output
    assert not left_of(tmp_path), ran.output


def test_a_cut_without_the_launcher_ends_the_job_on_both_sides(tmp_path: Path) -> None:
    plan = [KILL_LAUNCHER, [8, 0, "before", "mark", 0], [9, -1, "before", "fall", 2]]
    ran = run(tmp_path, plan, ("linkdown", "h3"), HPCCOLL_PEER_TIMEOUT="3")
    assert ran.status == KILLED and ENDS in ran.output and not ran.log, ran.output
    assert not left_of(tmp_path), ran.output
