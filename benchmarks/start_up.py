# SPDX-License-Identifier: Apache-2.0
"""What do init(), subset() and split() cost one rank of a very large job?

    python benchmarks/start_up.py [--before FOLDER] [--sizes 6,1536,27648,200000] [--repeat 5] [--out FILE]

One process is one rank; all others are virtual. What this rank does is real, from the rendezvous over MPI to the loop
and its process set; what the others send is made up beside it, and neither its time nor its memory is counted. What MPI
itself costs is not in the figures, nor is the time for which a rank waits. `--before` is the folder of another revision
that is built; the two are measured in turn.
"""

import argparse
import collections
import contextlib
import json
import os
import platform
import resource
import secrets
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

PER_NODE = 6
PLACES = {"rank 0": 0, "a node's first rank": PER_NODE, "another rank": PER_NODE + 1}
FIRST_PID = 1_000_000
STEPS = ("init", "subset", "split")


def host(rank: int) -> str:
    return f"node{rank // PER_NODE:06d}"


# ---- one rank, with all others virtual --------------------------------------------------------------------


class Meter:
    """CPU time and memory of the library, without those of the virtual ranks."""

    def __init__(self, traced: bool) -> None:
        self.traced = traced
        self.made_up = self.received = self.peak = 0
        self.seconds = 0.0
        self._outside = 0

    def __enter__(self) -> Self:
        """The virtual ranks begin to work."""
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

    def measure(self, step: Any) -> dict[str, float]:
        """CPU seconds, bytes received, and the peak of Python's memory during a step."""
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
        """The virtual ranks hold these bytes while the library goes on."""
        self._outside = nbytes


class Wire:
    """Stands for the communicator: each call fills its result with what was prepared for it."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.prepared: collections.deque[Any] = collections.deque()

    def _fill(self, target: Any) -> None:
        with self.meter:
            made = self.prepared.popleft()
            view = memoryview(target).cast("B")
            view[:] = memoryview(made).cast("B")
            self.meter.received += len(view)
            self.meter.keep(sum(memoryview(one).nbytes for one in self.prepared))

    def Iallgather(self, _: Any, out: Any) -> None:
        self._fill(out)

    def Iallgatherv(self, _: Any, target: Any) -> None:
        self._fill(target[0])

    def Iallreduce(self, _: Any, out: Any, __: Any) -> None:
        self._fill(out)


class Calls:
    """Stands for the wait: everybody has come."""

    def wait(self, *_: Any) -> None:
        pass


def said_by(rank: int, nonce: str, value: Any, data: bytes, other: int) -> bytes:
    """What the virtual rank `other` says where this rank says `value`, encoded as `data`."""
    from hpccoll.rendezvous import codec

    if isinstance(value, dict) and "leads" in value:
        leads = {"nonce": nonce, "proofs": [[], ""]} if other == 0 else {}
        data = codec.encode(value | {"leads": leads})
    if isinstance(value, dict) and "cpus" in value:
        return codec.encode(value | {"cpus": f"{other % PER_NODE * 7}-{other % PER_NODE * 7 + 6}", "online": "0-41"})
    return data.replace(host(rank).encode(), host(other).encode()).replace(
        str(FIRST_PID + rank).encode(), str(FIRST_PID + other).encode()
    )


def virtual_ranks(rank: int, size: int, meter: Meter, nonce: str) -> Any:
    """A rendezvous over MPI whose other ranks are virtual."""
    from hpccoll.rendezvous import MpiRendezvous, codec

    with contextlib.suppress(ImportError):  # an earlier revision
        from hpccoll import compared

    class VirtualRanks(MpiRendezvous):
        def __init__(self) -> None:
            self.rank, self.size = rank, size
            self.comm, self.calls = Wire(meter), Calls()

        def machine(self) -> str:
            return f"{host(rank)} (boot 01234567-89ab-cdef-0123-456789abcdef, /dev/shm 1a)"

        def allgather(self, value: Any) -> Any:
            with meter:
                data = codec.encode(value)
                parts = [said_by(rank, nonce, value, data, other) for other in range(size)]
                sizes = np.array([len(part) for part in parts])
                self.comm.prepared.extend([sizes, b"".join(parts)])
                meter.keep(size * 8 + int(sizes.sum()))
            return super().allgather(value)

        def compare(self, value: Any) -> Any:
            with meter:
                data = codec.encode(value)
                first = compared.digest(data)
                differs = host(rank).encode() in data or (isinstance(value, dict) and "cpus" in value)
                self.comm.prepared.append(compared.extremes(first) if not differs
                                          else np.array([0, 0, -1, -2]))  # fmt: skip
                if differs:
                    self._prepare(value, data, compared)
            return super().compare(value)

        def _prepare(self, value: Any, data: bytes, compared: Any) -> None:
            known: dict[bytes, int] = {}
            rows = np.empty((size, 2), np.int64)
            joined = b""
            for other in range(size):
                said = said_by(rank, nonce, value, data, other)
                if said not in known:
                    known[said] = int(compared.digest(said)[0])
                    joined += said
                rows[other] = known[said], len(said)
            self.comm.prepared.extend([rows, joined])

        def numbers(self, values: Any) -> Any:
            if list(values) == [FIRST_PID + rank]:
                with meter:
                    self.comm.prepared.append(FIRST_PID + np.arange(size))
            return super().numbers(values)

    return VirtualRanks()


class Core:
    """The process set of all ranks, over which the virtual ones answer at once."""

    def __init__(self, real: Any, meter: Meter) -> None:
        self.real, self.meter = real, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def collective(self, operation: str, data: Any, name: str, *_: Any, **__: Any) -> "Answer":
        with self.meter:
            answer = Answer(operation, np.array(data), name, self.real.size)
            self.meter.received += answer.data.nbytes if operation == "allgather" else 0
            self.meter.keep(0)
        return answer


class Answer:
    """The handle of such an operation."""

    def __init__(self, operation: str, data: np.ndarray, name: str, size: int) -> None:
        import pickle

        self.counts = np.full(size, len(data))
        if operation != "allgather":
            self.data = data
        elif "split" in name and data.dtype == np.int64:
            self.data = np.repeat(data, size, 0)
            self.data[:, 2] = np.arange(size) % PER_NODE
        elif "split" in name:
            parts = [pickle.dumps([0, rank % PER_NODE]) for rank in range(size)]
            self.counts = np.array([len(part) for part in parts])
            self.data = np.frombuffer(b"".join(parts), np.uint8)
        else:
            self.data = np.tile(data, size)

    def wait(self, *_: Any) -> np.ndarray:
        return self.data

    def rows(self) -> np.ndarray:
        return self.counts


def provider(nets: list[Any]) -> Any:
    """A net to which all ranks are connected, made beforehand."""
    from hpccoll.net.threads import ThreadNet

    class Given(ThreadNet):
        def lacks(self, _: Any) -> str:
            return ""

        def make(self, rendezvous: Any, **_: Any) -> object:
            return nets[rendezvous.rank]

    return Given()


def run(rank: int, size: int, traced: bool) -> dict[str, Any]:
    """Measure one rank in this process."""
    nonce = secrets.token_hex(8)
    platform.node = socket.gethostname = lambda: host(rank)  # type: ignore[assignment]
    os.getpid = lambda: FIRST_PID + rank  # type: ignore[assignment]
    secrets.token_hex = lambda _=None: nonce  # type: ignore[assignment]
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI  # noqa: F401

    import hpccoll  # noqa: F401
    from hpccoll import _core, bootstrap, config
    from hpccoll.world import from_parts

    meter = Meter(traced)
    nets = _core.local_nets(size)
    first = rank // PER_NODE * PER_NODE
    held = [
        _core.Segment.create(f"/hpccoll-{nonce}-{name}", nbytes)
        for name, nbytes in (
            (f"node-{rank // PER_NODE}", _core.node_control_bytes(PER_NODE)),
            (f"0-{first}", _core.node_bytes(PER_NODE)),
        )
        if rank != first
    ]
    resident, costs, made = _resident(), {}, []
    virtual, settings = virtual_ranks(rank, size, meter, nonce), config.read(verbose=0, net="auto", trace_dir="none")
    costs["init"] = meter.measure(lambda: made.extend(bootstrap.make(virtual, settings, provider(nets))))
    costs["init"]["resident"] = _resident() - resident
    base, core = made
    world = from_parts(base, Core(core, meter))
    if rank == first:  # the others of the node would attach
        costs["subset"] = meter.measure(lambda: world.subset(range(0, size, PER_NODE)))
        costs["split"] = meter.measure(lambda: world.split(rank % PER_NODE))
    print(json.dumps({"rank": rank, "ranks": size, "steps": costs}), flush=True)
    for segment in held:
        del segment
    os._exit(0)


def _resident() -> int:
    """Bytes of memory of this process alone."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


# ---- all cases --------------------------------------------------------------------------------------------


def one(tree: Path, rank: int, size: int, traced: bool) -> dict[str, Any]:
    """Run a rank of one revision in a process of its own."""
    command = [sys.executable, "-P", __file__, "--rank", str(rank), "--ranks", str(size), *(["--traced"] * traced)]
    variables = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"rank {rank} of {size}, {tree}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(trees: dict[str, Path], sizes: list[int], repeat: int) -> list[dict[str, Any]]:
    """Measure all revisions in turn: medians of the CPU time; bytes, which are the same in each run."""
    found = []
    for size in sizes:
        for place, rank in ((place, rank) for place, rank in PLACES.items() if rank < size):
            runs: dict[str, list[Any]] = {name: [] for name in trees}
            for _ in range(repeat):
                for name, tree in trees.items():
                    runs[name].append(one(tree, rank, size, False)["steps"])
            for name, tree in trees.items():
                peaks = one(tree, rank, size, True)["steps"]
                for step in (step for step in STEPS if step in peaks):
                    found.append(
                        {
                            "revision": name, "ranks": size, "place": place, "step": step, "repeat": repeat,
                            "cpu_ms": 1e3 * median(run[step]["cpu"] for run in runs[name]),
                            "received": runs[name][0][step]["received"],
                            "peak": peaks[step]["peak"],
                            "resident": median(run[step].get("resident", 0) for run in runs[name]),
                        }
                    )  # fmt: skip
                    print(found[-1], file=sys.stderr, flush=True)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| ranks | step | which rank | revision | CPU, ms | received, MB | peak of Python's memory, MB |"]
    lines += ["|---" * 7 + "|"]
    for row in rows:
        lines.append(
            f"| {row['ranks']:,} | {row['step']} | {row['place']} | {row['revision']} | {row['cpu_ms']:.1f} "
            f"| {row['received'] / 1e6:.2f} | {row['peak'] / 1e6:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder of another revision, which is built")
    parser.add_argument("--sizes", default="6,1536,27648,200000")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file for all rows, as JSON Lines")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ranks:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        run(arguments.rank, arguments.ranks, arguments.traced)
    trees = {"before": arguments.before} if arguments.before else {}
    trees["now"] = Path(__file__).resolve().parents[1]
    rows = measured(trees, [int(size) for size in arguments.sizes.split(",")], arguments.repeat)
    print(table(rows))
    if arguments.out:
        import results

        results.write(arguments.out, results.facts("start_up"), rows)


if __name__ == "__main__":
    main()
