# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor -H h1,h2`: a process on each host over ssh, and this one as the hub they meet at.

No MPI and no launcher's daemons are involved: where `mpirun` itself hangs, this still answers.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from hpccoll import config
from hpccoll.checks.finding import ERROR, Facts, Finding
from hpccoll.doctor import addresses
from hpccoll.launch.job import Host

LIKE_HERE = ("PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass
class Remote:
    """A host and the process there."""

    name: str
    process: subprocess.Popen[str]
    failure: str = ""


def run(hosts: tuple[Host, ...], ssh: str, options: Facts, patience: float) -> Facts | None:
    """The report of the first host that answers, with an error for each that does not; None: no host answers."""
    remotes = [start(host.name, ssh) for host in hosts]
    try:
        present = _greeted(remotes, patience)
        for rank, remote in enumerate(present):
            _send(remote, {"rank": rank, "size": len(present), "options": options})
        report = _serve(present, 4 * patience) if present else None
    finally:
        for remote in remotes:
            remote.process.kill()
            remote.process.wait()
    failures = [unreachable(remote, ssh) for remote in remotes if remote.failure]
    if report is None:
        report = {"findings": [], "errors": 0, "empty": True}
    report["findings"] = [vars(failure) for failure in failures] + report["findings"]
    report["errors"] += len(failures)
    return report


def start(host: str, ssh: str) -> Remote:
    """Start this Python's doctor there, in this folder, told about interfaces what a job from here would be."""
    env = config.environment()
    passed = [f"{name}={env[name]}" for name in (*addresses.CHOOSERS, *LIKE_HERE) if name in env]
    inner = shlex.join(["env", *passed, sys.executable, "-m", "hpccoll", "doctor", "--at-hub"])
    folder = shlex.quote(os.getcwd())
    words = [*shlex.split(ssh), *(SSH_OPTIONS if shlex.split(ssh)[0].endswith("ssh") else ()), host]
    process = subprocess.Popen(
        [*words, f"cd {folder} && exec {inner}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    return Remote(host, process)


def _greeted(remotes: list[Remote], patience: float) -> list[Remote]:
    """Those whose process says that it is there; the others get their reason."""
    lines = _lines(remotes, patience)
    for remote in remotes:
        if remote.name not in lines:
            _fail(remote, patience)
    return [remote for remote in remotes if not remote.failure]


def _fail(remote: Remote, patience: float) -> None:
    if remote.process.poll() is None:
        remote.failure = f"no answer within {patience:g} s"
        remote.process.kill()
    _, said = remote.process.communicate()
    lines = said.strip().splitlines()
    remote.failure = (
        lines[-1] if lines else remote.failure or f"ssh ended with status {remote.process.returncode}"
    )


def _lines(remotes: list[Remote], patience: float) -> dict[str, Any]:
    """One line of JSON from each, as far as they come in time; other lines (a login's greetings) are passed over."""
    found: dict[str, Any] = {}
    deadline = time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        for remote in remotes:
            assert remote.process.stdout is not None
            selector.register(remote.process.stdout, selectors.EVENT_READ, remote)
        while len(found) < len(remotes) and (left := deadline - time.monotonic()) > 0 and selector.get_map():
            for key, _ in selector.select(left):
                remote, line = key.data, key.fileobj.readline()  # type: ignore[union-attr]
                if line.startswith("{"):
                    found[remote.name] = json.loads(line)
                if line.startswith("{") or not line:
                    selector.unregister(key.fileobj)
    return found


def _send(remote: Remote, value: Any) -> None:
    assert remote.process.stdin is not None
    remote.process.stdin.write(json.dumps(value) + "\n")
    remote.process.stdin.flush()


def _serve(present: list[Remote], patience: float) -> Facts | None:
    """Hand values around until the first process has its report."""
    while True:
        said = _lines(present, patience)
        for remote in present:
            if remote.name not in said:
                _fail(remote, patience)
                return None
        if "report" in said[present[0].name]:
            report: Facts = said[present[0].name]["report"]
            return report
        values = [said[remote.name]["value"] for remote in present]
        for remote in present:
            _send(remote, values)


def unreachable(remote: Remote, ssh: str) -> Finding:
    """A host that ssh or Python did not come up on."""
    return Finding(
        "ssh",
        ERROR,
        f"{remote.name}: {remote.failure}",
        "mpirun starts its daemons on other hosts over ssh and waits for them",
        f"`{ssh} -o BatchMode=yes {remote.name} {sys.executable} --version` must answer at once: keys instead of "
        "passwords, a known host key, the same Python at the same place, a shared folder",
    )
