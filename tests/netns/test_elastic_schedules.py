# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs over hosts under random schedules of kills, stops, cut links, leaves, joins and slow disks.

In some of them the launcher is killed. ELASTIC_SCHEDULES says how many (default 10), ELASTIC_SEED with which one to
begin. No job hangs; none has two Worlds of one generation or leaves a process behind; each one commits every sample
once, or ends and says why. Needs root.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from namespaces import PROGRAMS, cluster, hosts_up, python
from test_elastic_hosts import ENDS, KILLED, ROOT, SSH, UNTIL_SILENT, jobs

SCHEDULES = int(os.environ.get("ELASTIC_SCHEDULES", "10"))
FIRST = int(os.environ.get("ELASTIC_SEED", "0"))
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
ALL = ("h1:1", "h2:1", "h3:2")
LAUNCHER = "launcher"
"""The mark at which the launcher is killed."""
LIMIT = 120
"""Seconds of a job."""


@pytest.fixture(scope="module", autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS)
    with hosts_up(3, uncounted):
        yield


class Schedule:
    """What happens in one job, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.plan: list[list[Any]] = []
        self.cuts: dict[int, tuple[str, float]] = {}
        """Which host is cut off when a mark is made, and for how many seconds."""
        for number in range(1, draw.randint(2, 5)):
            step, rank, place = draw.randint(1, 25), draw.randint(0, 3), draw.choice(("before", "after", "sync"))
            deed = draw.choice(("SIGKILL", "SIGKILL", "pause", "SIGTERM", "exit", "cut", "leave", "join"))
            if deed == "cut":
                self.cuts[number] = draw.choice(("h2", "h3")), draw.choice((0.5, 3.0, 10.5, 14.0))
                self.plan += [[step, 0, place, "mark", number]]
            elif deed in ("leave", "join"):
                names = [name for name in ALL if deed == "join" or name == ALL[0] or draw.random() < 0.5]
                self.plan += [[step, 0, place, "hosts", "\n".join(names)]]
            else:
                self.plan += [[step, rank, place, deed, 1]]
        self.ends_launcher = draw.random() < 0.3
        if self.ends_launcher:
            self.plan += [[draw.randint(1, 25), 0, draw.choice(("before", "after", "sync")), "mark", LAUNCHER]]
        self.words = ("durable", "slow-disk") if draw.random() < 0.3 else ()

    def act(self, folder: Path, ended: threading.Event) -> None:
        """Cut hosts off, and connect them again; kill the launcher."""
        if self.ends_launcher:
            threading.Thread(target=self.kill_launcher, args=(folder, ended)).start()
        for number, (host, seconds) in sorted(self.cuts.items()):
            while not (folder / f"mark{number}").exists():
                if ended.wait(0.05):
                    return
            cluster("linkdown", host)
            ended.wait(seconds)
            cluster("linkup", host)

    def kill_launcher(self, folder: Path, ended: threading.Event) -> None:
        while not (folder / f"mark{LAUNCHER}").exists():
            if ended.wait(0.05):
                return
        for pid, words in jobs.processes_of(folder):
            if words.startswith(f"{sys.executable} -P -m hpccoll run "):
                os.kill(pid, signal.SIGKILL)


def run(folder: Path, schedule: Schedule) -> Any:
    (folder / "plan.json").write_text(json.dumps(schedule.plan))
    (folder / "hosts").write_text("\n".join(ALL))
    ended = threading.Event()
    actor = threading.Thread(target=schedule.act, args=(folder, ended))
    actor.start()
    environment = {"STEPPING": str(folder), "HPCCOLL_DETERMINISTIC": "1", "HPCCOLL_CHECK": "0",
                   "HPCCOLL_TRACE_DIR": "none", "PYTHONPATH": str(ROOT), "HPCCOLL_PEER_TIMEOUT": "2"}  # fmt: skip
    options = ["-x", "STEPPING", "--host-discovery-script", f"cat {folder}/hosts", "-np", 3, "--min-np", 1]
    options += ["--timeout", LIMIT, "--host-failures", 100, "--elastic-timeout", 60, "--straggler-timeout", 20]
    command = ["-P", "-m", "hpccoll", "run", f"--launcher-options=-F {SSH}", *options]
    program = [sys.executable, "-P", ROOT / "tests/elastic/stepping.py", *schedule.words]
    try:
        done = python("h1", *UNTIL_SILENT, *command, *program, timeout=LIMIT + 40, **environment)
    finally:
        ended.set()
        actor.join()
    result = folder / "result.json"
    found = json.loads(result.read_text()) if result.exists() else {"log": [], "weights": "", "size": 0}
    return jobs.Ran(done.returncode, done.stdout, found["log"], bytes.fromhex(found["weights"]), found["size"])


def check_worlds(folder: Path) -> None:
    """A generation has one World, whose ranks have numbers of their own."""
    seen: dict[int, list[tuple[Any, int, int]]] = {}
    for line in (folder / "worlds").read_text().splitlines() if (folder / "worlds").exists() else []:
        generation, nonce, rank, size = json.loads(line)
        seen.setdefault(generation, []).append((nonce, rank, size))
    for generation, worlds in seen.items():
        assert len({(nonce, size) for nonce, _, size in worlds}) == 1, (generation, worlds)
        assert len({rank for _, rank, _ in worlds}) == len(worlds), (generation, worlds)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEDULES))
def test_a_random_schedule(tmp_path: Path, seed: int) -> None:
    schedule = Schedule(seed)
    ran = run(tmp_path, schedule)
    told = (schedule.plan, schedule.cuts, schedule.words, ran.output)
    assert "--timeout" not in ran.output and ran.status != 124, told
    if ran.status not in (0, KILLED):
        assert "the job ends: " in ran.output, told
    elif ran.status == 0 or ran.log:
        jobs.check(ran, exact=False, status=ran.status)
    else:
        assert ENDS in ran.output, told
    check_worlds(tmp_path)
    limit = time.monotonic() + 60
    while (left := jobs.processes_of(tmp_path)) and time.monotonic() < limit:
        time.sleep(0.5)
    assert not left, (left, told)
