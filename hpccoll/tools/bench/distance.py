# SPDX-License-Identifier: Apache-2.0
"""The distance of the cores on which the ranks run: the measured latency of a cache line, and what the system says.

A collective takes two to four times as long between cores that share no cache as between those that do. So every figure
has the distance beside it. The host of a virtual machine shows invented caches and moves processors without a word, so
the latency is measured after every few samples. Two latencies that differ by more than FACTOR are of two distances:
those of one L3, two L3s and two sockets differ by 2 or more, those of one distance by up to 1.6 under load.
"""

import mmap
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll import _fleet
from hpccoll.text import parse_ranges
from hpccoll.tools.bench.ranks import Ranks

FACTOR = 1.8
SCHEDULED = 1e-6
"""A latency of this many seconds or more means that two processes share a core: Linux switches in about 2 us."""
TURNS = "turns on a core"
NAMES = ("", "same core", "same L3", "another L3", "another socket")
SHARED = Path("/dev/shm")
PROCESSORS = Path("/sys/devices/system/cpu")
Latencies = NDArray[np.float64]


class Distances:
    """Measures between neighbours: each rank and the next one on its host. All ranks make and use it together."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.turn = ranks, 0
        hosts = ranks.share((platform.node(), _boot()))
        self.mates = [rank for rank, host in enumerate(hosts) if host == hosts[ranks.rank]]
        self.place = self.mates.index(ranks.rank)
        nbytes = len(self.mates) * (_fleet.LINE_BYTES + 4)
        self.shared = share_memory(ranks.share, self.mates, self.place, nbytes)
        self.known = all(ranks.share(self.shared is not None)) and len(set(hosts)) < ranks.size
        self.latencies, self.names = self.measure()

    def measure(self) -> tuple[Latencies, tuple[str, ...]]:
        """Measure all pairs.

        :returns: the seconds of a line from each rank to the next one on its host, 0 where there is none or it was not
            found out; and the names of all distances that the system knows
        """
        found = np.zeros((2, self.ranks.size))
        if self.known and self.shared is not None:
            self.turn += 1
            processors = np.frombuffer(self.shared, np.int32, offset=len(self.mates) * _fleet.LINE_BYTES)
            processors[self.place] = _fleet.processor()
            for parity in (0, 1):
                first = self.place if self.place % 2 == parity else self.place - 1
                if not 0 <= first < len(self.mates) - 1:
                    continue
                leads = first == self.place
                seconds = _fleet.bounce(self.shared, first, self.turn, leads)
                if leads:
                    code = named(int(processors[first]), int(processors[first + 1]))
                    found[:, self.ranks.rank] = seconds, code
            del processors
            found = self.ranks.slowest(found)
        return found[0], tuple(NAMES[code] for code in sorted(set(found[1].astype(int))) if code)

    def moved(self) -> bool:
        """Measure again, and return whether the distance of a pair is another one than the last time."""
        before = self.latencies
        self.latencies, self.names = self.measure()
        return differ(before, self.latencies)

    def ends(self) -> tuple[float, float]:
        """Return the shortest and the longest latency; zeros where there is no pair."""
        there = self.latencies[self.latencies > 0]
        return (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)

    def close(self) -> None:
        """Give the memory back."""
        if self.shared is not None:
            self.shared.close()


def share_memory(share: Callable[[Any], list[Any]], mates: Sequence[int], place: int, nbytes: int) -> mmap.mmap | None:
    """Map memory, initially zero, that the ranks of this host share; all ranks of all hosts call it together.

    :param share: an allgather over all ranks
    :param mates: the ranks of this host, none if this process takes no part; `place`: the place of this rank in it
    :returns: None where it cannot be had
    """
    made, path = -1, ""
    try:
        if place == 0 and mates:
            made, path = tempfile.mkstemp(prefix="hpccoll-bench-", dir=SHARED)
            os.ftruncate(made, nbytes)
    except OSError:
        path = ""
    found = None
    paths = share(path)
    try:
        if mates:
            file = made if place == 0 else os.open(paths[mates[0]], os.O_RDWR)
            found = mmap.mmap(file, nbytes)
            os.close(file)
    except (OSError, ValueError, TypeError):
        found = None
    share(None)  # all have opened it
    if path:
        Path(path).unlink(missing_ok=True)
    return found


def differ(before: Latencies, after: Latencies) -> bool:
    """Return whether a pair of ranks has another distance; a pair without a core of its own has none."""
    both = (before > 0) & (after > 0) & ((before < SCHEDULED) | (after < SCHEDULED))
    ratio = np.maximum(before[both], after[both]) / np.minimum(before[both], after[both])
    return bool((ratio > FACTOR).any())


def classes(latencies: Sequence[float] | Latencies) -> list[float]:
    """Return the smallest latency of each distance among these."""
    found: list[float] = []
    for seconds in sorted({float(value) for value in latencies if value > 0}):
        if not found or (seconds > FACTOR * found[-1] and found[-1] < SCHEDULED):
            found.append(seconds)
    return found


def class_of(latencies: Sequence[float] | Latencies, bounds: Sequence[float]) -> NDArray[np.intp]:
    """Return the place of each latency's distance in `bounds`, which classes() gave; -1: not known."""
    return np.searchsorted(bounds, latencies, side="right") - 1


@cache
def named(first: int, second: int, processors: Path = PROCESSORS, virtual: bool | None = None) -> int:
    """Return the place in NAMES of the distance of two processors; 0: the system does not know it.

    :param virtual: whether this is a virtual machine, whose caches and sockets are invented; None: found out
    """
    if first == second and first >= 0:
        return NAMES.index("same core")
    if is_virtual() if virtual is None else virtual:
        return 0
    try:
        if second in _ranges(processors / f"cpu{first}/topology/thread_siblings_list"):
            return NAMES.index("same core")
        if second in _ranges(processors / f"cpu{first}/cache/index3/shared_cpu_list"):
            return NAMES.index("same L3")
        sockets = [(processors / f"cpu{n}/topology/physical_package_id").read_text() for n in (first, second)]
    except (OSError, ValueError):
        return 0
    return NAMES.index("another L3" if sockets[0] == sockets[1] else "another socket")


def _ranges(file: Path) -> set[int]:
    return set(parse_ranges(file.read_text().strip()))


@cache
def is_virtual() -> bool:
    """Whether this is a virtual machine, whose caches and sockets are invented."""
    return any(line.startswith("flags") and " hypervisor" in line for line in Path("/proc/cpuinfo").open())


def _boot() -> str:
    """Return an identifier of the running system."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


def text(names: Sequence[str], latencies: Sequence[float] | Latencies) -> str:
    """Write a distance, as "same L3, 52 ns" or "48..210 ns"; "" where nothing is known."""
    lines = [1e9 * value for value in latencies if 0 < value < SCHEDULED]
    words = [*names]
    if lines:
        low, high = min(lines), max(lines)
        words.append(f"{low:.0f}..{high:.0f} ns" if high > FACTOR * low else f"{float(np.median(lines)):.0f} ns")
    if any(value >= SCHEDULED for value in latencies):
        words.append(TURNS)
    return ", ".join(words)
