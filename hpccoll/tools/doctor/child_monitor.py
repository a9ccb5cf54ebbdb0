# SPDX-License-Identifier: Apache-2.0
"""A child that calls MPI, watched: how far it came, and where it hangs if it does.

MPI_Init does not return in many broken set-ups, holds Python's lock meanwhile, and cannot be interrupted; so it
happens in another process than the one that reports.
"""

from __future__ import annotations

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
STOOD_STILL = 2.0
LOADING_SECONDS = 60.0
"""For the start of Python, and for loading libraries, at least: on a busy parallel file system they take their time."""
STACK_SECONDS = 10.0
"""For a child to write down where it is, if it can."""


@dataclass
class Outcome:
    """How the child ended."""

    report: Facts | None = None
    """What it found, if it came so far."""
    stage: str = FIRST_STAGE
    """What it was doing last."""
    seconds: float = 0.0
    """How long it had been doing that."""
    status: int | None = None
    """Its exit status; None: it hung and was killed."""
    stack: list[str] = field(default_factory=list)
    """Where it hung, innermost first: functions of Python and, if there is a gdb, of the libraries."""
    waits_for: list[str] = field(default_factory=list)
    """Addresses that it was connecting to without an answer."""


def run(
    module: str,
    given: Facts,
    patience: float,
    say: Callable[[str, float], None],
    outcome: Outcome | None = None,
) -> Outcome:
    """Run `python -m module`, with `given` as JSON on its stdin, as long as it reports a new stage in time.

    Descriptors stay open for the child: some launchers hand their connection down as one (PMI_FD).

    :param patience: seconds that one stage may take
    :param say: called about every 10 s with the stage and its seconds
    :param outcome: filled in as it goes, for a caller that is interrupted
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
            _follow(child, messages, patience, say, outcome)
            if outcome.status is None and outcome.stage != FIRST_STAGE:
                outcome.stack = _stack(child.pid, stacks)
                outcome.waits_for = connecting(child.pid)
        except BaseException:  # the caller is interrupted, and what the child has come to by now counts
            outcome.status = child.wait() if messages.take_all() else child.poll()
            raise
        finally:
            os.close(reading)
            child.kill()
            child.wait()
    return outcome


def _hand_over(child: subprocess.Popen[bytes], given: Facts) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(given).encode() + b"\n")
        child.stdin.close()


class _Messages:
    """What the child says through the pipe, noted in the outcome."""

    def __init__(self, reading: int, outcome: Outcome) -> None:
        self.reading, self.outcome, self.text = reading, outcome, b""

    def come(self, seconds: float) -> bool:
        """Whether there is something to take, or the end, within some seconds."""
        return bool(select.select([self.reading], [], [], seconds)[0])

    def take(self) -> bool:
        """Note what has come; False: it was the end."""
        piece = os.read(self.reading, 1 << 16)
        *lines, self.text = (self.text + piece).split(b"\n")
        for message in map(json.loads, lines):
            self.outcome.report = message.get("report", self.outcome.report)
            self.outcome.stage = message.get("stage", self.outcome.stage)
        return bool(piece)

    def take_all(self) -> bool:
        """Note all that has come by now; whether the end was there."""
        while self.come(0):
            if not self.take():
                return True
        return False


def _follow(
    child: subprocess.Popen[bytes],
    messages: _Messages,
    patience: float,
    say: Callable[[str, float], None],
    outcome: Outcome,
) -> None:
    """Read stages and the report until the child ends or a stage lasts too long."""
    began = said = now = time.monotonic()
    while True:
        before = now
        ready = messages.come(0.5)
        now = time.monotonic()
        if now - before > STOOD_STILL:  # the job was suspended, the child with it
            began += now - before
        if ready:
            if not messages.take():
                outcome.status = child.wait()
                return
            began = said = now
        elif child.poll() is not None:
            outcome.status = (
                child.returncode
            )  # the pipe may be open still, in what the MPI library has started
            return
        outcome.seconds = now - began
        loads = outcome.stage in (FIRST_STAGE, stages.LOADING)
        if outcome.seconds > (max(patience, LOADING_SECONDS) if loads else patience):
            return
        if now - said > 10:
            said = now
            say(outcome.stage, outcome.seconds)


def _stack(pid: int, stacks: Any) -> list[str]:
    """What the child is doing: libraries' functions by gdb if there is one, then Python's by its SIGUSR1."""
    os.kill(pid, signal.SIGUSR1)
    native = _native_stack(pid) or _kernel_wait(pid)
    deadline = time.monotonic() + STACK_SECONDS
    while stacks.seek(0, os.SEEK_END) == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    frames = re.findall(r'File ".*?([^/"]+)", line (\d+) in (\S+)', _text(stacks))
    return native + [
        f"{file}:{line} {function}" for file, line, function in frames if "<" not in file + function
    ]


def _text(file: Any) -> str:
    file.seek(0)
    text: bytes = file.read()
    return text.decode(errors="replace")


def _native_stack(pid: int) -> list[str]:
    """The functions of the first thread below the Python interpreter's own."""
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
    """Of gdb's backtrace, innermost first; what gdb knows by address only, and Python's own frames, left out."""
    found = re.findall(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?!0x)([\w.@]+)", backtrace, re.MULTILINE)
    frames = [name.removeprefix("__GI_").strip("_") for name in found]
    python = next(
        (i for i, name in enumerate(frames) if re.match("Py|py|cfunction|time_", name)), len(frames)
    )
    return list(dict.fromkeys(frames[:python]))


def _kernel_wait(pid: int) -> list[str]:
    """The function of the kernel that the process sleeps in, if it says."""
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return []
    return [f"kernel: {where}"] if where not in ("", "0") else []


def connecting(pid: int) -> list[str]:
    """Addresses that the process is connecting to: its sockets in the state SYN_SENT."""
    own = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(os.readlink(entry))
    found = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "02" and f"socket:[{words[9]}]" in own:
                host, port = words[2].split(":")
                address = socket.inet_ntoa(struct.pack("=I", int(host, 16)))
                found.append(f"{address}:{int(port, 16)}")
    return found
