# SPDX-License-Identifier: Apache-2.0
"""A job that a user requests, and the plan of its execution: plain values, without processes or environment."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpccoll.errors import HpccollError
from hpccoll.tools.launch.standard_input import Source


class LaunchError(HpccollError):
    """A job cannot be started as asked; the text says what to change."""


@dataclass(frozen=True)
class Host:
    """A host and its number of ranks."""

    name: str
    slots: int


@dataclass(frozen=True)
class Job:
    """A job of `ranks` processes that each run `command`."""

    ranks: int
    command: tuple[str, ...]
    hosts: tuple[Host, ...] = ()
    """Hosts to fill in this order; empty: this machine."""
    path: str = ""
    """The PATH of the ranks of this machine."""
    exported: Mapping[str, str] = field(default_factory=dict)
    """Variables to set in the ranks on every host."""
    cores: int = 1
    """Cores of this machine that the job may use."""
    allocated: bool = False
    """Whether a scheduler has allocated hosts to the job; mpirun asks the scheduler for them."""
    reached: tuple[str, ...] = ()
    """The hosts that ranks may run on; empty: this machine."""
    outside: bool = False
    """Whether this machine is none of the hosts that a scheduler has allocated, as the login node under salloc is."""
    root: bool = False
    """Whether the user is root, which Open MPI refuses by default."""
    output: str = ""
    """The folder for files of what each rank prints; "": it is printed together."""
    input: Source | None = None
    """What rank 0 reads, where the launcher need not forward it."""
    launcher_options: tuple[str, ...] = ()
    """Options that the user gives to mpirun itself."""

    @property
    def cores_per_rank(self) -> int:
        """Cores to bind a rank to; 0: do not bind, as ranks share cores or run on machines not counted here."""
        return self.cores // self.ranks if self.local else 0

    @property
    def binding_options(self) -> set[str]:
        """Which of bind-to and map-by the user gives to mpirun, which takes each of them once."""
        given = {word.lstrip("-").partition("=")[0] for word in self.launcher_options if word.startswith("-")}
        return given & {"bind-to", "map-by"}

    @property
    def oversubscribed(self) -> bool:
        """Whether there are more ranks than cores, so that a waiting rank must yield its core."""
        return self.local and self.ranks > self.cores

    @property
    def local(self) -> bool:
        """Whether all ranks run on this machine."""
        return not self.hosts and not self.allocated

    @property
    def defaults(self) -> dict[str, str]:
        """Variables to set where the user has not: ranks that share cores get one thread each, as under torchrun."""
        return {"OMP_NUM_THREADS": "1"} if self.oversubscribed else {}


@dataclass(frozen=True)
class Plan:
    """The execution of a job."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """The variables to set, whatever the caller's environment has."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The variables to set unless the caller's environment has them."""

    def environment_from(self, caller: Mapping[str, str]) -> dict[str, str]:
        """Return the environment to start the job with, made from the caller's."""
        return {**self.defaults, **caller, **self.environment}


HOST_NAME = re.compile(r"(?:\w[\w.-]*@)?[A-Za-z0-9](?:[\w.-]*\w)?", re.ASCII)
"""The name or IPv4 address of a host, with or without a user: never an option of ssh, nor anything for a shell."""


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Read hosts from `h1:2,h2:2`; a host without a number takes one rank. Each is in the result once.

    :raises LaunchError: the text is no list of hosts
    """
    hosts = []
    for part in text.split(","):
        name, given, slots = part.strip().partition(":")
        slots = slots if given else "1"
        if not HOST_NAME.fullmatch(name) or not re.fullmatch(r"0*[1-9][0-9]{0,8}", slots, re.ASCII):
            raise LaunchError(f"hosts {text!r}: {part!r} is not HOST or HOST:RANKS")
        hosts.append(Host(name, int(slots)))
    return _each_once(hosts)


def _each_once(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Give a host that is named several times all its ranks, in its first place: the host file of PBS does so."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return tuple(Host(name, count) for name, count in slots.items())


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Read hosts from a file, one per line: `h1 slots=2` as Open MPI has it, `h1:2` as MPICH has it, or `h1`.

    Open MPI's `max_slots=4` is accepted: no host gets more ranks than it has slots.

    :raises LaunchError: the file cannot be read, or a line is no host
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"--hostfile {path}: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = [word for word in line.partition("#")[0].split() if not re.fullmatch(r"max[-_]slots=[0-9]+", word)]
        if not words:
            continue
        try:
            (host,) = parse_hosts(words[0] + "".join(f":{word.removeprefix('slots=')}" for word in words[1:]))
        except (LaunchError, ValueError):
            raise LaunchError(
                f"--hostfile {path}, line {number}: {line.strip()!r} is not HOST, HOST:RANKS or HOST slots=RANKS"
            ) from None
        hosts.append(host)
    if not hosts:
        raise LaunchError(f"--hostfile {path}: there is no host in it")
    return _each_once(hosts)


def split_words(option: str, text: str) -> tuple[str, ...]:
    """Split the value of an option into words, as a shell does.

    :raises LaunchError: a quote is open
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise LaunchError(f"{option} {text}: {error}") from None


def fill_hosts(ranks: int | None, hosts: tuple[Host, ...]) -> tuple[int, tuple[Host, ...]]:
    """Fill the hosts in order.

    :param ranks: how many ranks; None: as many as the hosts take
    :returns: the number of ranks, and the hosts that get ranks, with the number of each
    :raises LaunchError: the hosts take fewer ranks, or neither ranks nor hosts are given
    """
    slots = sum(host.slots for host in hosts)
    if ranks is None and not hosts:
        raise LaunchError("how many ranks? Give -np, or -H host:ranks,...; no scheduler has allocated hosts here")
    if ranks is None:
        return slots, hosts
    if ranks < 1:
        raise LaunchError(f"-np {ranks}: at least one rank")
    if hosts and ranks > slots:
        raise LaunchError(f"-np {ranks}: the hosts take {slots} ranks; raise the numbers after -H")
    placed, left = [], ranks
    for host in hosts:
        if left:
            placed.append(Host(host.name, min(left, host.slots)))
            left -= placed[-1].slots
    return ranks, tuple(placed)
