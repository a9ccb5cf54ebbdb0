# SPDX-License-Identifier: Apache-2.0
"""Reads the traces of running ranks in any state: from their memory, through /proc.

A rank that can handle a signal also writes the stacks of its threads. A rank that is stopped, or stuck in the kernel,
cannot; its trace is still read.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hpccoll import _core, durable
from hpccoll.detect.descendants import descendants, state_and_parent
from hpccoll.tools.trace.recording import ENDING, Recording, TraceError, as_file, parse

__all__ = ["attach", "collect"]

PATIENCE = 3.0
"""Seconds for the ranks to write their stacks."""
SLURM_PATIENCE = 120.0
"""Seconds for a command of Slurm, which starts a process on each node."""
STOPPED = ("T", "t", "Z", "X")


class Rank(NamedTuple):
    """A rank of a World, in a process of this host."""

    pid: int
    state: str
    recording: Recording
    data: bytes
    """The bytes of its file, read before any signal was sent to the process."""


def attach(job: str) -> Path:
    """Gather the traces of a job that runs.

    :param job: the process number of its launcher (`hpccoll run`, `mpirun`) on this host, or a Slurm job; a task of an
        array as squeue shows it, 12_3
    :returns: the folder of the traces
    :raises TraceError: no rank was found, or Slurm refused
    """
    if re.fullmatch(r"\d+_\d+", job):
        return _attach_slurm(_number_of_task(job))
    if not job.isdecimal():
        raise TraceError(no_number(job))
    here = f"no process {job} on this host"
    if family := family_of(int(job)):
        try:
            return collect(family, f"process {job} and its children")
        except TraceError as error:
            here = str(error)
    if not shutil.which("srun"):
        raise TraceError(f"{here}, and no srun here that could ask for a Slurm job {job}")
    try:  # the number may be that of a Slurm job, too
        return _attach_slurm(job)
    except TraceError as error:
        raise TraceError(f"{here}, and {error}") from None


def _number_of_task(task: str) -> str:
    """Ask Slurm for the number of the job that is a task of an array: its processes have that one.

    :raises TraceError: Slurm does not know it
    """
    found = _slurm("squeue", "--noheader", "--format=%A", f"--jobs={task}")
    if not (number := found.stdout.strip()).isdecimal():
        raise TraceError(f"job {task}: squeue does not know it: {(found.stderr or found.stdout).strip()}")
    return number


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm.

    :raises TraceError: it is not here, or gives no answer
    """
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SLURM_PATIENCE, check=False
        )
    except FileNotFoundError:
        raise TraceError(f"no {command[0]} here that could ask for a Slurm job") from None
    except subprocess.TimeoutExpired:
        raise TraceError(
            f"{' '.join(command[:3])} gave no answer in {SLURM_PATIENCE:g} s: `sinfo -R` says whether a node is down"
        ) from None


def _attach_slurm(job: str) -> Path:
    """Start a process on each node of the job, which gathers the traces there."""
    command = [
        "srun", f"--jobid={job}", "--overlap", "--ntasks-per-node=1", "--mpi=none", "--quiet",
        sys.executable, "-m", "hpccoll", "trace", "collect", job,
    ]  # fmt: skip
    done = _slurm(*command)
    folders = [line.removeprefix("folder ") for line in done.stdout.splitlines() if line.startswith("folder ")]
    if not folders:
        raise TraceError(f"job {job}: {' '.join(command[:3])} found no rank: {(done.stderr or done.stdout).strip()}")
    return Path(folders[0])


def no_number(job: str) -> str:
    """Say what a job's number is."""
    return f"{job!r}: a process number of `hpccoll run` on this host, or the number of a Slurm job"


def processes_of(job: str) -> set[int]:
    """Return the processes of a Slurm job, or of a process and its descendants, on this host.

    :raises TraceError: it is no number
    """
    if not job.isdecimal():
        raise TraceError(no_number(job))
    return of_slurm_job(job) or family_of(int(job))


def family_of(pid: int) -> set[int]:
    """Return the process and its descendants; empty if there is none of that number."""
    return {pid, *descendants(pid)} if Path(f"/proc/{pid}").exists() else set()


def of_slurm_job(job: str) -> set[int]:
    """Return the processes of a Slurm job on this host."""
    wanted, found = f"SLURM_JOB_ID={job}".encode(), set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0"):
                found.add(int(environment.parent.name))
    return found


def collect(pids: set[int], what: str, shared: bool = False) -> Path:
    """Write the traces of the ranks among these processes.

    :param what: a description of the processes, for errors
    :param shared: other hosts write theirs, too, so that a folder of this host will not do
    :returns: the folder of the newest World; another one if the job writes no traces or that folder takes none
    :raises TraceError: none is a rank, or no folder takes the traces
    """
    if not pids:
        raise TraceError(f"{what}: this host has no process of this number, and none of a Slurm job of this number")
    ranks = [rank for pid in sorted(pids) for rank in _rings(pid)]
    if not ranks:
        raise TraceError(f"{what}: {len(pids)} on this host, and none is a rank of hpccoll that this user may look at")
    began = time.time()
    signalled = [rank for rank in ranks if _ask_for_stacks(rank)]
    deadline = time.monotonic() + PATIENCE
    while any(not _is_new(_file(rank, ".stack"), began) for rank in signalled) and time.monotonic() < deadline:
        time.sleep(0.02)
    newest = max(ranks, key=lambda rank: rank.recording.written).recording.folder
    try:
        if newest:
            _write(ranks)
            return Path(newest)
        why = "the job writes no traces (HPCCOLL_TRACE_DIR=none)"
    except OSError as error:
        why = f"the traces cannot be written to {newest}: {error.strerror}"
    if shared:
        raise TraceError(f"{what}: {why}, and its hosts need a folder that all of them see")
    return _write_elsewhere(ranks, what, why)


def _rings(pid: int) -> Iterator[Rank]:
    """Yield the rings of a process, one per World."""
    with contextlib.suppress(OSError):
        for ring in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(ring).startswith(f"/memfd:{_core.TRACE_MEMFD} "):
                    data = as_file(ring.read_bytes(), time.monotonic_ns())
                    yield Rank(pid, state_and_parent(pid)[0], parse(data, str(ring)), data)


def _file(rank: Rank, ending: str) -> Path:
    recording = rank.recording
    return Path(recording.folder, f"{recording.world[:8]}-rank-{recording.rank}{ending}")


def _is_new(file: Path, began: float) -> bool:
    with contextlib.suppress(OSError):
        return file.stat().st_mtime >= began - 0.1
    return False


def _ask_for_stacks(rank: Rank) -> bool:
    """Send SIGUSR2 to a rank if the rank handles it."""
    with contextlib.suppress(OSError, ProcessLookupError):
        if rank.recording.handles_signal and rank.state not in STOPPED:
            os.kill(rank.pid, signal.SIGUSR2)
            return True
    return False


def _write(ranks: list[Rank], folder: str = "") -> None:
    """Write the contents of the rings, and the states of the processes.

    :param folder: "": each into that of its job
    :raises OSError: a folder takes no file
    """
    for rank in ranks:
        file = Path(folder or rank.recording.folder, _file(rank, ENDING).name)
        file.parent.mkdir(exist_ok=True)
        with durable.replacing(file) as fresh:
            fresh.write_bytes(rank.data)
        durable.write_text(file.with_suffix(".state"), f"{rank.state}\n")


def _write_elsewhere(ranks: list[Rank], what: str, why: str) -> Path:
    """Write into a new folder of this host."""
    try:
        folder = tempfile.mkdtemp(prefix="hpccoll-trace-")
        _write(ranks, folder)
    except OSError as error:
        raise TraceError(f"{what}: {why}, nor to {tempfile.gettempdir()}: {error.strerror}") from None
    return Path(folder)
