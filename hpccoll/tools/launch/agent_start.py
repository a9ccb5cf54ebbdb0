# SPDX-License-Identifier: Apache-2.0
"""Starts processes for hpccoll's own launchers: an agent on a host, and ranks on the agent's host.

An agent gets its task, with all secrets, on standard input. When the agent or its connection ends, its ranks do.
"""

import contextlib
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpccoll.tools.kin import end_with_parent
from hpccoll.tools.launch.input_of_rank_0 import opened

THIS_MACHINE = ("localhost", "127.0.0.1", platform.node(), platform.node().partition(".")[0])
"""Names of this machine."""
PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that an agent itself needs; they are no secrets."""
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=5")
SRUN = ("env", "-u", "SRUN_CPUS_PER_TASK", "srun", "--no-kill", "--kill-on-bad-exit=0", "--overlap", "--immediate=30")
"""A step of one task, which ends with no other step. Without a number of CPUs it may use all of its node."""


def agent(module: str) -> list[str]:
    """Return the command of an agent on this machine."""
    return [sys.executable, "-P", "-m", module]


def by_ssh(host: str, module: str, options: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the command that starts an agent on another host by ssh.

    :param options: of ssh
    :param variables: of the job
    """
    paths = [f"{name}={variables[name]}" for name in PATHS if variables.get(name)]
    return [*SSH, *options, host, "exec " + shlex.join(["env", *paths, *agent(module)])]


def by_srun(host: str, module: str, options: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the command that starts an agent on a node of the allocation of Slurm that this process is in."""
    paths = [f"{name}={variables[name]}" for name in PATHS if variables.get(name)]
    place = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--mpi=none", "--cpu-bind=none"]
    return [*SRUN, *place, *options, "env", *paths, *agent(module)]


def start(
    command: Sequence[str], environment: Mapping[str, str], folder: str = "", read: Sequence[str] = (os.devnull, "0")
) -> "subprocess.Popen[bytes]":
    """Start a rank in a new session; it ends with this process at the latest.

    :param folder: for the files of its output; "": the output is printed here
    :param read: the file of its standard input, and where it begins
    """
    with contextlib.ExitStack() as files:
        streams = {}
        stdin = opened(*read)
        files.callback(os.close, stdin)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            streams = {name: files.enter_context(Path(folder, name).open("wb")) for name in ("stdout", "stderr")}
        return subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(signal.SIGKILL),
            stdout=streams.get("stdout"),
            stderr=streams.get("stderr"),
        )
