# SPDX-License-Identifier: Apache-2.0
"""The plan of a job that is started without MPI."""

import sys

from hpccoll.text import listed
from hpccoll.tools.launch.job import Job, LaunchError, Plan

NAME = "ssh"
"""Its name for --launcher."""


def plan(job: Job) -> Plan:
    """Plan a job for hpccoll's launcher. Its arguments name variables; its environment has their values.

    :raises LaunchError: it is not said on which hosts of an allocation the ranks run
    """
    if len(job.reached) > 1 and not job.hosts:
        raise LaunchError(
            f"--launcher {NAME} does not ask a scheduler for hosts, and the allocation has {len(job.reached)} "
            f"({listed(job.reached)}): name them, as -H {job.reached[0]}:2,{job.reached[1]}:2, or this one alone, as "
            f"-H localhost:{job.ranks}"
        )
    hosts = ",".join(f"{host.name}:{host.slots}" for host in job.hosts) or f"localhost:{job.ranks}"
    argv = [sys.executable, "-P", "-m", "hpccoll.tools.launch.direct.starter", "--hosts", hosts]
    argv += [f"--export={name}" for name in sorted(job.exported)]
    argv += ["--output", job.output] if job.output else []
    argv += ["--input", *job.input.words] if job.input and job.local else []
    argv += [f"--ssh-option={word}" for word in job.launcher_options]
    return Plan((*argv, "--", *job.command), dict(job.exported), job.defaults)
