# SPDX-License-Identifier: Apache-2.0
"""The rank of this process in its job as the launcher gives it, before MPI is up."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpccoll import detect


@dataclass(frozen=True)
class Identity:
    """Rank and size of the job, as the launcher gives them."""

    launcher: str
    rank: int
    size: int
    job: str
    """Equal on the ranks of this job step and on no others; "" where the launcher gives nothing."""


def read(env: Mapping[str, str]) -> Identity:
    """Read the identity that the closest launcher gives; a process without a launcher is rank 0 of 1."""
    place = detect.place(env)
    if place is None or place.rank is None or place.size is None:
        return Identity("", 0, 1, "")
    return Identity(place.launcher, place.rank, place.size, place.job or _port_of_hydra())


def _port_of_hydra() -> str:
    """Find the port that proxies of MPICH and Intel MPI connect to, in the command line of an ancestor process."""
    pid = os.getppid()
    try:
        while pid > 1:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if found := re.search(r"--(?:control-port|upstream-port) (\S+)", command):
                return found[1]
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass
    return ""
