# SPDX-License-Identifier: Apache-2.0
"""Jobs with one fault each: real processes that find each other through a folder, and the output about them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STORE = str(Path(__file__).parents[2] / "api")
PRELUDE = """
import os, re, signal, sys, time, numpy as np
sys.path.append({store!r})
from file_store import FileStore
import hpccoll
from hpccoll.rendezvous import StoreRendezvous
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def init(**knobs):
    return hpccoll.init(rendezvous=StoreRendezvous(rank, size, FileStore(folder), timeout=60), verbose=0, **knobs)
def here(what):
    open(os.path.join(folder, what), "w").write(str(os.getpid()))
"""


class Job:
    """The ranks are children of one shell, whose process number stands for the job."""

    def __init__(self, folder: Path, program: str, ranks: int, **environment: str) -> None:
        self.folder, self.traces = folder, folder / "traces"
        (folder / "store").mkdir()
        (folder / "train.py").write_text(PRELUDE.format(store=STORE) + program)
        each = [f"{sys.executable} train.py {rank} {ranks} store > out{rank} 2>&1 &" for rank in range(ranks)]
        variables = {**os.environ, "HPCCOLL_TRACE_DIR": str(self.traces), **environment}
        self.shell = subprocess.Popen(
            ["sh", "-c", "\n".join([*each, "wait"])], cwd=folder, start_new_session=True, env=variables
        )

    def wait(self) -> None:
        self.shell.wait(timeout=100)

    def pid(self, what: str) -> int:
        """Return the id of the process that has called `here(what)`."""
        file, deadline = self.folder / "store" / what, time.monotonic() + 100
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)
        return int(file.read_text())

    def output(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("out*")))

    def said(self, *command: str) -> str:
        """Return the output of a command of hpccoll, in one line."""
        done = subprocess.run(
            [sys.executable, "-m", "hpccoll", *command], capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr + self.output()
        return " ".join(done.stdout.split())

    def explained(self) -> str:
        return self.said("trace", "explain", str(self.traces))

    def attached(self) -> str:
        return self.said("doctor", "--attach", str(self.shell.pid))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """`job(program, ranks, NAME=value)` starts a job; its remaining processes are killed after the test."""
    started = []

    def start(program: str, ranks: int, **environment: str) -> Job:
        started.append(Job(tmp_path, program, ranks, **environment))
        return started[-1]

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.shell.pid, signal.SIGKILL)
        one.shell.wait()
