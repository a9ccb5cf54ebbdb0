# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor -H h1,h2`: starts a process on each host over ssh, and passes values between them as their hub.

It involves neither MPI nor a launcher's daemons, so it answers even where `mpirun` itself hangs.
"""

import contextlib
import json
import os
import selectors
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from hpccoll import inherited
from hpccoll.checks.finding import ERROR, Facts, Finding
from hpccoll.tools.doctor import addresses
from hpccoll.tools.launch.job import Host

LIKE_HERE = ("PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


ANSWERS = {"here", "value", "report"}
"""The possible keys of a line from a process on a host; each line has one of them."""
LONGEST = 64 << 20
"""Bytes of the longest line that is read."""


@dataclass
class Remote:
    """A host and the process on it."""

    name: str
    process: subprocess.Popen[bytes]
    failure: str = ""
    unread: bytes = b""

    def answer(self) -> Facts | None:
        """Return the next answer; skip other lines, such as a login's greeting."""
        while b"\n" in self.unread:
            line, _, self.unread = self.unread.partition(b"\n")
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict) and found.keys() & ANSWERS:
                    return found
        return None

    def send(self, value: Any) -> None:
        """Send the process a line of JSON; a process that has ended is noticed by its missing answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(value).encode() + b"\n")
            self.process.stdin.flush()

    def fail(self, patience: float) -> None:
        """Find out why no answer came: the last line on stderr, or that there is none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # a process closes its pipe a moment before it ends
        silent = self.process.poll() is None
        self.process.kill()
        lines = self.process.communicate()[1].decode(errors="replace").strip().splitlines()
        why = f"no answer within {patience:g} s" if silent else f"ssh ended with status {self.process.returncode}"
        self.failure = lines[-1] if lines else why


def run(hosts: tuple[Host, ...], ssh: str, options: Facts, patience: float) -> Facts:
    """Examine hosts over ssh.

    :param hosts: each is examined once, also one that is there twice
    :param ssh: the command that reaches a host
    :param options: see examine.examine
    :param patience: seconds for a host to answer
    :returns: the report of the first host that answers, with an error for each host that does not
    :raises ValueError: there is no such command
    """
    agent = shlex.split(ssh)
    if not agent or shutil.which(agent[0]) is None:
        raise ValueError(f"--ssh {ssh!r}: there is no such program")
    remotes = [start(name, agent) for name in dict.fromkeys(host.name for host in hosts)]
    try:
        _answers(remotes, patience)
        present = [remote for remote in remotes if not remote.failure]
        for rank, remote in enumerate(present):
            remote.send({"rank": rank, "size": len(present), "options": options})
        report = _serve(present, 4 * patience) if present else nothing()
    finally:
        for remote in remotes:
            remote.process.kill()
            remote.process.wait()
    failures = [unreachable(remote, ssh) for remote in remotes if remote.failure]
    report["findings"] = [asdict(failure) for failure in failures] + report["findings"]
    report["errors"] += len(failures)
    return report


def start(host: str, agent: list[str]) -> Remote:
    """Start this Python's doctor on a host, in this folder, with the variables that a job from here would get.

    :param agent: the words of the command that reaches a host
    """
    env = inherited.environment()
    passed = [f"{name}={env[name]}" for name in (*addresses.CHOOSERS, *LIKE_HERE) if name in env]
    inner = shlex.join(["env", *passed, sys.executable, "-m", "hpccoll", "doctor", "--at-hub"])
    words = [*agent, *((*SSH_OPTIONS, "--") if agent[0].endswith("ssh") else ()), host]
    process = subprocess.Popen(
        [*words, f"cd {shlex.quote(os.getcwd())} && exec {inner}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return Remote(host, process)


def nothing() -> Facts:
    """Return the report if no host answers."""
    return {"findings": [], "errors": 0}


def _answers(remotes: list[Remote], patience: float) -> dict[str, Any]:
    """Read the next answer of each process; a process without an answer in time has failed."""
    answers: dict[str, Any] = {}
    deadline = time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        for remote in remotes:
            assert remote.process.stdout is not None
            selector.register(remote.process.stdout, selectors.EVENT_READ, remote)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                remote, data = key.data, os.read(key.fd, 1 << 16)
                remote.unread += data
                answer = remote.answer()
                if answer is not None:
                    answers[remote.name] = answer
                if answer is not None or not data or len(remote.unread) > LONGEST:
                    selector.unregister(key.fileobj)
    for remote in remotes:
        if remote.name not in answers:
            remote.fail(patience)
    return answers


def _serve(present: list[Remote], patience: float) -> Facts:
    """Pass values around until the first process has its report; a process that ends before ends the examination."""
    while True:
        answers = _answers(present, patience)
        if len(answers) < len(present):
            return nothing()
        if "report" in answers[present[0].name]:
            report: Facts = answers[present[0].name]["report"]
            return report
        for remote in present:
            remote.send([answers[other.name].get("value") for other in present])


def unreachable(remote: Remote, ssh: str) -> Finding:
    """Make the finding of a host on which ssh or Python did not start."""
    return Finding(
        "ssh",
        ERROR,
        f"{remote.name}: {remote.failure}",
        "mpirun starts its daemons on other hosts over ssh and waits for them",
        f"`{ssh} -o BatchMode=yes {remote.name} {sys.executable} --version` must answer at once: keys instead of "
        "passwords, a known host key, the same Python at the same place, a shared folder",
    )
