# SPDX-License-Identifier: Apache-2.0
"""The stand-in for LSF, as tests use it: one launch node and two compute nodes on this machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ("root", "ip")
COMMANDS = ("bsub", "bjobs", "bkill", "brequeue", "bmod", "blaunch", "crash")
"""crash is none of LSF's: it ends everything on a host."""


class Cluster:
    """The daemon with all its files in `folder`, and LSF's commands."""

    def __init__(self, folder: Path, cores: Path) -> None:
        """Write the programs.

        :param cores: the library made of cores.c
        """
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        python = f"#!/bin/sh\nexec {sys.executable} -S -E {HERE}"
        for name in COMMANDS:
            (programs / name).write_text(f'{python}/commands.py {name} "$@"\n')
        (programs / "jsrun").write_text(f'{python}/jsrun.py "$@"\n')
        (programs / "module").write_text('#!/bin/sh\n[ "$1" = load ]\n')
        for program in programs.iterdir():
            program.chmod(0o755)
        (
            folder / "tmp"
        ).mkdir()  # mpirun names the files of its session only after its process number, which begins at 1
        launch = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
        self.environment = os.environ | launch | {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(folder / "tmp"), "STAND_IN_FOLDER": str(folder), "STAND_IN_CORES": str(cores),
            "PRTE_MCA_prte_local_tmpdir_base": str(folder / "tmp"),
            "PRTE_MCA_prte_remote_tmpdir_base": str(folder / "tmp"),
            "PRTE_MCA_plm_ssh_agent": str(programs / "blaunch"), "OMPI_MCA_plm_rsh_agent": str(programs / "blaunch"),
        }  # fmt: skip

    def up(self, minute: float = 60, interval: float = 10) -> None:
        """Start the daemon and its hosts."""
        (self.folder / "parameters.json").write_text(json.dumps({"minute": minute, "interval": interval}))
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        self.daemon = subprocess.Popen(
            [*apart, sys.executable, HERE / "daemon.py", self.folder], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.daemon.stdout and self.daemon.stdout.readline() == "up\n"

    def down(self) -> None:
        """End the daemon, and with it everything on its hosts."""
        with self.daemon:
            self.daemon.kill()

    def run(self, *command: object, script: str = "", check: bool = True, summit: bool = False) -> tuple[int, str]:
        """Execute a command of LSF in the project's root; return its status and its output."""
        words = [str(word) for word in command]
        environment = self.environment | ({"STAND_IN_BSUB_PARSE_SCRIPT": "Y"} if summit else {})
        done = subprocess.run(
            words, cwd=ROOT, env=environment, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}"
        return done.returncode, done.stdout

    def submit(self, *words: object, script: str = "", summit: bool = False) -> str:
        """Run `bsub WORDS` and return the job's number; `output(number)` is the job's output."""
        said = self.run("bsub", "-o", self.folder / "job-%J.out", *words, script=script, summit=summit)[1]
        return said.split("<")[1].split(">")[0]

    def show(self, number: str, fields: str = "stat exit_code runs") -> list[list[str]]:
        """Ask bjobs for fields of a job, or of each element of an array."""
        return [line.split() for line in self.run("bjobs", "-noheader", "-o", fields, number)[1].splitlines()]

    def wait(self, number: str, *states: str, timeout: float = 120) -> list[list[str]]:
        """Wait until a job is in one of these states (default: has ended); see `show`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = self.show(number)
            if all(line[0] in (states or ("DONE", "EXIT")) for line in found):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"job {number} is {found}\n{self.output(number)}")

    def end_all(self) -> None:
        """Kill all jobs, and wait for their ends."""
        self.run("bkill", 0, check=False)
        until(lambda: not self.run("bjobs", "-noheader", "-o", "stat", check=False)[1].count("RUN"), "the jobs' ends")

    def output(self, number: str) -> str:
        """Read what a job has printed so far."""
        file = self.folder / f"job-{number}.out"
        return file.read_text() if file.exists() else ""


def until(holds: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s"
        time.sleep(0.1)
