# SPDX-License-Identifier: Apache-2.0
"""Hosts h1, h2, ... with a separate network, made by cluster.sh (needs root)."""

import contextlib
import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

SCRIPT = Path(__file__).with_name("cluster.sh")
PROGRAMS = ("root", "ip", "sshd", "ssh")
"""The programs and rights that the hosts need."""


def cluster(*words: object, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run cluster.sh. The output goes through a file, because an ssh that outlives the job would hold a pipe open."""
    with TemporaryFile("w+") as file:
        command = [str(SCRIPT), *map(str, words)]
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=timeout, check=False)
        file.seek(0)
        output = file.read()
    assert done.returncode == 0 or not check, f"{command}: {output}"
    return subprocess.CompletedProcess(command, done.returncode, output)


@contextlib.contextmanager
def hosts_up(count: int, uncounted: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Start hosts h1 to h`count`."""
    with hosts_turn(uncounted):
        cluster("up", count)
        try:
            yield
        finally:
            cluster("down")


@contextlib.contextmanager
def hosts_turn(uncounted: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Wait for other runs of the tests, because a machine has the names and addresses of the hosts only once."""
    with Path(gettempdir(), "hpccoll-cluster.lock").open("w") as turn:
        with uncounted():
            fcntl.flock(turn, fcntl.LOCK_EX)
        cluster("down")
        yield


def python(host: str, *words: object, timeout: float = 150, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run this Python on a host, with the variables that `mpirun` needs to reach the others."""
    exports = [word for line in cluster("env").stdout.splitlines() for word in shlex.split(line) if "=" in word]
    exports += [f"{name}={value}" for name, value in variables.items()]
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    return cluster("exec", host, "env", *exports, path, sys.executable, *words, timeout=timeout, check=False)
