# SPDX-License-Identifier: Apache-2.0
"""PBS Professional, OpenPBS and Torque: the job's hosts. The launcher (mpirun, PALS) sets variables of its own.

Source: pbs_environment(7) and qsub(1B) of OpenPBS. Not recorded: PBS cannot run here.
"""

from collections.abc import Callable, Mapping

from hpccoll.detect.hosts import Allocation, of_lines

ORDER = 91


def allocation(env: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
    """Read the job's hosts from its host file, which has one line per rank (mpiprocs of the request)."""
    if "PBS_JOBID" not in env or "PBS_NODEFILE" not in env:
        return None
    return Allocation("PBS", env["PBS_JOBID"], *of_lines(read_file(env["PBS_NODEFILE"])))
