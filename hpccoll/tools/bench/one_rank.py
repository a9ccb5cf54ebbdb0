# SPDX-License-Identifier: Apache-2.0
"""One rank of a very large job in this process; all other ranks are virtual. `startup` starts it.

This rank is real, from the rendezvous over MPI to the loop and its process set. The messages of the other ranks are
generated; the time and memory for that are not counted, nor are MPI's cost and the time in which a rank waits.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import resource
import secrets
import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import mpi4py
import numpy as np
from numpy.typing import NDArray

from hpccoll import _core, bootstrap, compared, config
from hpccoll.compared import Compared
from hpccoll.net.threads import ThreadNet
from hpccoll.rendezvous import MpiRendezvous, codec
from hpccoll.worlds import from_parts

PER_NODE = 6
OFFER = np.dtype([("key", np.int64), ("color", np.int64), ("", "V28"), ("colored", np.uint8), ("", "V19")])
"""What a rank says when sets are made (ext/world/set_agreement.c)."""
FIRST_PID = 1_000_000


def host(rank: int) -> str:
    """The name of the host of a rank."""
    return f"node{rank // PER_NODE:06d}"


class Meter:
    """CPU time and memory of the library, without those of the virtual ranks."""

    def __init__(self, traced: bool) -> None:
        self.traced = traced
        self.received = self.peak = 0
        self.seconds = self._began = 0.0
        self._outside = 0

    def __enter__(self) -> Self:
        """Leave out the time and memory of the virtual ranks from now on."""
        self._began = time.process_time()
        if self.traced:
            self._note_peak()
        return self

    def __exit__(self, *_: object) -> None:
        if self.traced:
            tracemalloc.reset_peak()
        self.seconds += time.process_time() - self._began

    def _note_peak(self) -> None:
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1] - self._outside)

    def measure(self, step: Callable[[], Any]) -> dict[str, float]:
        """Measure a step.

        :returns: CPU seconds, bytes received, and the peak of Python's memory
        """
        self.seconds, self.received, self.peak, self._outside = 0.0, 0, 0, 0
        if self.traced:
            tracemalloc.start()
        began = time.process_time()
        step()
        cpu = time.process_time() - began - self.seconds
        if self.traced:
            self._note_peak()
            tracemalloc.stop()
        return {"cpu": cpu, "received": self.received, "peak": self.peak}

    def keep(self, nbytes: int) -> None:
        """Leave out these bytes, which the virtual ranks hold while the library works."""
        self._outside = nbytes


class Wire:
    """Replaces the communicator: each call fills its result with prepared values."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.prepared: collections.deque[Any] = collections.deque()

    def _fill(self, target: Any) -> None:
        with self.meter:
            made = self.prepared.popleft()
            view = memoryview(target).cast("B")
            view[:] = memoryview(made).cast("B")
            self.meter.received += len(view)
            self.meter.keep(sum(memoryview(value).nbytes for value in self.prepared))

    def Iallgather(self, _: Any, out: Any) -> None:  # noqa: N802 - mpi4py's names
        """Fill in every rank's value."""
        self._fill(out)

    def Iallgatherv(self, _: Any, target: Any) -> None:  # noqa: N802
        """Fill in the values of the ranks that have some."""
        self._fill(target[0])

    def Iallreduce(self, _: Any, out: Any, __: Any) -> None:  # noqa: N802
        """Fill in the minima."""
        self._fill(out)


class Calls:
    """Replaces the wait: all ranks have arrived."""

    def wait(self, *_: Any) -> None:
        """Return at once."""


def value_of(rank: int, nonce: str, value: Any, data: bytes, other: int) -> bytes:
    """Return the value of the virtual rank `other`, if this rank's is `value`, encoded as `data`."""
    if isinstance(value, dict) and "leads" in value:
        leads = {"nonce": nonce, "proofs": [[], ""]} if other == 0 else {}
        data = codec.encode(value | {"leads": leads})
    if isinstance(value, dict) and "cpus" in value:
        return codec.encode(value | {"cpus": f"{other % PER_NODE * 7}-{other % PER_NODE * 7 + 6}", "online": "0-41"})
    return data.replace(host(rank).encode(), host(other).encode()).replace(
        str(FIRST_PID + rank).encode(), str(FIRST_PID + other).encode()
    )


class VirtualRanks(MpiRendezvous):
    """A rendezvous over MPI whose other ranks are virtual."""

    def __init__(self, rank: int, size: int, meter: Meter, nonce: str) -> None:
        self.rank, self.size, self.meter, self.nonce = rank, size, meter, nonce
        self.wire = Wire(meter)
        self.comm, self.calls = cast("Any", self.wire), cast("Any", Calls())

    def machine(self) -> str:
        """See Rendezvous."""
        return f"{host(self.rank)} (boot 01234567-89ab-cdef-0123-456789abcdef, /dev/shm 1a)"

    def allgather(self, value: Any) -> Any:
        """See Rendezvous; every virtual rank has a value."""
        with self.meter:
            data = codec.encode(value)
            parts = [value_of(self.rank, self.nonce, value, data, other) for other in range(self.size)]
            sizes = np.array([len(part) for part in parts])
            self.wire.prepared.extend([sizes, b"".join(parts)])
            self.meter.keep(self.size * 8 + int(sizes.sum()))
        return super().allgather(value)

    def compare(self, value: Any) -> Compared[Any]:
        """See Rendezvous; facts of hosts and processors differ between nodes."""
        with self.meter:
            data = codec.encode(value)
            differs = host(self.rank).encode() in data or (isinstance(value, dict) and "cpus" in value)
            alike = compared.extremes(compared.digest(data))
            self.wire.prepared.append(np.array([0, 0, -1, -2]) if differs else alike)
            if differs:
                self._prepare(value, data)
        return super().compare(value)

    def _prepare(self, value: Any, data: bytes) -> None:
        known: dict[bytes, int] = {}
        rows = np.empty((self.size, 2), np.int64)
        for other in range(self.size):
            value_there = value_of(self.rank, self.nonce, value, data, other)
            if value_there not in known:
                known[value_there] = int(compared.digest(value_there)[0])
            rows[other] = known[value_there], len(value_there)
        self.wire.prepared.extend([rows, b"".join(known)])

    def numbers(self, values: Any) -> NDArray[Any]:
        """See Rendezvous."""
        if list(values) == [FIRST_PID + self.rank]:
            with self.meter:
                self.wire.prepared.append(FIRST_PID + np.arange(self.size))
        return super().numbers(values)


class Core:
    """The process set of all ranks, over which the virtual ones answer at once."""

    def __init__(self, real: Any, meter: Meter) -> None:
        self.real, self.meter = real, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def collective(self, operation: str, data: Any, name: str, *_: Any, **__: Any) -> Answer:
        """Answer for all ranks."""
        with self.meter:
            answer = Answer(operation, np.array(data), name, self.real.size)
            self.meter.received += answer.data.nbytes if operation == "allgather" else 0
            self.meter.keep(0)
        return answer


class Answer:
    """The handle of such an operation."""

    def __init__(self, operation: str, data: NDArray[Any], name: str, size: int) -> None:
        self.counts, self.data = np.full(size, len(data)), data
        if operation != "allgather":
            return
        self.data = np.tile(data, size)
        if name == "hpccoll.split":
            self.data.view(OFFER)["color"] = np.arange(size) % PER_NODE
        elif name == "hpccoll.subset":
            offers = self.data.view(OFFER)
            offers["key"], offers["colored"] = np.divmod(np.arange(size), PER_NODE)
            offers["colored"] = offers["colored"] == 0

    def wait(self, *_: Any) -> NDArray[Any]:
        """Give the result."""
        return self.data

    def rows(self) -> NDArray[Any]:
        """Give the rows of each rank in the result."""
        return self.counts


class Given(ThreadNet):
    """A net to which all ranks are connected, made beforehand."""

    def __init__(self, nets: list[Any]) -> None:
        super().__init__()
        self.nets = nets

    def lacks(self, _: Any) -> str:
        """See NetProvider."""
        return ""

    def make(self, rendezvous: Any, **_: Any) -> object:
        """See NetProvider."""
        made: object = self.nets[rendezvous.rank]
        return made


def run(rank: int, size: int, traced: bool) -> dict[str, Any]:
    """Measure `init`, and on the first rank of a node `subset` and `split`, in this process."""
    nonce, pid = secrets.token_hex(8), FIRST_PID + rank
    platform.node = lambda: host(rank)
    socket.gethostname = lambda: host(rank)
    os.getpid = lambda: pid
    secrets.token_hex = lambda _=None: nonce  # type: ignore[assignment]
    mpi4py.rc.initialize = False
    from mpi4py import MPI  # noqa: F401

    meter = Meter(traced)
    nets, first = _core.local_nets(size), rank // PER_NODE * PER_NODE
    held = _segments_of_the_first(rank, first, nonce)
    resident, costs, made = _resident(), dict[str, Any](), list[Any]()
    settings = config.read(verbose=0, net="auto", trace_dir="none")
    virtual = VirtualRanks(rank, size, meter, nonce)
    costs["init"] = meter.measure(lambda: made.extend(bootstrap.make(virtual, settings, provider=Given(nets))))
    for step in costs.values():
        step["resident"] = _resident() - resident
    real: Any = Core(made[1], meter)
    world = from_parts(made[0], real)
    if rank == first:  # the other ranks of the node would attach
        costs["subset"] = meter.measure(lambda: world.subset(range(0, size, PER_NODE)))
        costs["split"] = meter.measure(lambda: world.split(rank % PER_NODE))
    del held
    return costs


def _segments_of_the_first(rank: int, first: int, nonce: str) -> list[_core.Segment]:
    """Create the segments that the first rank of the node would have created before this rank starts."""
    names = {f"node-{rank // PER_NODE}": _core.node_control_bytes(PER_NODE), f"0-{first}": _core.node_bytes(PER_NODE)}
    return [_core.Segment.create(f"/hpccoll-{nonce}-{name}", n) for name, n in names.items() if rank != first]


def _resident() -> int:
    """Bytes of memory of this process alone."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--traced", action="store_true", help="trace Python's memory, which takes time")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    print(json.dumps(run(arguments.rank, arguments.ranks, arguments.traced)), flush=True)
    os._exit(0)  # the World cannot shut down: the other ranks do not answer


if __name__ == "__main__":
    main()
