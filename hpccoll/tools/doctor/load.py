# SPDX-License-Identifier: Apache-2.0
"""Finds what else uses the cores of quiet ranks: other processes, a hypervisor, a control group."""

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from hpccoll.checks import cgroups, placement
from hpccoll.checks.finding import NOTE, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import listed, some_ranks

NAME = "load"
WINDOW, LOOKS = 0.5, 10
"""Seconds in which the ranks sleep, and the number of looks at other processes in that time."""
LEAST = 0.2
"""Time of other processes, in cores, from which on it is a finding."""
ENOUGH = 0.9
"""Share of a core that a rank should have."""
STEAL = 0.03
OURS = "hpccoll.tools.doctor"
PROC = Path("/proc")


def watch(cpus: Collection[int], seconds: float = WINDOW) -> Facts:
    """Watch the cores of this rank while it sleeps; all ranks do so at the same time.

    :returns: the shares of the cores' time that others used ("busy") and that a hypervisor took ("steal"), the
        processes that were seen running or waiting for these cores, how many of them at a time, the load average, and
        the seconds for which the control group was stopped
    """
    before, used, stopped = _times(cpus), time.process_time(), cgroups.throttled()
    seen: dict[str, int] = {}
    for _ in range(LOOKS):
        time.sleep(seconds / LOOKS)
        for process in _running(cpus):
            seen[process] = seen.get(process, 0) + 1
    after = _times(cpus)
    total = max(1.0, after["total"] - before["total"])
    mine = (time.process_time() - used) * os.sysconf("SC_CLK_TCK")
    return {
        "busy": round(max(0.0, after["busy"] - before["busy"] - mine) / total, 3),
        "steal": round((after["steal"] - before["steal"]) / total, 3),
        "processes": [process for process, times in seen.items() if 3 * times >= LOOKS],
        "at a time": round(sum(seen.values()) / LOOKS, 1),
        "average": os.getloadavg()[0],
        "online": os.cpu_count() or 1,
        "stopped": round(cgroups.throttled() - stopped, 3),
    }


def _times(cpus: Collection[int]) -> dict[str, float]:
    """Return the ticks of some cores since the start of the machine."""
    names, sums = {f"cpu{cpu}" for cpu in cpus}, {"busy": 0.0, "steal": 0.0, "total": 0.0}
    for line in (PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, idle, wait, *more = (*map(float, fields[:8]), *[0.0] * (8 - len(fields)))
            interrupts, soft, steal = more
            busy = user + nice + system + interrupts + soft
            for key, value in (("busy", busy), ("steal", steal), ("total", busy + idle + wait + steal)):
                sums[key] += value
    return sums


def _running(cpus: Collection[int]) -> Iterator[str]:
    """The processes, without those of the doctor, that run on some cores or wait for them."""
    for stat in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            head, _, tail = stat.read_text().rpartition(") ")
            fields = tail.split()
            pid, _, name = head.partition(" (")
            if fields[0] == "R" and int(fields[36]) in cpus and int(pid) != os.getpid():
                words = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ")
                if OURS.encode() not in words and b"hpccoll doctor" not in words:
                    yield f"{name} (pid {pid})"


# ---- judging --------------------------------------------------------------------------------------------


def judge(survey: Survey) -> list[Finding]:
    """Find cores that others use, time that a hypervisor or a control group takes, and machines that were busy."""
    found: list[Finding] = []
    for reports in survey.nodes.values():
        watched = [report for report in reports if NAME in report.facts]
        for look in (_used, _stolen, _stopped):
            found += look(watched)
        if watched and not any(finding.check == NAME for finding in found):
            found += _was_busy(watched[0])
    return found


def _used(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks whose cores leave them less than a core each."""
    for cpus in dict.fromkeys(map(placement.cpus_of, reports)):
        ranks = [report for report in reports if placement.cpus_of(report) == cpus]
        facts = max((report.facts[NAME] for report in ranks), key=lambda facts: facts["busy"])
        used = facts["busy"] * len(cpus)
        if used < LEAST or len(cpus) - used >= ENOUGH * len(ranks):
            continue
        names = f": {listed(facts['processes'], 4)}" if facts["processes"] else ""
        yield Finding(
            NAME,
            WARNING,
            f"{ranks[0].host}: other processes use {facts['busy']:.0%} of {ranks[0].facts[placement.NAME]['cpus']} "
            f"(cpus of {some_ranks(r.rank for r in ranks)}); {facts['at a time'] / len(cpus):.2g} of them are runnable "
            f"per core{names}; load average {facts['average']:.3g}",
            "a rank that waits for its core holds up all ranks, by milliseconds in each operation",
            "End them, ask for whole nodes (`--exclusive`), or bind the ranks to other cores; zombies of an earlier "
            "job are known to do so",
        )


def _stolen(reports: list[RankReport]) -> Iterator[Finding]:
    worst = max((report.facts[NAME]["steal"] for report in reports), default=0.0)
    if worst > STEAL:
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: the hypervisor took {worst:.0%} of the time of a rank's cores (steal)",
            "other virtual machines run on the same processor, and every operation waits for the slowest rank",
            "Dedicated hosts, or an instance whose cores are its own",
        )


def _stopped(reports: list[RankReport]) -> Iterator[Finding]:
    worst = max((report.facts[NAME]["stopped"] for report in reports), default=0.0)
    if worst > 0:
        yield Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: the control group of the ranks was stopped for {worst:g} s meanwhile (cpu.stat)",
            "the kernel stops all its processes when the time that it grants is used up",
            "Raise the limit (docker run --cpus, the pod's limits), or start fewer ranks and threads",
        )


def _was_busy(report: RankReport) -> Iterator[Finding]:
    facts = report.facts[NAME]
    if facts["average"] > 1.5 * facts["online"]:
        yield Finding(
            NAME,
            NOTE,
            f"{report.host}: the load average is {facts['average']:.3g} on {facts['online']} cpus, and the cores "
            "of the ranks were free while they were watched",
            "what ran a minute ago may run again",
            "`top` there, while the job runs",
        )
