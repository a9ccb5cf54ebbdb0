# SPDX-License-Identifier: Apache-2.0
"""Calculates the tasks of a node, their cores and their binding from the site's node; no input or output."""

from dataclasses import dataclass

from hpccoll.errors import HpccollError
from hpccoll.tools.submit.site import Site


class RequestError(HpccollError):
    """The request does not fit the site; the text names possible values."""


@dataclass(frozen=True)
class Layout:
    """The tasks of one node: `tasks` ranks of `cores` cores each, with a GPU each if `gpus` is not 0."""

    tasks: int
    cores: int
    gpus: int
    cpus: int
    """CPUs of a task, as the scheduler counts them."""
    domains: tuple[int, ...]
    """The NUMA domain of each task; empty for the natural order, which a block distribution gives."""
    spans_sockets: bool = False
    """Whether the cores of a task lie on several sockets."""


def lay_out(site: Site, tasks: int | None = None, *, gpus: bool) -> Layout:
    """Divide the cores of a node evenly among its tasks.

    :param tasks: tasks per node; None: one per GPU, or without GPUs one per NUMA domain
    :param gpus: whether the job uses the node's GPUs
    :raises RequestError: the node has too few GPUs or cores
    """
    node = site.node
    count = len(node.gpus) if gpus else 0
    if tasks is not None and tasks < 1:
        raise RequestError(f"{tasks} tasks per node: at least 1")
    tasks = tasks or count or node.numa
    if count and tasks > count:
        raise RequestError(
            f"{tasks} tasks per node, but a node of {site.name} has {count} GPUs, and two ranks cannot share one: "
            f"--tasks-per-node {count}, or --no-gpus"
        )
    if tasks > node.cores:
        raise RequestError(f"{tasks} tasks per node, but a node of {site.name} has {node.cores} cores for jobs")
    cores = node.cores // tasks
    domains = tuple(gpu.numa for gpu in node.gpus[:tasks]) if count else ()
    natural = list(domains) == sorted(domains)
    in_sockets = node.sockets * (node.cores // node.sockets // cores)
    return Layout(
        tasks, cores, int(count > 0), cores * node.cpus_per_core, () if natural else domains, tasks > in_sockets
    )
