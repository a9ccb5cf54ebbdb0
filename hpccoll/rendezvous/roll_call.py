# SPDX-License-Identifier: Apache-2.0
"""Waits during the start over MPI that have a time limit and report the missing ranks.

The start uses MPI's non-blocking collectives, which have no time limit and do not report which rank is missing. So a
rank that has waited for a while sends heartbeats to two keepers, ranks 0 and 1. Rank 0 reports every ten seconds the
ranks without a heartbeat. At the limit it sends a verdict to all, which every rank raises. Rank 1 does the same if it
has no heartbeat of rank 0.

Before the first collective the ranks report over a tree: each rank to its parent, after all its children. So if all
ranks are in time, none reads more than FANOUT messages, however large the job is.
"""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any

from hpccoll import errors
from hpccoll.text import say, some_ranks

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
"""Seconds that the other ranks wait longer than the keeper that reports: it knows the missing ranks."""
PAUSE, SOON = 0.0005, 0.002
"""Seconds between two looks, and after how many a rank no longer only yields between them."""

_abandoned: list[object] = []
"""Abandoned requests with their buffers, which MPI may still read and write."""


class RollCall:
    """The signs of life of the ranks of a communicator while they wait for each other."""

    def __init__(self, comm: Intracomm, timeout: float) -> None:
        self.comm, self.timeout = comm, timeout
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.sign_every = min(SIGN_EVERY, timeout / 5)
        self.processes: dict[int, tuple[str, int]] = {self.rank: (platform.node(), os.getpid())}
        """Host and pid of each rank that has sent them to this rank."""
        self.heard: dict[int, float] = {}
        """Keepers: the time of each rank's last heartbeat."""
        self.began = self.signed = self.reported = 0.0
        self.sent: list[Request] = []
        self.children = range(FANOUT * self.rank + 1, min(FANOUT * (self.rank + 1) + 1, self.size))
        self.here: set[int] = set()
        """Children whose subtrees are complete."""

    # ---- waiting ------------------------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until all ranks have called this.

        :raises StartError: a rank has not called it within the limit; on all present ranks
        """
        self._begin()
        self.signed, reported = time.monotonic(), False
        while True:
            late = self._is_late()  # before _listen(): messages that arrived while this process was stopped count
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
        """Wait until the request is complete, which needs all ranks.

        :param memory: the buffers of the request, kept alive while MPI uses them
        :raises StartError: it is not complete within the limit; on all present ranks
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
        """Do the periodic work of a wait."""
        now = time.monotonic()
        if late:
            self._end()
        if now - self.signed > self.sign_every:
            self._sign(KEEPERS)
        if now - self.reported > REPORT_EVERY and self._speaks():
            self.reported = now
            say(f"hpccoll: start: waiting for {self._name(self._missing())}")

    # ---- heartbeats -----------------------------------------------------------------------------------------

    def _sign(self, keepers: Any) -> None:
        self.signed = time.monotonic()
        for keeper in keepers:
            if keeper < self.size and keeper != self.rank:
                self.sent.append(self.comm.isend(self.processes[self.rank], dest=keeper, tag=SIGN_TAG))

    def _listen(self) -> None:
        """Receive the heartbeats that have arrived."""
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
        """Whether this rank is the keeper that reports the missing ranks."""
        return self.rank == 0 or (self.rank == 1 and not self._is_heard(0))

    def _is_heard(self, rank: int) -> bool:
        return time.monotonic() - self.heard.get(rank, -1e9) < 3 * self.sign_every

    def _missing(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank and not self._is_heard(r)]

    def _name(self, ranks: list[int]) -> str:
        """Format the ranks; if they are few, with the host and pid of each, as far as known."""
        if not ranks:
            return "ranks that are all alive"
        if len(ranks) > len(KEEPERS) or not all(r in self.processes for r in ranks):
            return some_ranks(ranks)
        told = [f"rank {r} (host {self.processes[r][0]}, pid {self.processes[r][1]})" for r in ranks]
        return " and ".join(told)

    # ---- the verdict --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """At the limit: report the missing ranks, here and to the others."""
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
        """Whether a keeper has reported that all ranks are present; raises any other verdict."""
        message = self.comm.improbe(tag=VERDICT_TAG)
        if message is None:
            return False
        verdict, processes = message.recv()
        self.processes |= processes
        if verdict != ALL_HERE:
            _abandoned.append(self.sent)
            raise errors.StartError(f"the World was not made: {verdict}")
        return True
