# SPDX-License-Identifier: Apache-2.0
"""Conjugate gradients, messages and halos of a simulation: hpccoll and the MPI that mpi4py was built on, in turn.

    hpccoll run -np 2 python benchmarks/simulation.py

Both libraries run in the same processes, work on the same arrays and take turns, so that the placement of pages, the
cores and the load of the machine are the same for both. Each ratio is computed within a round. Each rank stays on one
core if there are enough cores. If the interval of a ratio contains 1.0, the run has not shown a difference.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: threads of a BLAS would move the ranks

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cg
import in_turn
import numpy as np
from harness import size_label
from in_turn import COMM, Bar, Contestant
from mpi4py import MPI

import hpccoll

VENDOR = MPI.get_vendor()[0]
BYTES = [64, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
PARTS = ("cg", "messages", "halos")
Call = Callable[[], object]
TURN = 0.02  # seconds of a turn, roughly


def stay_on_a_core() -> None:
    """Bind this rank to one of the cores that it may use, and each rank of the machine to another one.

    Hosts that are namespaces share their machine's cores; MPI cannot see it, but they have one kernel.
    """
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text()
    seen = COMM.allgather((kernel, os.sched_getaffinity(0)))
    here = [rank for rank, (other, _) in enumerate(seen) if other == kernel]
    allowed = sorted(set().union(*(seen[rank][1] for rank in here)))
    if len(here) <= len(allowed):
        os.sched_setaffinity(0, {allowed[here.index(COMM.rank)]})


def iterations(n: int) -> tuple[dict[str, Contestant], list[Bar]]:
    """Return 50 iterations by each library in each form, on the same strip."""
    strip = cg.Strip(n, COMM.rank, COMM.size)
    forms = {f"hpccoll, {form}": calls for form, calls in cg.of_hpccoll(hpccoll, strip).items()}
    forms |= {f"{VENDOR}, {form}": calls for form, calls in cg.of_mpi(strip).items()}
    contestants = {}
    for name, (halo, total) in forms.items():
        run = partial(strip.solve, halo, total)
        contestants[name] = Contestant(run, partial(cg.verify, n, run))
    return contestants, [Bar(f"hpccoll, {form}", f"{VENDOR}, {form}", 1.0) for form in ("persistent", "blocking")]


def shifts(nbytes: int) -> tuple[dict[str, Contestant], list[Bar]]:
    """Return exchanges in which every rank sends to the right and receives from the left."""
    given, taken = np.full(nbytes, COMM.rank, np.uint8), np.zeros(nbytes, np.uint8)
    right, left = (COMM.rank + 1) % COMM.size, (COMM.rank - 1) % COMM.size
    calls: dict[str, Call] = {
        "hpccoll": partial(hpccoll.sendrecv, given, right, taken, left),
        VENDOR: partial(COMM.Sendrecv, given, right, recvbuf=taken, source=left),
    }

    def verify(call: Call) -> None:
        taken[:] = 255
        call()
        assert (taken == left).all(), taken

    contestants = {name: Contestant(call, partial(verify, call)) for name, call in calls.items()}
    return contestants, [Bar("hpccoll", VENDOR, 1.5)]


def faces(n: int) -> tuple[dict[str, Contestant], list[Bar]]:
    """Return halo exchanges of a block of n^3 points; ranks divide the last dimension first, so faces are strided."""
    dims = hpccoll.dims_create(COMM.size, 3)[::-1]
    grid = hpccoll.world().cart(dims, periods=False)
    array = np.zeros((n + 2, n + 2, n + 2))
    by_hand = _Faces(array, [grid.shift(d) for d in range(3)])
    calls: dict[str, Call] = {
        "hpccoll, persistent": grid.halo_exchange_init(array),
        "hpccoll, blocking": partial(grid.halo_exchange, array),
        f"{VENDOR}, packed by NumPy": by_hand.exchange,
    }

    def verify(call: Call) -> None:
        array[:] = -1.0
        array[1:-1, 1:-1, 1:-1] = COMM.rank
        call()
        for face in by_hand.faces:
            assert face.source == MPI.PROC_NULL or (array[face.take][1:-1, 1:-1] == face.source).all(), face

    contestants = {name: Contestant(call, partial(verify, call)) for name, call in calls.items()}
    return contestants, [
        Bar(f"hpccoll, {form}", f"{VENDOR}, packed by NumPy", 1.0) for form in ("persistent", "blocking")
    ]


Place = tuple[slice | int, ...]


class _Face(NamedTuple):
    """The data sent to one neighbour, and the data received from the other."""

    to: int
    source: int
    give: Place
    take: Place
    given: np.ndarray
    taken: np.ndarray


def _mpi_rank(rank: int) -> int:
    return MPI.PROC_NULL if rank == hpccoll.PROC_NULL else rank


class _Faces:
    """A halo exchange as a careful user of mpi4py writes it: fixed buffers, copies by NumPy, a Sendrecv per side."""

    def __init__(self, array: np.ndarray, shifts: list[tuple[int, int]]) -> None:
        self.array, self.faces = array, []
        for d, (below, above) in enumerate(shifts):
            last = array.shape[d] - 1
            for to, give, source, take in ((below, 1, above, last), (above, last - 1, below, 0)):
                here, there = ((slice(None),) * d + (at,) for at in (give, take))
                given, taken = np.empty(array[here].shape), np.empty(array[there].shape)
                self.faces.append(_Face(_mpi_rank(to), _mpi_rank(source), here, there, given, taken))

    def exchange(self) -> None:
        for face in self.faces:
            if face.to != MPI.PROC_NULL:
                np.copyto(face.given, self.array[face.give])
            COMM.Sendrecv(face.given, face.to, recvbuf=face.taken, source=face.source)
            if face.source != MPI.PROC_NULL:
                np.copyto(self.array[face.take], face.taken)


def ask(title: str, asked: tuple[dict[str, Contestant], list[Bar]], rounds: int, records: list[Any]) -> None:
    """Time the contestants in turn, in turns of about TURN seconds."""
    contestants, bars = asked
    once = in_turn.measure(contestants, 3, 1)
    longest = max(min(times) for times in once.values())
    each = COMM.bcast(max(1, int(TURN / longest)))
    in_turn.report(title, in_turn.measure(contestants, rounds, each), bars, records)


def main() -> None:
    options = in_turn.arguments(__doc__ or "", 61, PARTS)
    tiny = options.size == "tiny"
    stay_on_a_core()
    hpccoll.init()
    records: list[Any] = []
    for n in ([32] if tiny else [128, 512]) if "cg" in options.only else []:
        ask(f"{cg.ITERATIONS} iterations of CG, {n} x {n}", iterations(n), options.rounds, records)
    for nbytes in ([64, 64 << 10] if tiny else BYTES) if "messages" in options.only and COMM.size > 1 else []:
        ask(f"sendrecv, {size_label(nbytes)}", shifts(nbytes), options.rounds, records)
    for n in ([8] if tiny else [32, 64, 128]) if "halos" in options.only and COMM.size > 1 else []:
        ask(f"halo of {n}^3 doubles", faces(n), options.rounds, records)
    in_turn.keep(f"simulation-{VENDOR.lower().replace(' ', '')}", options, records)
    hpccoll.shutdown()


if __name__ == "__main__":
    main()
