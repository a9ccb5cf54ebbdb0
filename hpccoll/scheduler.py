# SPDX-License-Identifier: Apache-2.0
"""Questions of a job to its scheduler: when its time ends, and to run it again."""

import dataclasses
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from hpccoll import errors

__all__ = ["Requeue", "end_of_job", "requeue", "seconds_left"]

PATIENCE = 60.0
"""Seconds for a command of the scheduler."""

RUNNING = {"CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
"""The states in which squeue shows a Slurm job that has not been ended."""


# ---- the end of the job's time ----------------------------------------------------------------------


def end_of_job(env: Mapping[str, str], *, ask: bool) -> tuple[float, str]:
    """Find out when the scheduler will end the job.

    Slurm sets SLURM_JOB_END_TIME; Slurm 22.05 and older do not, so that `squeue` must be asked. LSF has no such
    variable: its job script sets HPCCOLL_END_TIME or asks for a signal.

    :param env: the environment of the job
    :param ask: whether to run `squeue` where the environment does not tell
    :returns: seconds since the epoch, or infinity; and the reason if the scheduler did not tell, or ""
    :raises InvalidArgumentError: SLURM_JOB_END_TIME is no number
    """
    if text := env.get("SLURM_JOB_END_TIME"):
        if not text.isdecimal():
            raise errors.InvalidArgumentError(f"SLURM_JOB_END_TIME={text!r} is no time in seconds since the epoch")
        return float(text), ""
    if not ask or not (job := env.get("SLURM_JOB_ID")):
        return float("inf"), ""
    answered, answer = _squeue(job, "%L")
    if not answered:
        return float("inf"), answer
    left = seconds_left(answer)
    return (float("inf"), f"squeue says {answer!r}") if left is None else (time.time() + left, "")


def seconds_left(text: str) -> float | None:
    """Read squeue's time left: "2-03:04:05", "3:04:05" or "4:05".

    :returns: seconds; infinity for "UNLIMITED"; None for any other text
    """
    if text == "UNLIMITED":
        return float("inf")
    if not (match := re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


# ---- requeue ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Requeue:
    """The scheduler's answer to a request to run the job again; true if it will."""

    done: bool
    """Whether the scheduler agreed."""
    text: str
    """The command and its result, in words."""

    def __bool__(self) -> bool:
        return self.done


def requeue(env: Mapping[str, str], *, killed: bool = False) -> Requeue:
    """Ask the scheduler to run this job again (Slurm: `scontrol requeue`, LSF: `brequeue`); one process calls it.

    :param env: the environment of the job
    :param killed: the job was told to end by SIGTERM alone, as by LSF's `bkill`: brequeue would bring it back
    :returns: whether the job will run again, and the details; it raises nothing
    """
    if job := env.get("SLURM_JOB_ID"):
        return _requeue_slurm(job)
    if job := env.get("LSB_JOBID"):
        if killed:
            return Requeue(False, f"LSF ends job {job} (SIGTERM without a warning, as by bkill), and it stays so")
        element = env.get("LSB_JOBINDEX", "0")
        return _requeue(["brequeue", f"{job}[{element}]" if element not in ("", "0") else job])
    return Requeue(
        False, "this job has no scheduler (neither SLURM_JOB_ID nor LSB_JOBID is set): start it again by hand"
    )


def _requeue_slurm(job: str) -> Requeue:
    """Requeue a job that Slurm has not ended: scontrol would also run a job again that its user has cancelled.

    squeue shows an ended job as COMPLETING, and soon not at all: a process may outlive its job by a moment.
    """
    answered, answer = _squeue(job, "%i=%T")
    if not answered:
        return Requeue(False, answer)
    name, _, state = answer.partition("=")
    command = ["scontrol", "requeue", name or job]
    if state not in RUNNING:
        text = f"Slurm has ended job {job} already (scancel, or its time is over), and it stays so"
        return Requeue(False, f"{text}: `{' '.join(command)}` runs it again all the same")
    return _requeue(command)


def _requeue(command: Sequence[str]) -> Requeue:
    done, output = _run(command)
    if not done:
        return Requeue(False, output)
    shown = f"`{' '.join(command)}` succeeded{f' ({output})' if output else ''}"
    return Requeue(True, f"{shown}: the job ends now and will run again")


# ---- the scheduler's commands -------------------------------------------------------------------------


def _squeue(job: str, field: str) -> tuple[bool, str]:
    """Read a field of this job from squeue.

    The number of an array's task may be that of the whole array; squeue then lists the other tasks, too.

    :returns: whether squeue answered, and the field, or what went wrong
    """
    answered, output = _run(["squeue", "--noheader", f"--format=%A={field}", f"--jobs={job}"])
    if not answered:
        return False, output
    return True, next((word.removeprefix(f"{job}=") for word in output.split() if word.startswith(f"{job}=")), "")


def _run(command: Sequence[str]) -> tuple[bool, str]:
    """Run a command.

    :returns: whether it succeeded, and its output in one line, or what went wrong
    """
    shown = f"`{' '.join(command)}`"
    if shutil.which(command[0]) is None:
        return False, f"{shown} cannot be run: {command[0]} is not on this node's PATH"
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    except OSError as error:
        return False, f"{shown} cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{shown} gave no answer within {PATIENCE:g} s"
    output = " ".join((done.stdout + done.stderr).split())
    if done.returncode:
        return False, f"{shown} failed with status {done.returncode}: {output or 'without a message'}"
    return True, output
