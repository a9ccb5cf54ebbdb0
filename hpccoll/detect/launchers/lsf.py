# SPDX-License-Identifier: Apache-2.0
"""LSF: the job's hosts. The launcher of its ranks (jsrun, mpirun) sets variables of its own.

Source: "Environment variables set for job execution" of IBM Spectrum LSF; for the launch node, the launcher of IBM's
Cluster System Management (CAST, csmi/src/launch). Not recorded: LSF cannot run here; tests/lsf has a stand-in.
"""

from collections.abc import Callable, Mapping

from hpccoll.detect.hosts import Allocation, of_lines, of_pairs

ORDER = 90


def allocation(env: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
    """Read the job's hosts: from the short list, which large jobs have too, or the host file, or the long list.

    Where jsrun starts the ranks, the first host is the launch node, on which the script runs and no rank.
    """
    if "LSB_JOBID" not in env:
        return None
    if text := env.get("LSB_MCPU_HOSTS"):
        hosts, slots = of_pairs(text)
    elif path := env.get("LSB_DJOB_HOSTFILE"):
        hosts, slots = of_lines(read_file(path))
    else:
        hosts, slots = of_lines(env.get("LSB_HOSTS", ""))
    first = 1 if "CSM_ALLOCATION_ID" in env and len(hosts) > 1 else 0
    return Allocation("LSF", env["LSB_JOBID"], hosts[first:], slots[first:])
