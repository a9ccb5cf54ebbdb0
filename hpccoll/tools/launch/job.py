# SPDX-License-Identifier: Apache-2.0
"""What a user asks for, and what has to be executed: plain values, no process, no environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.errors import HpccollError


class LaunchError(HpccollError):
    """A job cannot be started as asked; the text says what to change."""


@dataclass(frozen=True)
class Host:
    """A host and how many ranks it takes."""

    name: str
    slots: int


@dataclass(frozen=True)
class Job:
    """`ranks` processes of `command`, on this machine (`hosts` empty) or on the named hosts in their order.

    `cores` are those of this machine that the job may use, `allocated` says that a scheduler has placed the
    job, so that mpirun asks it for the hosts, and `exported` are set in the ranks on every host.
    """

    ranks: int
    command: tuple[str, ...]
    hosts: tuple[Host, ...] = ()
    exported: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    allocated: bool = False
    root: bool = False

    @property
    def cores_a_rank(self) -> int:
        """Cores to bind a rank to; 0: bind nothing, as ranks share cores or sit where none can be counted."""
        return 0 if self.hosts or self.allocated else self.cores // self.ranks

    @property
    def oversubscribed(self) -> bool:
        """More ranks than cores here: whoever waits must yield."""
        return not self.hosts and not self.allocated and self.ranks > self.cores


@dataclass(frozen=True)
class Plan:
    """What to execute: argv, and the variables to set on top of the caller's environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Read `h1:2,h2:2`; a host without a number takes one rank."""
    hosts = []
    for part in text.split(","):
        name, _, slots = part.strip().partition(":")
        if not name or not (slots or "1").isdecimal() or int(slots or 1) < 1:
            raise LaunchError(f"hosts {text!r}: {part!r} is not HOST or HOST:RANKS")
        hosts.append(Host(name, int(slots or 1)))
    return tuple(hosts)


def place(ranks: int | None, hosts: tuple[Host, ...]) -> tuple[int, tuple[Host, ...]]:
    """Fill the hosts in order with `ranks` (None: as many as they take); those left empty are dropped."""
    room = sum(host.slots for host in hosts)
    if ranks is None and not hosts:
        raise LaunchError("how many ranks? Give -np, or -H host:ranks,...")
    if ranks is None:
        return room, hosts
    if ranks < 1:
        raise LaunchError(f"-np {ranks}: at least one rank")
    if hosts and ranks > room:
        raise LaunchError(f"-np {ranks}: the hosts take {room} ranks; raise the numbers after -H")
    placed, left = [], ranks
    for host in hosts:
        if left:
            placed.append(Host(host.name, min(left, host.slots)))
            left -= placed[-1].slots
    return ranks, tuple(placed)
