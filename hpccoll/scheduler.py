# SPDX-License-Identifier: Apache-2.0
"""What a job asks its scheduler: when its time ends, and to be run again."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from hpccoll import errors

__all__ = ["Requeue", "end_of_job", "requeue", "seconds_left"]

PATIENCE = 60.0
"""Seconds for a command of the scheduler's."""

RUNNING = {"CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
"""What squeue calls a Slurm job that nobody has ended."""


# ---- the end of the job's time ----------------------------------------------------------------------


def end_of_job(env: Mapping[str, str], *, ask: bool) -> tuple[float, str]:
    """When the scheduler ends the job, in seconds since the epoch, or infinity; and why it is not known, or "".

    Slurm says it in SLURM_JOB_END_TIME; 22.05 and older do not, and are asked (`squeue`), if `ask`. LSF has no such
    variable: its script gives HPCCOLL_END_TIME or has a signal sent.
    """
    if text := env.get("SLURM_JOB_END_TIME"):
        if not text.isdecimal():
            raise errors.InvalidArgumentError(
                f"SLURM_JOB_END_TIME={text!r} is no time in seconds since the epoch"
            )
        return float(text), ""
    if not ask or not (job := env.get("SLURM_JOB_ID")):
        return float("inf"), ""
    answered, said = _squeue(job, "%L")
    if not answered:
        return float("inf"), said
    left = seconds_left(said)
    return (float("inf"), f"squeue says {said!r}") if left is None else (time.time() + left, "")


def seconds_left(text: str) -> float | None:
    """Seconds of squeue's "2-03:04:05", "3:04:05" or "4:05"; infinity for "UNLIMITED"; None for anything else."""
    if text == "UNLIMITED":
        return float("inf")
    if not (match := re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


# ---- to be run again ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Requeue:
    """What became of a request to run the job again; true if it will."""

    done: bool
    text: str

    def __bool__(self) -> bool:
        return self.done


def requeue(env: Mapping[str, str]) -> Requeue:
    """Have the scheduler run this job again. One process of the job calls it."""
    if job := env.get("SLURM_JOB_ID"):
        return _requeue_slurm(job)
    if job := env.get("LSB_JOBID"):
        element = env.get("LSB_JOBINDEX", "0")
        return _requeue(["brequeue", f"{job}[{element}]" if element not in ("", "0") else job])
    return Requeue(
        False, "this job has no scheduler (neither SLURM_JOB_ID nor LSB_JOBID is set): start it again by hand"
    )


def _requeue_slurm(job: str) -> Requeue:
    """Unless Slurm has ended the job: scontrol would bring back what its user has cancelled.

    squeue calls such a job COMPLETING, and soon says nothing more of it: a process may outlive its job by a moment.
    """
    answered, said = _squeue(job, "%i=%T")
    if not answered:
        return Requeue(False, said)
    name, _, state = said.partition("=")
    command = ["scontrol", "requeue", name or job]
    if state not in RUNNING:
        text = f"Slurm has ended job {job} already (scancel, or its time is over), and it stays so"
        return Requeue(False, f"{text}: `{' '.join(command)}` runs it again all the same")
    return _requeue(command)


def _requeue(command: Sequence[str]) -> Requeue:
    done, said = _run(command)
    if not done:
        return Requeue(False, said)
    shown = f"`{' '.join(command)}` succeeded{f' ({said})' if said else ''}"
    return Requeue(True, f"{shown}: the job ends now and will run again")


# ---- the scheduler's commands -------------------------------------------------------------------------


def _squeue(job: str, field: str) -> tuple[bool, str]:
    """Whether squeue answered, and what is in a field of this job's, or what went wrong.

    The number of a task of an array may be that of the whole array, and squeue then speaks of the others, too.
    """
    answered, said = _run(["squeue", "--noheader", f"--format=%A={field}", f"--jobs={job}"])
    if not answered:
        return False, said
    return True, next(
        (word.removeprefix(f"{job}=") for word in said.split() if word.startswith(f"{job}=")), ""
    )


def _run(command: Sequence[str]) -> tuple[bool, str]:
    """Whether the command succeeded, and what it said in one line, or what went wrong."""
    shown = f"`{' '.join(command)}`"
    if shutil.which(command[0]) is None:
        return False, f"{shown} cannot be run: {command[0]} is not on this node's PATH"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return False, f"{shown} gave no answer within {PATIENCE:g} s"
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode:
        return False, f"{shown} failed with status {done.returncode}: {said or 'it said nothing'}"
    return True, said
