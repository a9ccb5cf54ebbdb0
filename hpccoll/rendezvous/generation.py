# SPDX-License-Identifier: Apache-2.0
"""How the ranks that share a store agree on their members: rank 0 assigns a generation.

A store outlives processes: it still has the records of dead ranks and of earlier rendezvous, so counting records
would be wrong. Each process draws a random number and writes it as its hello. Rank 0 draws the generation and alone
answers each hello, by its number; a rank that finds the answer to its number joins that generation. If a rank does
not join after the answer to its hello, that hello is of a dead process, and rank 0 waits for a new hello.
"""

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hpccoll.rendezvous.patience import REPORT_EVERY, PatientStore
from hpccoll.rendezvous.seal import Seal
from hpccoll.text import say, some_ranks

__all__ = ["GRACE", "Members", "Reports", "UnmetError", "find", "tell"]

GRACE = 5.0
"""Seconds that the other ranks wait longer than rank 0, which knows the missing ranks and reports them."""
SHORTEST, LONGEST = 0.02, 1.0
"""Seconds between two polls of the store."""


class UnmetError(Exception):
    """The rendezvous failed; the text gives the reason."""


@dataclass(frozen=True)
class Members:
    """The processes of one generation."""

    generation: str
    numbers: list[str]
    """The number that each rank has drawn."""
    unread: float | None = None
    """On rank 0 what `tell` has returned."""


def find(store: PatientStore, seal: Seal, prefix: str, rank: int, size: int) -> Members:
    """Find the other ranks.

    :raises UnmetError: ranks are missing
    """
    mine = secrets.token_hex(16)
    if rank == 0:
        return _Root(store, seal, prefix, size, mine).gather()
    return _Other(store, seal, prefix, rank, mine).come()


def tell(store: PatientStore, key: str, record: bytes, marks: list[str], is_last: bool) -> float | None:
    """Write a record of rank 0, and wait until the others have read it: if this rank ends, the store may end with it.

    :param marks: the keys by which the others say that they have read it
    :param is_last: no exchange follows, so that all of the time may pass
    :returns: the time of the record, if not all have read it: since then the others wait for the next one; else None
    """
    store.limit += GRACE
    store.set(key, record)
    written = time.monotonic()
    return None if store.wait(marks, store.left if is_last else store.seconds) else written


class Reports:
    """Reports the missing ranks every ten seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def say(self, missing: Iterable[int], more: str = "") -> None:
        """Report the missing ranks, if ten seconds have passed since the last report."""
        if time.monotonic() - self.last >= REPORT_EVERY:
            self.last = time.monotonic()
            say(f"hpccoll: start: waiting for {some_ranks(missing)}{more}")


class _Root:
    """Rank 0."""

    def __init__(self, store: PatientStore, seal: Seal, prefix: str, size: int, generation: str) -> None:
        self.store, self.seal, self.prefix, self.size = store, seal, prefix, size
        self.generation = generation
        self.answered: dict[int, str] = {}
        """The number in the last answered hello of each rank."""
        self.refused: dict[int, str] = {}
        """The reason for which a rank's record was refused."""
        self.members = {0: generation}

    def gather(self) -> Members:
        """Answer the hellos until all ranks have joined this generation; then give the members to all of them."""
        reports, pause, verdict = Reports(), SHORTEST, ""
        while missing := set(range(self.size)) - set(self.members):
            self.store.look([self._awaited(r) for r in missing], pause)
            pause = min(2 * pause, LONGEST)
            for rank in missing:
                self._look_at(rank)
            if self.store.left <= 0:
                break
            reports.say(missing, self._why(missing))
        if missing := set(range(self.size)) - set(self.members):
            verdict = f"no word from {some_ranks(missing)} within {self.store.seconds:g} s (HPCCOLL_START_TIMEOUT)"
            verdict += self._why(missing)
        numbers = [self.members.get(rank, "") for rank in range(self.size)]
        key = f"{self.prefix}/{self.generation}/met"
        record = self.seal.close(key, {"verdict": verdict, "numbers": numbers})
        unread = tell(self.store, key, record, [f"{key}/{rank}" for rank in self.members if rank], bool(verdict))
        if verdict:
            raise UnmetError(verdict)
        return Members(self.generation, numbers, unread)

    def _awaited(self, rank: int) -> str:
        if rank in self.answered:
            return f"{self.prefix}/{self.generation}/come/{rank}/{self.answered[rank]}"
        return f"{self.prefix}/hello/{rank}"

    def _look_at(self, rank: int) -> None:
        """Answer a new hello; count a rank that has joined this generation."""
        number = self._read(rank, f"{self.prefix}/hello/{rank}")
        if number and self.answered.get(rank) != number:
            key = f"{self.prefix}/answer/{number}"
            self.store.set(key, self.seal.close(key, self.generation))
            self.answered[rank] = number
        if rank in self.answered and self._read(rank, self._awaited(rank)) == self.answered[rank]:
            self.members[rank] = self.answered[rank]

    def _read(self, rank: int, key: str) -> str:
        """The text of a record; "" if it is absent, refused or not a short text."""
        if not self.store.there(key):
            return ""
        try:
            found = self.seal.open(key, self.store.get(key))
        except ValueError as error:
            self.refused[rank] = str(error)
            return ""
        self.refused.pop(rank, None)
        return found if isinstance(found, str) and len(found) <= 64 else ""

    def _why(self, missing: Iterable[int]) -> str:
        return "".join(f"; the record of rank {r} is refused: {self.refused[r]}" for r in missing if r in self.refused)


class _Other:
    """A rank that is not 0."""

    def __init__(self, store: PatientStore, seal: Seal, prefix: str, rank: int, mine: str) -> None:
        self.store, self.seal, self.prefix, self.rank, self.mine = store, seal, prefix, rank, mine
        store.limit += GRACE

    def come(self) -> Members:
        """Write the hello, and join the generation of rank 0's last answer: a restarted rank 0 answers again."""
        hello, answer = f"{self.prefix}/hello/{self.rank}", f"{self.prefix}/answer/{self.mine}"
        self.store.set(hello, self.seal.close(hello, self.mine))
        reports, pause, generation = Reports(), SHORTEST, ""
        while self.store.left > 0:
            if not generation:
                self.store.wait([answer], REPORT_EVERY)
            elif self.store.look([f"{self.prefix}/{generation}/met"], pause):
                return self._met(generation)
            pause = min(2 * pause, LONGEST)
            now = str(self._open(answer)) if self.store.there(answer) else ""
            if now != generation:
                generation = now
                come = f"{self.prefix}/{generation}/come/{self.rank}/{self.mine}"
                self.store.set(come, self.seal.close(come, self.mine))
            if not generation and self.rank == 1:
                reports.say([0])
        raise UnmetError(f"no word from rank 0 within {self.store.seconds + GRACE:g} s (HPCCOLL_START_TIMEOUT)")

    def _met(self, generation: str) -> Members:
        key = f"{self.prefix}/{generation}/met"
        met = self._open(key)
        self.store.set(f"{key}/{self.rank}", b"")
        if not isinstance(met, dict) or not isinstance(met.get("numbers"), list):
            raise UnmetError("rank 0's record in the store is none of hpccoll")
        if met.get("verdict"):
            raise UnmetError(str(met["verdict"]))
        numbers = [str(number) for number in met["numbers"]]
        if self.mine not in numbers[self.rank : self.rank + 1]:
            raise UnmetError(f"another process has come to the store as rank {self.rank}")
        return Members(generation, numbers)

    def _open(self, key: str) -> Any:
        try:
            return self.seal.open(key, self.store.get(key))
        except ValueError as error:
            raise UnmetError(f"the record of rank 0 in the store is refused: {error}") from None
