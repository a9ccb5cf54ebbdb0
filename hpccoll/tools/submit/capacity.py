# SPDX-License-Identifier: Apache-2.0
"""Checks whether a partition of Slurm is large enough for a job. If not, the job would wait for ever or be refused."""

import re
import shutil
import subprocess

__all__ = ["UnknownError", "too_many_nodes"]


class UnknownError(Exception):
    """The maximum number of nodes is unknown here; the text has the reason."""


def too_many_nodes(script: str, nodes: int, environment: dict[str, str]) -> str:
    """Compare the nodes of a job with those of its partition.

    :param script: the job script
    :param nodes: the number of nodes that it asks for
    :param environment: the user's, which may name a partition
    :returns: what is wrong, in a sentence; "" if nothing is
    :raises UnknownError: Slurm does not tell the number of nodes of the partition
    """
    wanted = _partition(script, environment)
    for line in _partitions(environment):
        name, there, sizes = line.split("|")
        if name.rstrip("*") == wanted or (not wanted and name.endswith("*")):
            most = min(int(there), _most(sizes))
            if nodes > most:
                return (
                    f"{nodes} nodes, and a job in the partition {name.rstrip('*')} has {most} at most (sinfo): "
                    f"--nodes {most}, or another partition"
                )
            return ""
    raise UnknownError(f"sinfo knows no partition {wanted}" if wanted else "sinfo names no default partition")


def _partitions(environment: dict[str, str]) -> list[str]:
    """Return a line for each partition: its name with a * behind the default one, its nodes, the sizes of its jobs."""
    if not shutil.which("sinfo", path=environment.get("PATH")):
        raise UnknownError("there is no sinfo on PATH")
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%P|%D|%s"],
            capture_output=True, text=True, errors="replace", timeout=20, check=False, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnknownError(f"sinfo does not answer ({error})") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UnknownError(f"sinfo failed ({lines[-1] if lines else f'status {done.returncode}'})")
    return done.stdout.splitlines()


def _partition(script: str, environment: dict[str, str]) -> str:
    """Find the partition that sbatch will use: its variable takes precedence over the script; "": the default one."""
    named = re.findall(r"^#SBATCH\s+(?:--partition[=\s]|-p\s*)(\S+)", script, re.MULTILINE)
    return environment.get("SBATCH_PARTITION") or (named[-1] if named else "")


def _most(sizes: str) -> int:
    """Return the largest job of a partition, from "1-4" or "1-infinite"."""
    last = sizes.rpartition("-")[2]
    return int(last) if last.isdecimal() else 1 << 30
