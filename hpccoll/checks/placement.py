# SPDX-License-Identifier: Apache-2.0
"""Binding: the cores that each rank may use, the threads that it will start, and the ranks that share the cores."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from hpccoll.checks import cgroups
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.kernel_files import read_text
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import parse_ranges, ranges, some_ranks

NAME = "placement"
CPUS = Path("/sys/devices/system/cpu")
NUMA = Path("/sys/devices/system/node")
BIND = "Bind each rank to cores of its own: `srun --cpu-bind=cores`, `mpirun --map-by slot:PE=N --bind-to core`"
THREADS = "Set OMP_NUM_THREADS to the cores of a rank (1 where ranks share cores)"


def collect(env: Mapping[str, str]) -> Facts:
    """Read the binding and the number of threads of this rank; takes well below a millisecond."""
    threads = env.get("OMP_NUM_THREADS", "").split(",")[0]
    return {
        "cpus": ranges(os.sched_getaffinity(0)),
        "online": read_text(CPUS / "online") or ranges(range(os.cpu_count() or 1)),
        "threads": int(threads) if threads.isdecimal() else None,
    }


def collect_more(env: Mapping[str, str]) -> Facts:
    """Collect more than `collect`: the cores and NUMA nodes of the cpus, and the container's limit of CPU time."""
    facts = collect(env)
    cpus = set(parse_ranges(facts["cpus"]))
    siblings = {read_text(CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    domains = {
        int(node.name.removeprefix("node")): set(parse_ranges(read_text(node / "cpulist")))
        for node in NUMA.glob("node[0-9]*")
    }
    return facts | {
        "cores": len(siblings),
        "numa": sorted(n for n, members in domains.items() if members & cpus),
        "numa nodes": len([n for n, members in domains.items() if members]) or 1,
        "quota": cgroups.quota(),
    }


def judge(survey: Survey) -> list[Finding]:
    """Apply all rules below to each node."""
    found = []
    for reports in survey.nodes.values():
        found += list(crowded(reports)) or list(sharing(reports))
        for look in (threaded, unthreaded, limited, wide):
            found += look(reports)
    return found


def judge_at_start(survey: Survey) -> list[Finding]:
    """Apply only the rules for mistakes: ranks may share all cores of a small machine on purpose."""
    looks = (crowded, threaded, unthreaded)
    return [finding for reports in survey.nodes.values() for look in looks for finding in look(reports)]


def cpus_of(report: RankReport) -> frozenset[int]:
    """The logical processors that a rank may use."""
    return _set(report.facts[NAME]["cpus"])


@cache
def _set(text: str) -> frozenset[int]:
    """Parse a list of cpus; cached, as every node of a job has the same few lists."""
    return frozenset(parse_ranges(text))


def _all(reports: list[RankReport]) -> frozenset[int]:
    return frozenset().union(*map(cpus_of, reports))


def crowded(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that are bound to the same few cores while other cores have no rank."""
    free = _set(reports[0].facts[NAME]["online"]) - _all(reports)
    for cpus in dict.fromkeys(map(cpus_of, reports)):
        crowd = [report for report in reports if cpus_of(report) == cpus]
        if len(crowd) > len(cpus) and free:
            yield Finding(
                NAME,
                WARNING,
                f"{crowd[0].host}: {some_ranks(c.rank for c in crowd)} are bound to cpu {ranges(cpus)} "
                f"while no rank is on cpu {ranges(free)}",
                "they take turns on it, and a rank that waits keeps the others from computing",
                BIND,
            )


def threaded(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks whose OMP_NUM_THREADS asks for more threads than they have cores."""
    asked = {report.rank: report.facts[NAME]["threads"] or 1 for report in reports}
    cpus = _all(reports)
    small = [report for report in reports if asked[report.rank] > len(cpus_of(report))]
    if small:
        report = small[0]
        yield Finding(
            NAME,
            WARNING,
            f"{report.host}: {some_ranks(c.rank for c in small)}: OMP_NUM_THREADS={asked[report.rank]} on "
            f"{len(cpus_of(report))} cpus ({ranges(cpus_of(report))})",
            "the threads of one rank take turns",
            f"{THREADS}, or give the ranks more cores (`srun --cpus-per-task`, passed on to srun)",
        )
    elif max(asked.values()) > 1 and sum(asked.values()) > len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: {len(reports)} ranks with {sum(asked.values())} OpenMP threads on {len(cpus)} cpus",
            "ranks take turns, and the slowest sets the pace of all",
            THREADS,
        )


def unthreaded(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks without OMP_NUM_THREADS, whose BLAS would start a thread for each core that it sees."""
    unset = [report for report in reports if report.facts[NAME]["threads"] is None]
    cpus = _all(reports)
    wanted = sum(len(cpus_of(report)) for report in unset)
    if len(reports) <= len(cpus) and wanted >= 4 * len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: OMP_NUM_THREADS is not set and {len(unset)} ranks see {len(cpus)} cpus each",
            f"NumPy's BLAS and PyTorch would start up to {wanted} threads on {len(cpus)} cpus",
            f"{THREADS}, and bind the ranks",
        )


def sharing(reports: list[RankReport]) -> Iterator[Finding]:
    """Find nodes with more ranks than cores."""
    cpus = _all(reports)
    if len(reports) > len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: {len(reports)} ranks on {len(cpus)} cpus ({ranges(cpus)})",
            "they take turns; figures measured so say little about a machine with a core for each",
            "Fewer ranks per node, or more cores (`--cpus-per-task`, `--exclusive`)",
        )


def limited(reports: list[RankReport]) -> Iterator[Finding]:
    """Find containers that may use less CPU time than their ranks need."""
    granted = reports[0].facts[NAME].get("quota")
    if granted is not None and granted < min(len(reports), len(_all(reports))):
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: the control group grants {granted:g} cores' worth of time to {len(reports)} ranks",
            "the kernel stops all of them for up to a tenth of a second when the time is used up",
            "Raise the limit (docker run --cpus, the pod's limits), or start fewer ranks",
        )


def wide(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that may move between NUMA nodes although the node has a rank for each."""
    loose = [report for report in reports if len(report.facts[NAME].get("numa", ())) > 1]
    domains = reports[0].facts[NAME].get("numa nodes", 1)
    if loose and len(reports) >= domains:
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: {some_ranks(c.rank for c in loose)} may run on {domains} NUMA nodes",
            "memory stays where it was touched first; a rank that moves reads it across the socket link",
            BIND,
        )
