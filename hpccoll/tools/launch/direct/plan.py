# SPDX-License-Identifier: Apache-2.0
"""The plan of a job that is started without MPI."""

import platform
import sys

from hpccoll.text import listed
from hpccoll.tools.launch.job import Job, LaunchError, Plan

NAME = "ssh"
"""Its name for --launcher."""


def plan(job: Job) -> Plan:
    """Plan a job for hpccoll's launcher. Its arguments name variables; its environment has their values.

    :raises LaunchError: it is not said on which hosts of an allocation the ranks run
    """
    if job.reached and not job.hosts and (len(job.reached) > 1 or job.outside):
        raise LaunchError(_which_hosts(job))
    hosts = ",".join(f"{host.name}:{host.slots}" for host in job.hosts) or f"localhost:{job.ranks}"
    argv = [sys.executable, "-P", "-m", "hpccoll.tools.launch.direct.starter", "--hosts", hosts]
    argv += [f"--export={name}" for name in sorted(job.exported)]
    argv += ["--output", job.output] if job.output else []
    argv += ["--input", *job.input.words] if job.input and job.local else []
    argv += [f"--ssh-option={word}" for word in job.launcher_options]
    return Plan((*argv, "--", *job.command), dict(job.exported), job.defaults)


def _which_hosts(job: Job) -> str:
    """Ask for -H. Another command may have called `hpccoll run`, whose own -H is something else: `hpccoll doctor`."""
    hosts, each = job.reached[: job.ranks], -(-job.ranks // len(job.reached))
    named = ",".join(f"{host}:{each}" for host in hosts[:2]) + ",..." * (len(hosts) > 2)
    this = f"this host ({platform.node()}), which is none of them" if job.outside else "this one alone"
    return (
        f"--launcher {NAME} does not ask a scheduler for hosts, and the allocation has {len(job.reached)} "
        f"({listed(job.reached)}): name them to `hpccoll run`, as `hpccoll run -H {named} COMMAND`, or {this}, as "
        f"`hpccoll run -H localhost:{job.ranks} COMMAND`"
    )
