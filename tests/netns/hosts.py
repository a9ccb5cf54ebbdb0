# SPDX-License-Identifier: Apache-2.0
"""cluster.sh from Python: hosts h1, h2, ... with a network of their own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

SCRIPT = Path(__file__).with_name("cluster.sh")


def cluster(*words: object, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Its output goes through a file: an ssh that outlives the job would hold a pipe open."""
    with TemporaryFile("w+") as file:
        command = [str(SCRIPT), *map(str, words)]
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=timeout, check=False)
        file.seek(0)
        output = file.read()
    assert done.returncode == 0 or not check, f"{command}: {output}"
    return subprocess.CompletedProcess(command, done.returncode, output)


def python(
    host: str, *words: object, timeout: float = 110, **variables: str
) -> subprocess.CompletedProcess[str]:
    """This Python on a host, with what `mpirun` needs to reach the others."""
    exports = [
        word for line in cluster("env").stdout.splitlines() for word in shlex.split(line) if "=" in word
    ]
    exports += [f"{name}={value}" for name, value in variables.items()]
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    return cluster("exec", host, "env", *exports, path, sys.executable, *words, timeout=timeout, check=False)
