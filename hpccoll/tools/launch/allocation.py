# SPDX-License-Identifier: Apache-2.0
"""The scheduler's allocation of the process that starts a job."""

import platform
from collections.abc import Mapping

from hpccoll import detect
from hpccoll.errors import InvalidArgumentError
from hpccoll.tools.launch.job import LaunchError

__all__ = ["allocation_of", "is_outside", "ranks_of"]


def allocation_of(environment: Mapping[str, str]) -> detect.Allocation | None:
    """Find the hosts that a scheduler has allocated to this process.

    :raises LaunchError: the scheduler's list of hosts cannot be read
    """
    try:
        return detect.allocation(environment)
    except (OSError, InvalidArgumentError) as error:
        raise LaunchError(f"the allocation cannot be read: {error}") from None


def is_outside(allocation: detect.Allocation | None, environment: Mapping[str, str]) -> bool:
    """Tell whether this process runs on none of the allocated hosts. Slurm's name of a node need not be the host's."""
    if not allocation or "SLURMD_NODENAME" in environment:
        return False
    return platform.node().partition(".")[0] not in {host.partition(".")[0] for host in allocation.hosts}


def ranks_of(allocation: detect.Allocation, environment: Mapping[str, str]) -> int:
    """Count the slots of an allocation.

    :raises LaunchError: the scheduler does not tell their number, its slots are cores, or mpirun sees only some
    """
    components = environment.get("SLURM_HET_SIZE", "1")
    if allocation.scheduler == "Slurm" and components != "1":
        raise LaunchError(
            f"how many ranks? {allocation} has {components} components, of which mpirun sees the first: give -np for "
            "this one, or start with srun --het-group, which takes all of them"
        )
    if not allocation.slots:
        raise LaunchError(f"how many ranks? {allocation} has hosts, but names no slots: give -np")
    if any(name.startswith("CSM_") for name in environment):
        raise LaunchError(f"how many ranks? The slots of {allocation} are cores: give -np, or start with jsrun")
    return sum(allocation.slots)
