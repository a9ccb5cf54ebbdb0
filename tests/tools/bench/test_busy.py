# SPDX-License-Identifier: Apache-2.0
"""Other load beside the ranks: it runs on each core, and ends with the rank that started it, also if that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpccoll.tools.bench import busy

pytestmark = pytest.mark.timeout(120)


class Alone:
    rank, size = 0, 1

    def share(self, value: object) -> list[object]:
        return [value]


def computing(marked: str) -> dict[int, int]:
    """Return the busy processes with a variable of the test, and their parents."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marked.encode() in (folder / "environ").read_bytes() and b"getppid" in (folder / "cmdline").read_bytes():
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def bound(marked: str) -> list[set[int]]:
    return sorted(map(os.sched_getaffinity, computing(marked)), key=min)


def until(what: str, holds: Callable[[], object], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_each_core_is_busy_and_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_BUSY", marked := f"alone-{os.getpid()}")
    cores = os.sched_getaffinity(0)
    with busy.beside(Alone(), 1) as count:
        assert count == len(cores)
        until("one is bound to each core", lambda: bound(marked) == [{core} for core in sorted(cores)])
    assert not computing(marked)
    with busy.beside(Alone(), 0) as count:
        assert count == 0 and not computing(marked)


def test_a_killed_rank_leaves_none_behind() -> None:
    marked = f"killed-{os.getpid()}"
    words = ["hpccoll", "bench", "allreduce", "--sizes", "8", "--seconds", "100", "--width", "0", "--most", "1000000"]
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "--timeout", "100", "--"]
    command += [sys.executable, "-P", "-m", *words, "--busy", "1", "--oversubscribed"]
    with subprocess.Popen(
        command, env={**os.environ, "TEST_BUSY": marked}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        try:
            until("no process is busy", lambda: computing(marked))
            (parent,) = set(computing(marked).values())
            os.kill(parent, signal.SIGKILL)
            until("processes are left behind", lambda: not computing(marked), 20)
        finally:
            job.terminate()
            job.wait(60)
    assert not computing(marked)
