# SPDX-License-Identifier: Apache-2.0
"""A common clock of all ranks, so that they start a sample at the same time instead of leaving a barrier one by one.

Each rank exchanges messages with rank 0; half of the fastest round trip bounds the error of the offset between their
clocks (Cristian 1989, "Probabilistic clock synchronization"). Ranks agree on a start time slightly in the future; a
sample for which a rank is late is dropped (the window scheme of Hunold and Carpen-Amarie 2015, "On the Impact of
Synchronizing Clocks and Processes on Benchmarking MPI Collectives"). A second measurement finds clocks that drift.
"""

import os
import time
from collections.abc import Callable

import numpy as np

from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Facts, ResultsError

NAME = "clocks"
EXCHANGES = 30
"""Round trips per rank; only the fastest counts."""
LEAD, MOST_LEAD = 200e-6, 20e-3
"""Seconds from the agreement on a start to the start: at first, and at most after ranks came late."""
AWAKE = 100e-6
"""So many seconds before the start a rank ceases to sleep, and yields. If the ranks that share a core all spun from
the agreement on, they would keep the core from one another."""
MOST_LATE = 500
"""Samples that may be dropped in a row."""


class Clock:
    """The clock of rank 0, as this rank estimates it. All ranks make it, and call its methods, together.

    :param read: this rank's own clock, in seconds
    """

    def __init__(self, ranks: Ranks, read: Callable[[], float] = time.perf_counter) -> None:
        self.ranks, self.read = ranks, read
        self.offset, self.error = self._measured()
        self.lead, self.late, self._in_a_row = LEAD, 0, 0

    def _measured(self) -> tuple[float, float]:
        """Return how far this clock is ahead of rank 0's, and half of the fastest round trip."""
        found = (0.0, 0.0)
        for peer in range(1, self.ranks.size):
            if self.ranks.rank == 0:
                for _ in range(EXCHANGES):
                    self.ranks.receive(peer)
                    self.ranks.send(self.read(), peer)
            elif self.ranks.rank == peer:
                found = min((self._exchange() for _ in range(EXCHANGES)), key=lambda estimate: estimate[1])
        return found

    def _exchange(self) -> tuple[float, float]:
        """Make a round trip to rank 0; return the offset, and half of the time of the trip."""
        sent = self.read()
        self.ranks.send(sent, 0)
        remote = self.ranks.receive(0)
        half = (self.read() - sent) / 2
        return sent + half - remote, half

    def now(self) -> float:
        """Return the time of rank 0's clock."""
        return self.read() - self.offset

    def start(self) -> tuple[float, bool]:
        """Wait for the agreed start time.

        :returns: that time, and whether this rank is late for it
        """
        moment = float(self.ranks.slowest(np.array([self.now() + self.lead]))[0])
        late = self.now() > moment
        while (left := moment - self.now()) > 0:
            if left > AWAKE:
                time.sleep(left - AWAKE)
            os.sched_yield()
        return moment, late

    def ended(self, moment: float, late: bool) -> float | None:
        """Return the time since the start on the rank that ended last; None if a rank was late for the start.

        :raises ResultsError: on all ranks: they are late too often
        """
        last, missed = self.ranks.slowest(np.array([self.now() - moment, float(late)]))
        if not missed:
            self._in_a_row = 0
            return float(last)
        self.late, self._in_a_row = self.late + 1, self._in_a_row + 1
        self.lead = min(2 * self.lead, MOST_LEAD)
        if self._in_a_row > MOST_LATE:
            raise ResultsError(
                f"--synchronise clocks: a rank came late for {MOST_LATE} starts that were agreed "
                f"{self.lead * 1e3:g} ms before: the machine is too loaded for it; use --synchronise barrier"
            )
        return None

    def facts(self) -> Facts:
        """Return the quality of the clock: errors of the offsets, their change since the beginning, dropped samples."""
        offset, error = self._measured()
        worst = self.ranks.slowest(np.array([max(self.error, error), abs(offset - self.offset)]))
        return {"clock error": float(worst[0]), "clock drift": float(worst[1]), "late starts": self.late}
