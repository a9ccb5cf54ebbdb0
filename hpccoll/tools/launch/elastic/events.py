# SPDX-License-Identifier: Apache-2.0
"""What happens in an elastic job, for its coordinator, and what the coordinator wants to be done."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.launch_protocol import Place

# ---- events -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discovered:
    """The current hosts, with their slots."""

    slots: Mapping[str, int]


@dataclass(frozen=True)
class Early:
    """The program of a worker calls init() before run()."""

    worker: int


@dataclass(frozen=True)
class Came:
    """A worker is ready for the next generation."""

    worker: int
    generation: int
    """The generation that it was a member of; 0: none."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Ranks of that generation that it has lost, and why."""
    has_state: bool = False
    """Whether it has a commit."""


@dataclass(frozen=True)
class Gone:
    """The process of a worker has ended, or is unreachable."""

    worker: int
    status: int
    how: str


@dataclass(frozen=True)
class HostLost:
    """All workers of a host are lost at once: its agent has ended, or cannot be reached."""

    host: str
    how: str


@dataclass(frozen=True)
class Halted:
    """The process of a worker was stopped (SIGSTOP, state T), or goes on."""

    worker: int
    process: int
    """Its number on its host; 0: it goes on."""


@dataclass(frozen=True)
class Leaving:
    """A worker got a signal to leave."""

    worker: int


@dataclass(frozen=True)
class Done:
    """The program of a worker has ended."""

    worker: int


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    awaited: frozenset[int] = frozenset()
    """The workers for which others wait in an exchange of the generation, that is, while they make its World."""


Event = Discovered | Early | Came | Gone | HostLost | Halted | Leaving | Done | Tick

# ---- actions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Start the process of a worker."""

    worker: int
    host: str
    slot: int


@dataclass(frozen=True)
class Kill:
    """Kill the process of a worker (SIGKILL)."""

    worker: int
    why: str


@dataclass(frozen=True)
class Answer:
    """Tell a worker that is early where its place will be; None: there is no generation yet, and it is to come."""

    worker: int
    place: Place | None


@dataclass(frozen=True)
class Void:
    """A generation has ended: its members get no further answers."""

    generation: int
    why: str


@dataclass(frozen=True)
class Form:
    """A new generation, with its members in the order of their ranks."""

    generation: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """Tell the members of a generation that it is about to change."""

    generation: int
    members: tuple[int, ...]
    adds_only: bool


@dataclass(frozen=True)
class Release:
    """Tell a ready worker to end regularly."""

    worker: int
    why: str


@dataclass(frozen=True)
class Say:
    """Print a line."""

    text: str


@dataclass(frozen=True)
class End:
    """End the job; nothing follows."""

    status: int
    why: str


Action = Start | Kill | Answer | Void | Form | Change | Release | Say | End
