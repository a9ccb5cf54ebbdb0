# SPDX-License-Identifier: Apache-2.0
"""Runs one command so that none of its processes is left behind.

It is not enough to kill mpirun: daemons create new sessions, and process 1 adopts ranks whose parent dies. So the
launcher adopts orphans itself (Linux: child subreaper), and kills all its descendants at the end.
"""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hpccoll import text
from hpccoll.detect.descendants import descendants
from hpccoll.tools.kin import adopt_orphans, end_with_parent

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL to a job, and between the end of mpirun and SIGKILL to its descendants."""
POLL = 0.25
"""Seconds between two looks at the ranks."""
FILES, FILES_PER_RANK = 256, 8
"""How many files mpirun may open: Open MPI 5 was seen to need 5 per rank, and fails or hangs without them."""
LARGEST_ANSWER = 4 << 20
"""Bytes that a command which is asked something may print: a list of a hundred thousand hosts, and no endless one."""
OVERDUE = 8.0
"""Seconds that mpirun may live on after its last rank, for the rest of the output."""


class EndlessAnswerError(Exception):
    """A command has printed more than its answer can have."""


@dataclass(frozen=True)
class Ending:
    """The end of a job."""

    status: int
    """The exit status as a shell would give it."""
    timed_out: bool
    """Whether the timeout ended the job."""
    left_behind: int
    """Number of processes that outlived the launcher and were killed."""
    overdue: bool = False
    """Whether all ranks had ended and mpirun had not, so that it was ended."""
    interrupted: bool = False
    """Whether the user has interrupted the job."""


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout: float | None = None,
    ranks_have_ended: Callable[[], bool] = lambda: False,
    ranks: int = 1,
) -> Ending:
    """Execute a command, forward signals to it, and kill the descendants that it leaves behind.

    :param environment: the whole environment of the command
    :param timeout: seconds after which the command is ended; None: no limit
    :param ranks_have_ended: when it is true, mpirun has OVERDUE seconds to end
    :param ranks: how many it starts
    """

    def prepare() -> None:
        end_with_parent(signal.SIGTERM)
        allow_files(FILES + FILES_PER_RANK * ranks)

    adopt_orphans()
    main = subprocess.Popen(
        argv,
        env=environment,
        stdin=None if sys.stdin else subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=prepare,
    )
    with forwarding(main) as forwarded:
        status, why = wait(main, timeout, ranks_have_ended)
    left_behind = kill_descendants(1.0 if why else GRACE)
    return Ending(
        status if status >= 0 else 128 - status,
        why == "timeout",
        left_behind,
        why == "overdue",
        signal.SIGINT in forwarded,
    )


def allow_files(number: int) -> None:
    """Let this process open so many files, or as many as the system lets it: the limit that users set is often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))


def wait(
    main: subprocess.Popen[bytes], timeout: float | None, ranks_have_ended: Callable[[], bool]
) -> tuple[int, Literal["", "timeout", "overdue"]]:
    """Wait for mpirun, and end it when its time is over.

    :returns: the exit status of mpirun, and why it was ended; "": it ended by itself
    """
    limit = time.monotonic() + timeout if timeout else float("inf")
    overdue = float("inf")
    while time.monotonic() < min(limit, overdue):
        try:
            return main.wait(min(POLL, max(0.0, limit - time.monotonic()))), ""
        except subprocess.TimeoutExpired:
            reap_adopted((main.pid,))
            if overdue == float("inf") and ranks_have_ended():
                overdue = time.monotonic() + OVERDUE
    return ask_to_end(main), "timeout" if time.monotonic() >= limit else "overdue"


def answer_of(
    command: str | Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; after a limit of time or length kill it and all its processes.

    It is not enough to kill the command: mpirun may be a script, and processes of a shell keep the pipe open.

    :param command: words, or one line for a shell
    :raises subprocess.TimeoutExpired: it has not ended, or its processes have kept the pipe open
    :raises EndlessAnswerError: it has printed more than any answer has
    """
    pipe, shell = subprocess.PIPE, isinstance(command, str)
    with subprocess.Popen(
        command, shell=shell, env=environment, stdout=pipe, stderr=pipe, start_new_session=True
    ) as asked:
        try:
            output, errors = _printed_by(asked, seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, asked.returncode, output, errors)


def _printed_by(asked: subprocess.Popen[bytes], seconds: float) -> list[str]:
    """Wait for the end of a command, and return what it has printed on each of its two pipes; see answer_of.

    Popen.communicate() would collect the output of a command that prints without end until the time limit.
    """
    limit = time.monotonic() + seconds
    printed = {pipe.fileno(): bytearray() for pipe in (asked.stdout, asked.stderr) if pipe}
    with selectors.DefaultSelector() as selector:
        for pipe in printed:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, limit - time.monotonic()))
            if time.monotonic() >= limit:
                raise subprocess.TimeoutExpired(asked.args, seconds)
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                printed[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                if len(printed[key.fd]) > LARGEST_ANSWER:
                    raise EndlessAnswerError(f"it has printed more than {LARGEST_ANSWER >> 20} MiB")
    asked.wait(max(0.0, limit - time.monotonic()))
    return [text.decode() for text in printed.values()]


@contextlib.contextmanager
def forwarding(main: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Forward the signals of a user or a scheduler to the job, which handles them; gives a list of those that came."""
    came: list[int] = []

    def forward(number: int, _frame: object) -> None:
        came.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(main.pid, number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ask_to_end(main: subprocess.Popen[bytes]) -> int:
    """Signal mpirun to end its ranks, and kill it if it does not end.

    :returns: the exit status of mpirun
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(main.pid, signal.SIGTERM)
    try:
        return main.wait(GRACE)
    except subprocess.TimeoutExpired:
        main.kill()
        return main.wait()


def kill_descendants(seconds: float) -> int:
    """Kill and reap the descendants that outlive mpirun by more than `seconds`.

    :returns: the number of processes killed
    """
    deadline = time.monotonic() + seconds
    while descendants(os.getpid(), zombies=False) and time.monotonic() < deadline:
        reap()
        time.sleep(0.01)
    killed = set()
    while left := descendants(os.getpid(), zombies=False):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        reap()
        time.sleep(0.01)
    return len(killed)


def reap() -> None:
    """Reap children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def reap_adopted(own: Container[int]) -> None:
    """Reap adopted processes that have ended, as process 1 does: each would count as a process of the user.

    :param own: the children that others wait for
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)


def say(sentence: str) -> None:
    """Print one line of the launcher itself."""
    text.say(f"hpccoll run: {sentence}")
