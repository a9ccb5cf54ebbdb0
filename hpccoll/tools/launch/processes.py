# SPDX-License-Identifier: Apache-2.0
"""Running one command so that nothing of it is left behind.

Killing mpirun is not enough: daemons make sessions of their own, and ranks whose parent dies go to process 1.
So the launcher adopts orphans (Linux: child subreaper), and whatever descends from it at the end is killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
GRACE = 5.0
"""Seconds between asking a job to end and killing it; between the end of mpirun and killing what is left."""


@dataclass(frozen=True)
class Ending:
    """How a job ended: an exit status as a shell would give it, and what had to be done."""

    status: int
    timed_out: bool
    left_behind: int


def run(argv: Sequence[str], environment: Mapping[str, str], timeout: float | None = None) -> Ending:
    """Execute `argv`, forward signals to it, end it after `timeout` seconds, and leave no descendant."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    main = subprocess.Popen(
        argv,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
    )
    with forwarding(main):
        try:
            status, timed_out = main.wait(timeout), False
        except subprocess.TimeoutExpired:
            status, timed_out = ask_to_end(main), True
    left_behind = kill_descendants(1.0 if timed_out else GRACE)
    return Ending(status if status >= 0 else 128 - status, timed_out, left_behind)


@contextlib.contextmanager
def forwarding(main: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hand the signals that a user or a scheduler sends on to the job, which decides what they mean."""

    def forward(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(main.pid, number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ask_to_end(main: subprocess.Popen[bytes]) -> int:
    """Let mpirun end its ranks; kill it where it does not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(main.pid, signal.SIGTERM)
    try:
        return main.wait(GRACE)
    except subprocess.TimeoutExpired:
        main.kill()
        return main.wait()


def descendants() -> list[int]:
    """All living processes below this one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, below = [], [os.getpid()]
    while below:
        pids = children.get(below.pop(), [])
        found += pids
        below += pids
    return found


def kill_descendants(seconds: float) -> int:
    """Kill what outlived mpirun by more than `seconds`, and reap it. The number of processes killed."""
    deadline = time.monotonic() + seconds
    while descendants() and time.monotonic() < deadline:
        reap()
        time.sleep(0.01)
    killed = set()
    while left := descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        reap()
        time.sleep(0.01)
    return len(killed)


def reap() -> None:
    """Collect children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def say(text: str) -> None:
    """One line from the launcher itself."""
    print(f"hpccoll run: {text}", file=sys.stderr, flush=True)
