# SPDX-License-Identifier: Apache-2.0
"""The hosts of an elastic job: their slots, their failures, and their exclusions."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MEMORY = 600.0
"""Seconds for which a failure counts."""


@dataclass
class Host:
    """A host of the discovery."""

    name: str
    slots: int
    """The number of its slots for ranks; 0: the host is gone."""
    occupants: dict[int, int] = field(default_factory=dict)
    """The worker in each slot that is taken."""
    barred: set[int] = field(default_factory=set)
    """Slots whose rank must leave, until the discovery names the host again."""
    failures: list[float] = field(default_factory=list)
    """The times of recent failures of its ranks."""
    excluded_until: float = -math.inf
    exclusions: int = 0


class Hosts:
    """All hosts, in the order of their discovery."""

    def __init__(self, failures: int, cooldown: tuple[float, float] | None) -> None:
        """Begin without hosts.

        :param failures: this number of failures in ten minutes excludes a host
        :param cooldown: seconds of the first exclusion, and of the longest: each is twice the one before; None: an
            excluded host does not come back
        """
        self.most, self.cooldown = failures, cooldown
        self.known: dict[str, Host] = {}

    def set(self, slots: Mapping[str, int]) -> None:
        """Take the result of the discovery."""
        for name, count in slots.items():
            host = self.known.setdefault(name, Host(name, count))
            if not host.slots:
                host.barred.clear()
            host.slots = count
        for name, host in self.known.items():
            if name not in slots:
                host.slots = 0

    def fail(self, name: str, now: float) -> bool:
        """Count a failure of a rank there.

        :returns: whether the host is excluded because of it
        """
        host = self.known[name]
        host.failures = [at for at in host.failures if now - at < MEMORY] + [now]
        if len(host.failures) < self.most or self.is_excluded(name, now):
            return False
        host.failures.clear()
        host.exclusions += 1
        host.excluded_until = math.inf
        if self.cooldown:
            first, longest = self.cooldown
            host.excluded_until = now + min(longest, first * 2.0 ** min(host.exclusions - 1, 60))
        return True

    def is_excluded(self, name: str, now: float) -> bool:
        """Return whether no rank may be started there."""
        return now < self.known[name].excluded_until

    def keeps(self, name: str, slot: int) -> bool:
        """Return whether a rank in this slot may stay: an excluded host keeps its healthy ranks."""
        host = self.known[name]
        return slot < host.slots and slot not in host.barred

    def free(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield the slots where a rank may be started, in order."""
        for host in self.known.values():
            if not self.is_excluded(host.name, now):
                taken = host.barred.union(host.occupants)
                yield from ((host.name, slot) for slot in range(host.slots) if slot not in taken)

    def may_come(self) -> bool:
        """Return whether any host may take a rank, now or later, without a new discovery."""
        return any(h.slots > len(h.barred) and h.excluded_until < math.inf for h in self.known.values())
