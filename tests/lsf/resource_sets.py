# SPDX-License-Identifier: Apache-2.0
"""Where jsrun puts tasks: resource sets on the nodes of a job, as Oak Ridge's Summit User Guide describes them.

A resource set is cores and GPUs of one node; all sets of a jsrun are alike. No input and no output.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SIMPLE_SMPIARGS = ("-gpu", "-async", "-disable_gpu_hooks", "none", "off")
"""Words of --smpiargs that choose how Spectrum MPI treats GPUs, or that there is no MPI: nothing to do here."""


@dataclass(frozen=True)
class Shape:
    """A node. Cores have `smt` hardware threads, and the last core of each socket is the system's if `isolated`."""

    sockets: int = 2
    cores: int = 21
    """Cores of a socket that jobs may use."""
    gpus: int = 3
    """GPUs of a socket."""
    isolated: int = 1
    threads: int = 4
    """Hardware threads of a core, by which the cores' numbers step."""

    def first_thread(self, core: int) -> int:
        """Return the number of the first hardware thread of a core, as the guide's examples print it."""
        socket, rest = divmod(core, self.cores)
        return self.threads * (socket * (self.cores + self.isolated) + rest)


SUMMIT = Shape()


@dataclass(frozen=True)
class Task:
    """One rank."""

    rank: int
    host: str
    local_rank: int
    cores: tuple[int, ...]
    """Cores that it is bound to, counted over those that jobs may use."""
    gpus: tuple[int, ...]


class Refused(Exception):
    """The options ask for what no node has, or for what this stand-in does not do."""


def parser() -> argparse.ArgumentParser:
    """The options of jsrun that the stand-in has."""
    made = argparse.ArgumentParser("jsrun", add_help=False, allow_abbrev=False)
    made.add_argument("-n", "--nrs", type=int)
    made.add_argument("-a", "--tasks_per_rs", type=int)
    made.add_argument("-p", "--np", type=int)
    made.add_argument("-c", "--cpu_per_rs", default="1")
    made.add_argument("-g", "--gpu_per_rs", default="0")
    made.add_argument("-r", "--rs_per_host", type=int)
    made.add_argument("-b", "--bind", default="packed:1")
    made.add_argument("-d", "--launch_distribution", default="packed")
    made.add_argument("-l", "--latency_priority", default="gpu-cpu,cpu-mem,cpu-cpu")
    made.add_argument("-E", "--env", action="append", default=[])
    made.add_argument("-M", "--smpiargs", default="")
    made.add_argument("-X", "--exit_on_error", type=int, default=0)
    made.add_argument("program", nargs=argparse.REMAINDER)
    return made


def place(options: argparse.Namespace, hosts: Sequence[str], shape: Shape = SUMMIT) -> list[Task]:
    """Place the tasks of a jsrun on the hosts of its job.

    :raises Refused: the sets do not fit
    """
    node = {"ALL_CPUS": shape.sockets * shape.cores, "ALL_GPUS": shape.sockets * shape.gpus}
    cores, gpus = (node.get(text) or int(text) for text in (options.cpu_per_rs, options.gpu_per_rs))
    sets = list(_sets(hosts, shape, cores, gpus, options.rs_per_host or node["ALL_CPUS"]))
    wanted = options.nrs or len(sets)
    if not 0 < wanted <= len(sets):
        raise Refused(f"{wanted} resource sets of {cores} cores and {gpus} GPUs do not fit on {len(hosts)} nodes")
    sets = sets[:wanted]
    tasks = options.tasks_per_rs * wanted if options.tasks_per_rs else options.np or wanted
    chosen = _sets_of_tasks(options.launch_distribution, wanted, tasks)
    on_host: dict[str, int] = {}
    in_set = [0] * wanted
    found = []
    for rank, which in enumerate(chosen):
        host, its_cores, its_gpus = sets[which]
        local = on_host[host] = on_host.get(host, -1) + 1
        found.append(Task(rank, host, local, _bound(options.bind, its_cores, in_set[which], shape), its_gpus))
        in_set[which] += 1
    return found


Set = tuple[str, tuple[int, ...], tuple[int, ...]]


def _sets(hosts: Sequence[str], shape: Shape, cores: int, gpus: int, most: int) -> Iterator[Set]:
    """Fill one node after the other, each with as many sets as fit, `most` at most."""
    for host in hosts:
        free_cores = {s: list(range(s * shape.cores, (s + 1) * shape.cores)) for s in range(shape.sockets)}
        free_gpus = {s: list(range(s * shape.gpus, (s + 1) * shape.gpus)) for s in range(shape.sockets)}
        for _ in range(most):
            if sum(map(len, free_cores.values())) < cores or sum(map(len, free_gpus.values())) < gpus:
                break
            fits = [s for s in free_cores if len(free_cores[s]) >= cores and len(free_gpus[s]) >= gpus]
            order = sorted(free_cores, key=lambda s: (s not in fits, not free_gpus[s] if gpus else False, s))
            yield host, _taken(free_cores, order, cores), _taken(free_gpus, order, gpus)


def _taken(free: dict[int, list[int]], order: list[int], count: int) -> tuple[int, ...]:
    """Take the lowest free ones, of the sockets in this order: a set spans sockets only if it fits into none."""
    taken: list[int] = []
    for socket in order:
        here = free[socket][: count - len(taken)]
        taken += here
        del free[socket][: len(here)]
    return tuple(taken)


def _sets_of_tasks(distribution: str, sets: int, tasks: int) -> list[int]:
    """Return the resource set of each task."""
    each = [tasks // sets + (s < tasks % sets) for s in range(sets)]
    kind, _, size = distribution.partition(":")
    run = {"packed": max(each), "cyclic": 1, "plane": int(size or 1)}.get(kind)
    if run is None:
        raise Refused(f"--launch_distribution {distribution}")
    chosen: list[int] = []
    while any(each):
        for s in range(sets):
            chosen += [s] * min(run, each[s])
            each[s] -= min(run, each[s])
    return chosen


def _bound(bind: str, cores: tuple[int, ...], which: int, shape: Shape) -> tuple[int, ...]:
    """Return the cores of a task of a set; where a set has too few, its tasks share them."""
    if bind in ("none", "rs"):
        return cores
    kind, _, count = bind.partition(":")
    if kind != "packed" or not (count or "1").isdecimal():
        raise Refused(f"--bind {bind}")
    size = min(int(count or 1), len(cores))
    start = which * size % (len(cores) - len(cores) % size)
    return cores[start : start + size]


def places(task: Task, shape: Shape, smt: int) -> str:
    """Write OMP_PLACES: a place per core, of as many hardware threads as the job has switched on."""
    return ",".join(f"{{{shape.first_thread(core)}:{smt}}}" for core in task.cores)
