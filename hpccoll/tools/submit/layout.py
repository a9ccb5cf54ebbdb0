# SPDX-License-Identifier: Apache-2.0
"""How many tasks on a node, with how many cores, bound to what: pure arithmetic on a site's node."""

from dataclasses import dataclass

from hpccoll.errors import HpccollError
from hpccoll.tools.submit.site import Site


class RequestError(HpccollError):
    """What was asked for does not fit the site; the text says what would."""


@dataclass(frozen=True)
class Layout:
    """What one node runs: `tasks` ranks of `cores` cores each, with a GPU each if `gpus` is not 0."""

    tasks: int
    cores: int
    gpus: int
    cpus: int
    """Cores of a task as the scheduler counts CPUs."""
    domains: tuple[int, ...]
    """The NUMA domain of each task; empty if they are in their natural order, which a block distribution gives."""


def lay_out(site: Site, tasks: int | None = None, gpus: bool = True) -> Layout:
    """One task a GPU; without GPUs (or with gpus=False) one a NUMA domain. The node's cores are shared out evenly."""
    node = site.node
    count = len(node.gpus) if gpus else 0
    if tasks is not None and tasks < 1:
        raise RequestError(f"{tasks} tasks a node: at least 1")
    tasks = tasks or count or node.numa
    if count and tasks > count:
        raise RequestError(
            f"{tasks} tasks a node, but a node of {site.name} has {count} GPUs, and two ranks cannot share one: "
            f"--tasks-per-node {count}, or --no-gpus"
        )
    if tasks > node.cores:
        raise RequestError(f"{tasks} tasks a node, but a node of {site.name} has {node.cores} cores for jobs")
    cores = node.cores // tasks
    domains = tuple(gpu.numa for gpu in node.gpus[:tasks]) if count else ()
    natural = list(domains) == sorted(domains)
    return Layout(tasks, cores, int(count > 0), cores * node.cpus_per_core, () if natural else domains)
