# SPDX-License-Identifier: Apache-2.0
"""Binding: which cores each rank may use, how many threads it will start there, and who else is on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from hpccoll.checks.finding import WARNING, Card, Facts, Finding, Job, numbers, ranges, ranks

NAME = "placement"
CPUS = Path("/sys/devices/system/cpu")
NUMA = Path("/sys/devices/system/node")
BIND = (
    "Bind each rank to cores of its own: `srun --cpu-bind=cores`, `mpirun --map-by slot:PE=N --bind-to core`"
)
THREADS = "Set OMP_NUM_THREADS to the cores of a rank (1 where ranks share cores)"


def collect(env: Mapping[str, str]) -> Facts:
    """What the kernel and the environment say; a few files, well below a millisecond."""
    threads = env.get("OMP_NUM_THREADS", "").split(",")[0]
    return {
        "cpus": ranges(os.sched_getaffinity(0)),
        "online": _read(CPUS / "online") or ranges(range(os.cpu_count() or 1)),
        "threads": int(threads) if threads.isdecimal() else None,
    }


def collect_more(env: Mapping[str, str]) -> Facts:
    """`collect`, and the cores and NUMA nodes behind the cpus, and the share of time that a container grants."""
    facts = collect(env)
    cpus = set(numbers(facts["cpus"]))
    siblings = {_read(CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    domains = {
        int(node.name.removeprefix("node")): set(numbers(_read(node / "cpulist")))
        for node in NUMA.glob("node[0-9]*")
    }
    return facts | {
        "cores": len(siblings),
        "numa": sorted(n for n, members in domains.items() if members & cpus),
        "numa nodes": len([n for n, members in domains.items() if members]) or 1,
        "quota": quota(),
    }


def quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of time that the control group of this container may use; None: no limit."""
    limit, _, period = _read(root / "cpu.max").partition(" ")
    if not limit:
        limit, period = _read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")
    return int(limit) / int(period) if limit.isdecimal() and period.isdecimal() and int(period) else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def judge(job: Job) -> list[Finding]:
    """Everything below, of each node."""
    found = []
    for cards in job.nodes.values():
        found += list(crowded(cards)) or list(sharing(cards))
        for look in (threaded, unthreaded, limited, wide):
            found += look(cards)
    return found


def judge_at_start(job: Job) -> list[Finding]:
    """What is surely not meant; ranks that knowingly share all cores of a small machine are."""
    looks = (crowded, threaded, unthreaded)
    return [finding for cards in job.nodes.values() for look in looks for finding in look(cards)]


def cpus_of(card: Card) -> frozenset[int]:
    """The logical processors that a rank may use."""
    return _set(card.facts[NAME]["cpus"])


@cache
def _set(text: str) -> frozenset[int]:
    """The same few sets come back on every node."""
    return frozenset(numbers(text))


def _all(cards: list[Card]) -> frozenset[int]:
    return frozenset().union(*map(cpus_of, cards))


def crowded(cards: list[Card]) -> Iterator[Finding]:
    """Several ranks are bound to the same few cores while others carry no rank."""
    free = _set(cards[0].facts[NAME]["online"]) - _all(cards)
    for cpus in dict.fromkeys(map(cpus_of, cards)):
        here = [card for card in cards if cpus_of(card) == cpus]
        if len(here) > len(cpus) and free:
            yield Finding(
                NAME,
                WARNING,
                f"{here[0].host}: {ranks(c.rank for c in here)} are bound to cpu {ranges(cpus)} "
                f"while no rank is on cpu {ranges(free)}",
                "they take turns on it, and whoever waits keeps the others from computing",
                BIND,
            )


def threaded(cards: list[Card]) -> Iterator[Finding]:
    """OMP_NUM_THREADS asks for more threads than there are cores for them."""
    asked = {card.rank: card.facts[NAME]["threads"] or 1 for card in cards}
    cpus = _all(cards)
    small = [card for card in cards if asked[card.rank] > len(cpus_of(card))]
    if small:
        card = small[0]
        yield Finding(
            NAME,
            WARNING,
            f"{card.host}: {ranks(c.rank for c in small)}: OMP_NUM_THREADS={asked[card.rank]} on "
            f"{len(cpus_of(card))} cpus ({ranges(cpus_of(card))})",
            "the threads of one rank take turns",
            f"{THREADS}, or give the ranks more cores (`srun --cpus-per-task`, passed on to srun)",
        )
    elif max(asked.values()) > 1 and sum(asked.values()) > len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{cards[0].host}: {len(cards)} ranks with {sum(asked.values())} OpenMP threads on {len(cpus)} cpus",
            "ranks take turns, and the slowest sets the pace of all",
            THREADS,
        )


def unthreaded(cards: list[Card]) -> Iterator[Finding]:
    """OMP_NUM_THREADS is not set, and every rank's BLAS would start a thread for each core that it sees."""
    unset = [card for card in cards if card.facts[NAME]["threads"] is None]
    cpus = _all(cards)
    wanted = sum(len(cpus_of(card)) for card in unset)
    if len(cards) <= len(cpus) and wanted >= 4 * len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{cards[0].host}: OMP_NUM_THREADS is not set and {len(unset)} ranks see {len(cpus)} cpus each",
            f"NumPy's BLAS and PyTorch would start up to {wanted} threads on {len(cpus)} cpus",
            f"{THREADS}, and bind the ranks",
        )


def sharing(cards: list[Card]) -> Iterator[Finding]:
    """More ranks than cores."""
    cpus = _all(cards)
    if len(cards) > len(cpus):
        yield Finding(
            NAME,
            WARNING,
            f"{cards[0].host}: {len(cards)} ranks on {len(cpus)} cpus ({ranges(cpus)})",
            "they take turns; figures measured so say little about a machine with a core for each",
            "Fewer ranks a node, or more cores (`--cpus-per-task`, `--exclusive`)",
        )


def limited(cards: list[Card]) -> Iterator[Finding]:
    """A container that may use less time than its ranks need."""
    granted = cards[0].facts[NAME].get("quota")
    if granted is not None and granted < min(len(cards), len(_all(cards))):
        yield Finding(
            NAME,
            WARNING,
            f"{cards[0].host}: the control group grants {granted:g} cores' worth of time to {len(cards)} ranks",
            "the kernel stops all of them when it is used up, for up to a tenth of a second",
            "Raise the limit (docker run --cpus, the pod's limits), or start fewer ranks",
        )


def wide(cards: list[Card]) -> Iterator[Finding]:
    """Ranks that may wander between NUMA nodes although there are enough of them to stay."""
    loose = [card for card in cards if len(card.facts[NAME].get("numa", ())) > 1]
    domains = cards[0].facts[NAME].get("numa nodes", 1)
    if loose and len(cards) >= domains:
        yield Finding(
            NAME,
            WARNING,
            f"{cards[0].host}: {ranks(c.rank for c in loose)} may run on {domains} NUMA nodes",
            "memory stays where it was touched first; a rank that moves reads it across the socket link",
            BIND,
        )
