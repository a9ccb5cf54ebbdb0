# SPDX-License-Identifier: Apache-2.0
"""Waits of the start over MPI that end: at a limit, with the names of the ranks that are missing.

The start uses MPI's non-blocking collectives, which neither end by themselves if a rank is missing nor know which one
it is. So a rank that has waited for a while sends a sign of life to two keepers, ranks 0 and 1, and repeats it. Rank 0
says every ten seconds from which ranks it has none. At the limit it sends a verdict to all, which every rank raises.
Rank 1 does the same if it has no sign of life of rank 0.

Before anything collective the ranks report over a tree: each one to its parent, when all its children have. So where
all come in time, no rank has more than FANOUT messages to read, however large the job is.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

from hpccoll import errors
from hpccoll.text import some_ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

__all__ = ["RollCall"]

SIGN_TAG, VERDICT_TAG, HERE_TAG = 0x4843, 0x4844, 0x4845  # below the smallest limit that the MPI standard allows
FANOUT = 32
"""Children of a rank in the tree over which the ranks report that they are here."""
KEEPERS = (0, 1)
ALL_HERE = ""
REPORT_EVERY = 10.0
SIGN_EVERY = 5.0
GRACE = 5.0
"""Seconds that the other ranks wait longer than the keeper that speaks: it knows more."""
PAUSE, SOON = 0.0005, 0.002
"""Seconds between two looks, and after how many a rank no longer only yields between them."""

_abandoned: list[object] = []
"""What nobody waits for any more: requests with their memory, which MPI may still read and write."""


class RollCall:
    """The signs of life of the ranks of a communicator while they wait for each other."""

    def __init__(self, comm: Intracomm, timeout: float) -> None:
        self.comm, self.timeout = comm, timeout
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.sign_every = min(SIGN_EVERY, timeout / 5)
        self.processes: dict[int, tuple[str, int]] = {self.rank: (platform.node(), os.getpid())}
        """Host and pid of the ranks that have told them to this one."""
        self.heard: dict[int, float] = {}
        """Keepers: when each rank gave its last sign of life."""
        self.began = self.signed = self.reported = 0.0
        self.sent: list[Request] = []
        self.children = range(FANOUT * self.rank + 1, min(FANOUT * (self.rank + 1) + 1, self.size))
        self.here: set[int] = set()
        """Children below which all ranks are here."""

    # ---- waiting ------------------------------------------------------------------------------------------

    def meet(self) -> None:
        """Return when all ranks have called this.

        :raises StartError: not all have within the limit; on all ranks that are here
        """
        self._begin()
        self.signed, reported = time.monotonic(), False
        while True:
            late = self._is_late()  # asked first: what came while this process stood still has come
            self._listen()
            if not reported and len(self.here) == len(self.children):
                reported = True
                self._report_to_parent()
            if (reported and self.rank == 0) or self._read_verdict():
                self._send_verdict(ALL_HERE, self.children)
                return
            self._go_on(late)
            time.sleep(PAUSE)

    def _report_to_parent(self) -> None:
        if self.rank:
            parent = (self.rank - 1) // FANOUT
            self.sent.append(self.comm.isend(self.processes[self.rank], dest=parent, tag=HERE_TAG))

    def wait(self, request: Request, *memory: object) -> None:
        """Return when the request is complete, which needs all ranks.

        :param memory: what the request reads and writes
        :raises StartError: it is not within the limit; on all ranks that are here
        """
        from mpi4py import MPI

        self._begin()
        try:
            while not self._is_complete(request):
                pass
        except BaseException as error:
            _abandoned.append((request, memory, self.sent))
            if isinstance(error, MPI.Exception):
                raise errors.StartError(f"the World was not made: MPI failed: {error}") from error
            raise

    def _is_complete(self, request: Request) -> bool:
        late = self._is_late()
        if request.Test():
            return True
        waited = time.monotonic() - self.began
        if late or waited > self.sign_every:
            self._listen()
            self._read_verdict()
            self._go_on(late)
        time.sleep(0 if waited < SOON else PAUSE)
        return False

    def _begin(self) -> None:
        self.began = self.reported = time.monotonic()
        self.signed = 0.0
        self.heard.clear()
        self.sent = [request for request in self.sent if not request.Test()]

    def _is_late(self) -> bool:
        grace = 0.0 if self._speaks() else GRACE
        return time.monotonic() - self.began > self.timeout + grace

    def _go_on(self, late: bool) -> None:
        """What is due while the others are waited for."""
        now = time.monotonic()
        if late:
            self._end()
        if now - self.signed > self.sign_every:
            self._sign(KEEPERS)
        if now - self.reported > REPORT_EVERY and self._speaks():
            self.reported = now
            print(f"hpccoll: start: waiting for {self._name(self._missing())}", file=sys.stderr, flush=True)

    # ---- signs of life --------------------------------------------------------------------------------------

    def _sign(self, keepers: Any) -> None:
        self.signed = time.monotonic()
        for keeper in keepers:
            if keeper < self.size and keeper != self.rank:
                self.sent.append(self.comm.isend(self.processes[self.rank], dest=keeper, tag=SIGN_TAG))

    def _listen(self) -> None:
        """Take the signs of life that have come."""
        from mpi4py import MPI

        status = MPI.Status()
        for tag, listens in ((SIGN_TAG, self.rank in KEEPERS), (HERE_TAG, len(self.here) < len(self.children))):
            while listens and (message := self.comm.improbe(tag=tag, status=status)):
                source = status.Get_source()
                self.processes[source] = message.recv()
                self.heard[source] = time.monotonic()
                if tag == HERE_TAG:
                    self.here.add(source)

    def _speaks(self) -> bool:
        """Whether it is this rank that knows who is missing."""
        return self.rank == 0 or (self.rank == 1 and not self._is_heard(0))

    def _is_heard(self, rank: int) -> bool:
        return time.monotonic() - self.heard.get(rank, -1e9) < 3 * self.sign_every

    def _missing(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank and not self._is_heard(r)]

    def _name(self, ranks: list[int]) -> str:
        """The ranks, and the process of each where few are missing and they have told it."""
        if not ranks:
            return "ranks that are all alive"
        if len(ranks) > len(KEEPERS) or not all(r in self.processes for r in ranks):
            return some_ranks(ranks)
        told = [f"rank {r} (host {self.processes[r][0]}, pid {self.processes[r][1]})" for r in ranks]
        return " and ".join(told)

    # ---- the verdict --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """The limit is over: say who is missing, here and to the others."""
        if self._speaks():
            missing = self._missing()
            who = f"no word from {self._name(missing)}" if missing else "the ranks did not get through to each other"
            verdict = f"{who} within {self.timeout:g} s (HPCCOLL_START_TIMEOUT)"
            self._send_verdict(verdict, range(self.size))
        else:
            keepers = [k for k in KEEPERS if k < self.size and k != self.rank]
            verdict = f"no word from {some_ranks(keepers)} within {self.timeout + GRACE:g} s (HPCCOLL_START_TIMEOUT)"
        _abandoned.append(self.sent)
        raise errors.StartError(f"the World was not made: {verdict}")

    def _send_verdict(self, verdict: str, ranks: range) -> None:
        told = (verdict, {self.rank: self.processes[self.rank]})
        self.sent.extend(self.comm.isend(told, dest=r, tag=VERDICT_TAG) for r in ranks if r != self.rank)

    def _read_verdict(self) -> bool:
        """Whether a keeper says that all are here; raises what else it says."""
        message = self.comm.improbe(tag=VERDICT_TAG)
        if message is None:
            return False
        verdict, processes = message.recv()
        self.processes |= processes
        if verdict != ALL_HERE:
            _abandoned.append(self.sent)
            raise errors.StartError(f"the World was not made: {verdict}")
        return True
