# SPDX-License-Identifier: Apache-2.0
"""The workers of an elastic job, as its coordinator knows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hpccoll.launch_protocol import Place
from hpccoll.text import some_ranks

STOPPED_AFTER = 8.0
"""Seconds for which a process is stopped before a line reports it: longer than other ranks need to notice it."""


class Phase(Enum):
    """The state of a worker."""

    STARTING = auto()
    READY = auto()
    MEMBER = auto()
    DONE = auto()
    ENDING = auto()
    """It was killed or released, and its process may still exist."""


@dataclass
class Worker:
    """A process that has not ended yet."""

    number: int
    host: str
    slot: int
    phase: Phase = Phase.STARTING
    has_state: bool = False
    """Whether it had a commit when it was last ready: a newcomer that lost its generation before the sync has none."""
    early: bool = False
    """Whether its program has called init() while a generation ran; it is ready when it calls run()."""
    since: float = 0.0
    """The time at which this phase began."""
    process: int = 0
    """The number of its process, if that is stopped; else 0."""
    stopped_at: float = 0.0


def place_of(worker: Worker, job: Sequence[Worker]) -> Place:
    """Find the place of a worker among those of a generation, in the order of their ranks.

    Its local rank is its slot, in which no other worker is: the others may have chosen their GPUs by theirs.
    """
    beside = sum(other.host == worker.host for other in job)
    across = [other.number for other in job if other.slot == worker.slot]
    rank = [other.number for other in job].index(worker.number)
    return Place(rank, len(job), worker.slot, max(beside, worker.slot + 1), across.index(worker.number), len(across))


def how_to_continue(stopped: Sequence[Worker], members: Sequence[int]) -> str:
    """Name workers that are stopped, and the commands that let them go on.

    :param members: the workers that have ranks, in the order of these
    """
    ranks = [members.index(worker.number) for worker in stopped if worker.number in members]
    new = len(stopped) - len(ranks)
    named = [some_ranks(ranks)] * bool(ranks) + [f"{new} new rank{'s' if new > 1 else ''}"] * bool(new)
    hosts: dict[str, list[str]] = {}
    for worker in stopped:
        hosts.setdefault(worker.host, []).append(f"-{worker.process}")
    commands = [f"on host {host}: kill -CONT {' '.join(groups)}" for host, groups in hosts.items()]
    verb = "are" if len(stopped) > 1 else "is"
    return f"{' and '.join(named)} {verb} stopped (SIGSTOP, state T); to continue, {'; '.join(commands)}"
