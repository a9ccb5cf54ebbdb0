# SPDX-License-Identifier: Apache-2.0
"""LSF: the job's hosts. The launcher of its ranks (jsrun, mpirun) sets variables of its own.

Source: "Environment variables set for job execution" of IBM Spectrum LSF. Not recorded: LSF cannot run here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpccoll.detect.hosts import Allocation, of_lines, of_pairs

ORDER = 90


def allocation(env: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
    """Read the job's hosts: from the short list, which large jobs have too, or the host file, or the long list."""
    if "LSB_JOBID" not in env:
        return None
    if text := env.get("LSB_MCPU_HOSTS"):
        hosts, slots = of_pairs(text)
    elif path := env.get("LSB_DJOB_HOSTFILE"):
        hosts, slots = of_lines(read_file(path))
    else:
        hosts, slots = of_lines(env.get("LSB_HOSTS", ""))
    return Allocation("LSF", env["LSB_JOBID"], hosts, slots)
