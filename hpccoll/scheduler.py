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

__all__ = ["Requeue", "end_of_job", "requeue", "requeue_command", "seconds_left"]

PATIENCE = 60.0
"""Seconds for a command of the scheduler's."""


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
    if not ask or "SLURM_JOB_ID" not in env:
        return float("inf"), ""
    command = ["squeue", "--noheader", "--format=%L", f"--jobs={env['SLURM_JOB_ID']}"]
    done, said = _run(command)
    if not done:
        return float("inf"), said
    left = seconds_left(said)
    return (
        (float("inf"), f"`{' '.join(command)}` says {said!r}") if left is None else (time.time() + left, "")
    )


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


def requeue_command(env: Mapping[str, str]) -> list[str]:
    """How this job is put back into the queue; empty where no scheduler is known."""
    if job := env.get("SLURM_JOB_ID"):
        return ["scontrol", "requeue", job]
    if job := env.get("LSB_JOBID"):
        element = env.get("LSB_JOBINDEX", "0")
        return ["brequeue", f"{job}[{element}]" if element not in ("", "0") else job]
    return []


def requeue(env: Mapping[str, str]) -> Requeue:
    """Have the scheduler run this job again. One process of the job calls it."""
    command = requeue_command(env)
    if not command:
        return Requeue(
            False,
            "this job has no scheduler (neither SLURM_JOB_ID nor LSB_JOBID is set): start it again by hand",
        )
    if job := _ending(env):
        text = f"Slurm is ending job {job} already (scancel, or its time is over), and it stays so"
        return Requeue(False, f"{text}: `{' '.join(command)}` runs it again all the same")
    done, said = _run(command)
    if not done:
        return Requeue(False, said)
    shown = f"`{' '.join(command)}` succeeded{f' ({said})' if said else ''}"
    return Requeue(True, f"{shown}: the job ends now and will run again")


def _ending(env: Mapping[str, str]) -> str:
    """The job's number if Slurm ends it right now: scontrol would bring back what its user has cancelled."""
    job = env.get("SLURM_JOB_ID", "")
    ending = job and _run(["squeue", "--noheader", "--format=%T", f"--jobs={job}"]) == (True, "COMPLETING")
    return job if ending else ""


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
