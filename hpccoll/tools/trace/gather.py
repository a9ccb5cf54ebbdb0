# SPDX-License-Identifier: Apache-2.0
"""Reads the traces of running ranks in any state: from their memory, through /proc.

A rank that can handle a signal also writes the stacks of its threads. A rank that is stopped, or stuck in the kernel,
cannot; its trace is still read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
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

    :param job: the process number of its launcher (`hpccoll run`, `mpirun`) on this host, or a Slurm job
    :returns: the folder of the traces
    :raises TraceError: no rank was found, or Slurm refused
    """
    if not job.isdecimal():
        raise TraceError(f"{job!r}: a process number of `hpccoll run` on this host, or the number of a Slurm job")
    has_srun = shutil.which("srun") is not None
    if family := family_of(int(job)):
        try:
            return collect(family, f"process {job} and its children")
        except TraceError:
            if not has_srun:  # else it may also be the number of a Slurm job
                raise
    if not has_srun:
        raise TraceError(f"no process {job} on this host, and no srun here that could ask for a Slurm job {job}")
    return _attach_slurm(job)


def _attach_slurm(job: str) -> Path:
    """Start a process on each node of the job, which gathers the traces there."""
    command = [
        "srun", f"--jobid={job}", "--overlap", "--ntasks-per-node=1", "--mpi=none", "--quiet",
        sys.executable, "-m", "hpccoll", "trace", "collect", job,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    folders = [line.removeprefix("folder ") for line in done.stdout.splitlines() if line.startswith("folder ")]
    if not folders:
        raise TraceError(f"job {job}: {' '.join(command[:3])} found no rank: {(done.stderr or done.stdout).strip()}")
    return Path(folders[0])


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


def collect(pids: set[int], what: str) -> Path:
    """Write the traces of the ranks among these processes.

    :param what: a description of the processes, for errors
    :returns: the folder of the newest World
    :raises TraceError: none is a rank
    """
    ranks = [rank for pid in sorted(pids) for rank in _rings(pid)]
    if not ranks:
        raise TraceError(f"{what}: none of these {len(pids)} processes is a rank of hpccoll that may be looked at")
    began = time.time()
    signalled = [rank for rank in ranks if _ask_for_stacks(rank)]
    deadline = time.monotonic() + PATIENCE
    while any(not _is_new(_file(rank, ".stack"), began) for rank in signalled) and time.monotonic() < deadline:
        time.sleep(0.02)
    for rank in ranks:
        _write(rank)
    return Path(max(ranks, key=lambda rank: rank.recording.written).recording.folder)


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


def _write(rank: Rank) -> None:
    """Write the content of the ring, and the state of its process."""
    file = _file(rank, ENDING)
    file.parent.mkdir(exist_ok=True)
    with durable.replacing(file) as fresh:
        fresh.write_bytes(rank.data)
    durable.write_text(_file(rank, ".state"), f"{rank.state}\n")
