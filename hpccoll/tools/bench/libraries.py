# SPDX-License-Identifier: Apache-2.0
"""hpccoll and its peers behind one interface: a call that runs one collective. Only chosen libraries are imported."""

import contextlib
import os
import platform
import socket
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

import hpccoll
from hpccoll.tools.bench.collectives import Task
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import ResultsError

Call = Callable[[], object]
Start = Callable[[str, Any], Call]
"""Begins to replace an array of this name by its sum over the ranks; returns a function that waits for it."""


class UnsupportedHereError(Exception):
    """The library does not have this collective for this dtype; the text says so."""


class Library(Protocol):
    """A library that is measured."""

    name: str
    arm: str
    version: str
    net: str

    def call(self, task: Task) -> Call:
        """Make a function that runs the collective of this task once, and returns when this rank's part is done.

        :raises UnsupportedHereError: the library does not have it
        """

    def start(self) -> Start | None:
        """Return the function that starts a sum in place; None if the library has none."""

    def close(self) -> None:
        """End the use of the library on all ranks."""


UNNAMED, NAMED, PLAN = "unnamed", "named", "plan"
"""How an operation of hpccoll is called: its ranks meet in the order of their calls, by a name, or in a plan."""


class Hpccoll:
    """A World with the knobs of one arm, and one way to call its operations.

    :param world: another contestant's World with the same knobs, which closes it
    """

    name = "hpccoll"

    def __init__(
        self,
        arm: str = "",
        knobs: Mapping[str, Any] | None = None,
        style: str = UNNAMED,
        world: hpccoll.World | None = None,
    ) -> None:
        self.variant, self.style, self.version = arm, style, hpccoll.__version__
        self.arm = " ".join(filter(None, (arm, "" if style == UNNAMED else style)))
        self.owner, self.world = world is None, world or hpccoll.World(**{"verbose": 0, **(knobs or {})})
        self.net = str(self.world.base.settings.net)

    def call(self, task: Task) -> Call:
        """See Library.call."""
        what = task.collective.name
        if what == "sendrecv":
            return self._sendrecv(task)
        given, options = self._arguments(task)
        if self.style == PLAN:
            plan: Call = getattr(self.world, f"{what}_init")(*given, **options)
            return plan
        if self.style == NAMED:
            options["name"] = f"bench.{what}.{task.x.dtype.name}.{task.nbytes}.{task.in_place}"
        return partial(getattr(self.world, what), *given, **options)

    def _arguments(self, task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
        what, mine = task.collective.name, task.rank == 0
        if what == "barrier":
            return (), {}
        x = None if what == "scatter" and not mine else task.x
        return (x,), {"out": task.out if mine or what not in ("reduce", "gather") else None}

    def _sendrecv(self, task: Task) -> Call:
        world, to, source = self.world, (task.rank + 1) % task.ranks, (task.rank - 1) % task.ranks
        if self.style == NAMED:
            raise UnsupportedHereError("messages have no names")
        if self.style == PLAN:
            plans = [world.send_init(task.x, to), world.recv_init(task.out, source)]

            def start() -> None:
                hpccoll.start_all(plans)
                hpccoll.wait_all(plans)

            return start

        def call() -> None:
            sent = world.send_async(task.x, to)
            world.recv(task.out, source)
            sent.wait()

        return call

    def start(self) -> Start | None:
        """See Library.start."""
        world = self.world
        return lambda name, x: world.allreduce_async(x, name=name, out=x).wait

    def close(self) -> None:
        """See Library.close."""
        if self.owner:
            self.world.shutdown()


class Mpi:
    """Plain mpi4py on the MPI of this job, as a careful user would write it."""

    arm, net = "", "mpi"

    def __init__(self, asked: str) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD.Dup()
        vendor, version = MPI.get_vendor()
        self.name = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}.get(vendor, vendor.lower().replace(" ", ""))
        self.version = ".".join(map(str, version))
        if asked not in ("mpi4py", self.name):
            raise ResultsError(
                f"--against {asked}: this job runs on {self.name} {self.version}; name the virtual environment that "
                f"has mpi4py on {asked}: --against {asked}=path/to/venv"
            )

    def call(self, task: Task) -> Call:
        """See Library.call."""
        comm, x, out, size = self.comm, task.x, task.out, task.ranks
        source = self.mpi.IN_PLACE if task.in_place else x
        if x.dtype.itemsize == 2 and task.collective.reduces:
            raise UnsupportedHereError("MPI has no 16-bit float")
        kind = self.mpi.BYTE if x.dtype.itemsize == 2 else None
        send, receive = ([x, kind], [out, kind]) if kind else (x, out)
        calls: dict[str, Call] = {
            "allreduce": lambda: comm.Allreduce(source, out),
            "allgather": lambda: comm.Allgather(send, receive),
            "reducescatter": lambda: comm.Reduce_scatter_block(x, out),
            "broadcast": lambda: comm.Bcast(send),
            "alltoall": lambda: comm.Alltoall(send, receive),
            "reduce": lambda: comm.Reduce(source if task.rank == 0 else x, out),
            "gather": lambda: comm.Gather(send, receive),
            "scatter": lambda: comm.Scatter(send, receive),
            "scan": lambda: comm.Scan(source, out),
            "exscan": lambda: comm.Exscan(source, out),
            "barrier": comm.Barrier,
            "sendrecv": lambda: comm.Sendrecv(
                send, (task.rank + 1) % size, recvbuf=receive, source=(task.rank - 1) % size
            ),
        }
        return calls[task.collective.name]

    def start(self) -> Start | None:
        """See Library.start."""
        return lambda _, x: self.comm.Iallreduce(self.mpi.IN_PLACE, x).Wait

    def close(self) -> None:
        """See Library.close."""
        self.comm.Free()


class Torch:
    """torch.distributed on Gloo, with one thread per rank as torchrun sets it."""

    arm, net = "", "tcp"

    def __init__(self, ranks: Ranks) -> None:
        torch, dist = (import_module(name) for name in ("torch", "torch.distributed"))
        torch.set_num_threads(1)
        hosts = set(ranks.share(platform.node()))
        here = "127.0.0.1" if len(hosts) == 1 else socket.gethostbyname(platform.node())
        store = dist.TCPStore(here, 0, is_master=True, wait_for_workers=False) if ranks.rank == 0 else None
        place = ranks.share((here, store.port) if store else None)[0]
        store = store or dist.TCPStore(*place, is_master=False)
        dist.init_process_group("gloo", store=store, rank=ranks.rank, world_size=ranks.size)
        self.torch, self.dist, self.name, self.version = torch, dist, "gloo", str(torch.__version__)

    def tensor(self, x: Any) -> Any:
        """Give PyTorch's view of an array."""
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(x)

    def call(self, task: Task) -> Call:
        """See Library.call."""
        dist, x, out = self.dist, self.tensor(task.x), self.tensor(task.out)
        mine, size = task.rank == 0, task.ranks

        def reduced() -> Any:  # PyTorch reduces in place only
            return x if task.in_place else out.copy_(x)

        calls: dict[str, Call] = {
            "allreduce": lambda: dist.all_reduce(reduced()),
            "allgather": lambda: dist.all_gather_into_tensor(out, x),
            "reducescatter": lambda: dist.reduce_scatter_tensor(out, x),
            "broadcast": lambda: dist.broadcast(x, 0),
            "alltoall": lambda: dist.all_to_all_single(out, x),
            "reduce": lambda: dist.reduce(reduced(), 0),
            "gather": lambda: dist.gather(x, list(out.chunk(size)) if mine else None, 0),
            "scatter": lambda: dist.scatter(out, list(x.chunk(size)) if mine else None, 0),
            "barrier": dist.barrier,
            "sendrecv": lambda: self._sendrecv(task, x, out),
        }
        if task.collective.name not in calls:
            raise UnsupportedHereError(f"torch.distributed has no {task.collective.name}")
        return calls[task.collective.name]

    def _sendrecv(self, task: Task, x: Any, out: Any) -> None:
        sent = self.dist.isend(x, (task.rank + 1) % task.ranks)
        self.dist.recv(out, (task.rank - 1) % task.ranks)
        sent.wait()

    def start(self) -> Start | None:
        """See Library.start."""
        return lambda _, x: self.dist.all_reduce(self.tensor(x), async_op=True).wait

    def close(self) -> None:
        """See Library.close."""
        self.dist.destroy_process_group()


class Horovod:
    """Horovod with its defaults: cycles of 1 ms, fusion up to 128 MiB, the response cache, no autotuning."""

    arm, name, net = "", "horovod", "mpi"

    def __init__(self) -> None:
        horovod, hvd, torch = (import_module(name) for name in ("horovod", "horovod.torch", "torch"))
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # as horovodrun has it: `-bind-to none`
        torch.set_num_threads(1)
        hvd.init()
        self.hvd, self.torch, self.version = hvd, torch, horovod.__version__

    def call(self, task: Task) -> Call:
        """See Library.call."""
        if task.x.dtype.name == "bfloat16":
            raise UnsupportedHereError("Horovod has no bfloat16")
        hvd, x, out = self.hvd, self.torch.from_numpy(task.x), self.torch.from_numpy(task.out)
        name = f"bench.{task.collective.name}.{task.x.dtype.name}.{task.nbytes}"
        calls: dict[str, Call] = {
            "allreduce": (lambda: hvd.allreduce_(x, op=hvd.Sum, name=name))
            if task.in_place
            else (lambda: out.copy_(hvd.allreduce(x, op=hvd.Sum, name=name))),
            "allgather": lambda: out.copy_(hvd.allgather(x, name=name)),
            "reducescatter": lambda: out.copy_(hvd.reducescatter(x, op=hvd.Sum, name=name)),
            "broadcast": lambda: hvd.broadcast_(x, 0, name=name),
            "alltoall": lambda: out.copy_(hvd.alltoall(x, name=name)),
            "barrier": hvd.barrier,
        }
        if task.collective.name not in calls:
            raise UnsupportedHereError(f"Horovod has no {task.collective.name}")
        return calls[task.collective.name]

    def start(self) -> Start | None:
        """See Library.start."""
        hvd = self.hvd

        def start(name: str, x: Any) -> Call:
            handle = hvd.allreduce_async_(self.torch.from_numpy(x), op=hvd.Sum, name=name)
            return lambda: hvd.synchronize(handle)

        return start

    def close(self) -> None:
        """See Library.close."""
        self.hvd.shutdown()


class TfDistribute:
    """TensorFlow's MultiWorkerMirroredStrategy on CPUs: one function sums all started arrays, in packs.

    It sums the gradients of a step when all of them are ready, as `apply_gradients` does.
    """

    arm, name, net = "", "tf.distribute", "grpc"

    def __init__(self, ranks: Ranks) -> None:
        with socket.socket() as place:
            place.bind(("", 0))
            hosts = set(ranks.share(platform.node()))
            here = "127.0.0.1" if len(hosts) == 1 else socket.gethostbyname(platform.node())
            workers = ranks.share(f"{here}:{place.getsockname()[1]}")
        tf: Any = import_module("tensorflow")
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=ranks.rank, rpc_layer="grpc"
        )
        self.tf, self.version = tf, str(tf.__version__)
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        self.sum = tf.function(lambda arrays: self.strategy.run(self._sum, args=arrays))
        self.started: list[Any] = []

    def _sum(self, *arrays: Any) -> Any:
        placed = [self.tf.identity(x) for x in arrays]  # a tensor without a device: "destinations can not be empty"
        return self.tf.distribute.get_replica_context().all_reduce("SUM", placed)

    def call(self, task: Task) -> Call:
        """See Library.call."""
        if task.collective.name != "allreduce":
            raise UnsupportedHereError(f"tf.distribute has no {task.collective.name} of its own")
        return lambda: self._sum_into([task.x], [task.out])

    def start(self) -> Start | None:
        """See Library.start."""

        def start(_: str, x: Any) -> Call:
            self.started.append(x)
            return self._finish

        return start

    def _finish(self) -> None:
        if self.started:
            self._sum_into(self.started, self.started)
            self.started.clear()

    def _sum_into(self, arrays: list[Any], results: list[Any]) -> None:
        sums = self.sum(tuple(self.tf.convert_to_tensor(x) for x in arrays))
        for out, total in zip(results, sums, strict=True):
            np.copyto(out, total.numpy())

    def close(self) -> None:
        """See Library.close: its server ends with the process."""


class Memcpy:
    """The floor of a collective inside a node: each rank copies the larger array that it gives or gets, at once."""

    arm, name, net = "", "memcpy", ""
    version = np.__version__

    def call(self, task: Task) -> Call:
        """See Library.call."""
        moved = task.moved()
        return partial(np.copyto, np.zeros_like(moved), moved)

    def start(self) -> Start | None:
        """See Library.start."""
        return None

    def close(self) -> None:
        """See Library.close: nothing is open."""


PEERS = ("mpi4py", "openmpi", "mpich", "intelmpi", "gloo", "horovod", "tf.distribute", "memcpy")
NOT_HERE = {
    "nccl": "NCCL needs a GPU per rank and arrays in its memory, which hpccoll bench does not measure: benchmarks/gpu",
}


def open_peer(name: str, ranks: Ranks) -> Library:
    """Start a peer on all ranks.

    :raises ResultsError: it is not installed
    """
    try:
        match name:
            case "gloo":
                return Torch(ranks)
            case "horovod":
                return Horovod()
            case "tf.distribute":
                return TfDistribute(ranks)
            case "memcpy":
                return Memcpy()
            case _:
                return Mpi(name)
    except ImportError as error:
        raise ResultsError(
            f"--against {name}: {error}; install it here, or name the virtual environment that has it: "
            f"--against {name}=path/to/venv"
        ) from None


def close_all(libraries: list[Library]) -> None:
    """End all libraries, the last one first."""
    with contextlib.ExitStack() as stack:
        for library in libraries:
            stack.callback(library.close)
