# SPDX-License-Identifier: Apache-2.0
"""Monitors a child process that calls MPI: the stages that it reaches, and where it hangs if it does.

MPI_Init does not return in many broken set-ups, holds Python's lock meanwhile, and cannot be interrupted. So it runs in
another process than the one that reports.
"""

import atexit
import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpccoll.checks.finding import Facts
from hpccoll.tools.doctor import stages

FIRST_STAGE = "the start of Python"
SUSPENDED = 2.0
"""A pause of more seconds between two polls means that this process was suspended."""
LOADING_SECONDS = 60.0
"""The least patience with the start of Python and the loading of libraries, slow on a busy parallel file system."""
STACK_SECONDS = 10.0
"""Time for a child to write down its stack, if it can."""


@dataclass
class Outcome:
    """The result of a child."""

    report: Facts | None = None
    """The child's report, if it sent one."""
    stage: str = FIRST_STAGE
    """The last stage that the child began."""
    seconds: float = 0.0
    """Time that the child had spent in that stage."""
    status: int | None = None
    """The child's exit status; None: it hangs or failed, and is stopped."""
    error: str = ""
    """Why the stage failed, if the child said so."""
    stack: list[str] = field(default_factory=list)
    """The stack of a child that hung, innermost first: Python's functions and, if there is a gdb, the libraries'."""
    waits_for: list[str] = field(default_factory=list)
    """Addresses that a child that hung was connecting to without an answer."""


def run(
    module: str,
    given: Facts,
    patience: float,
    progress: Callable[[str, float], None],
    outcome: Outcome | None = None,
) -> Outcome:
    """Run `python -m module` as long as it reports a new stage in time, and stop it otherwise.

    A child that hangs, or says that it failed, is killed when this process ends, and not before: launchers that serve
    PMIx (Open MPI 5, Slurm) end the whole job at the death of one of their clients, and the report would be lost.

    Descriptors stay open for the child, because some launchers pass their connection as one (PMI_FD).

    :param given: written to the child's stdin as JSON
    :param patience: seconds that one stage may take
    :param progress: called about every 10 s with the stage and its seconds
    :param outcome: filled in step by step, for a caller that is interrupted
    :returns: the outcome
    """
    outcome = outcome or Outcome()
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    with tempfile.TemporaryFile() as stacks:
        os.set_inheritable(stacks.fileno(), True)
        command = [sys.executable, "-m", module, str(writing), str(stacks.fileno())]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, close_fds=False)
        os.close(writing)
        messages = _Messages(reading, outcome)
        try:
            _hand_over(child, given)
            _follow(child, messages, patience, progress, outcome)
            if outcome.status is None:
                if outcome.stage != FIRST_STAGE and not outcome.error:
                    outcome.stack = _stack(child.pid, stacks)
                    outcome.waits_for = connecting(child.pid)
                _stop_until_the_end(child)
        except BaseException:  # the caller is interrupted: take what the child has sent so far
            outcome.status = child.wait() if messages.take_all() else child.poll()
            child.kill()
            child.wait()
            raise
        finally:
            os.close(reading)
    return outcome


def _stop_until_the_end(child: subprocess.Popen[bytes]) -> None:
    """Stop a child, and kill it when this process ends; see also Stages."""
    child.send_signal(signal.SIGSTOP)

    def kill() -> None:
        child.kill()
        child.wait()

    atexit.register(kill)


def _hand_over(child: subprocess.Popen[bytes], given: Facts) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(given).encode() + b"\n")
        child.stdin.close()


class _Messages:
    """Reads the child's messages from the pipe into the outcome."""

    def __init__(self, reading: int, outcome: Outcome) -> None:
        self.reading, self.outcome, self.text = reading, outcome, b""

    def wait(self, seconds: float) -> bool:
        """Wait until a message or the end of the pipe can be read; False after `seconds`."""
        return bool(select.select([self.reading], [], [], seconds)[0])

    def take(self) -> bool:
        """Read the available bytes; return False at the end of the pipe."""
        data = os.read(self.reading, 1 << 16)
        *lines, self.text = (self.text + data).split(b"\n")
        for message in map(json.loads, lines):
            self.outcome.report = message.get("report", self.outcome.report)
            self.outcome.stage = message.get("stage", self.outcome.stage)
            self.outcome.error = message.get("error", self.outcome.error)
        return bool(data)

    def take_all(self) -> bool:
        """Read all available bytes; return whether the pipe has ended."""
        while self.wait(0):
            if not self.take():
                return True
        return False


def _follow(
    child: subprocess.Popen[bytes],
    messages: _Messages,
    patience: float,
    progress: Callable[[str, float], None],
    outcome: Outcome,
) -> None:
    """Read stages and the report until the child ends, says that a stage failed, or a stage lasts too long."""
    began = reported = now = time.monotonic()
    while True:
        before = now
        ready = messages.wait(0.5)
        now = time.monotonic()
        if now - before > SUSPENDED:  # the job was suspended, and the child with it
            began += now - before
        if ready:
            if not messages.take():
                outcome.status = child.wait()
                return
            began = reported = now
        elif child.poll() is not None:
            outcome.status = child.returncode  # a process that the MPI library started may hold the pipe open
            return
        outcome.seconds = now - began
        if outcome.error:
            return
        loads = outcome.stage in (FIRST_STAGE, stages.LOADING)
        if outcome.seconds > (max(patience, LOADING_SECONDS) if loads else patience):
            return
        if now - reported > 10:
            reported = now
            progress(outcome.stage, outcome.seconds)


def _stack(pid: int, stacks: Any) -> list[str]:
    """Return the child's stack: library functions from gdb if there is one, then Python's from its SIGUSR1 handler."""
    os.kill(pid, signal.SIGUSR1)
    native = _native_stack(pid) or _kernel_wait(pid)
    deadline = time.monotonic() + STACK_SECONDS
    while stacks.seek(0, os.SEEK_END) == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    frames = re.findall(r'File ".*?([^/"]+)", line (\d+) in (\S+)', _text(stacks))
    return native + [f"{file}:{line} {function}" for file, line, function in frames if "<" not in file + function]


def _text(file: Any) -> str:
    file.seek(0)
    text: bytes = file.read()
    return text.decode(errors="replace")


def _native_stack(pid: int) -> list[str]:
    """Return the library functions of the first thread, up to the Python interpreter's own."""
    if not shutil.which("gdb"):
        return []
    command = shlex.split(f"gdb -p {pid} -batch -nx -ex 'thread 1' -ex 'bt 40'")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (subprocess.TimeoutExpired, OSError):
        return []
    return library_functions(done.stdout)


def library_functions(backtrace: str) -> list[str]:
    """Read the functions of gdb's backtrace, innermost first, without addresses that have no name.

    :returns: the functions up to the first one of the Python interpreter
    """
    found = re.findall(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?!0x)([\w.@]+)", backtrace, re.MULTILINE)
    frames = [name.removeprefix("__GI_").strip("_") for name in found]
    python = next((i for i, name in enumerate(frames) if re.match("Py|py|cfunction|time_", name)), len(frames))
    return list(dict.fromkeys(frames[:python]))


def _kernel_wait(pid: int) -> list[str]:
    """Return the kernel function that the process sleeps in, if the kernel tells it."""
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return []
    return [f"kernel: {where}"] if where not in ("", "0") else []


def connecting(pid: int) -> list[str]:
    """Find the addresses that a process is connecting to: its sockets in the state SYN_SENT."""
    sockets = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(entry))
    found = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "02" and f"socket:[{words[9]}]" in sockets:
                host, port = words[2].split(":")
                address = socket.inet_ntoa(struct.pack("=I", int(host, 16)))
                found.append(f"{address}:{int(port, 16)}")
    return found
