# SPDX-License-Identifier: Apache-2.0
"""torch's process group over a World: each collective of torch becomes one or a few requests of the library.

torch calls these methods, under the several names of its versions, from Python and, where its trampoline class allows
it, from C++ (DDP's reducer, functional collectives). docs/with-ddp.md lists what is not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from hpccoll import _core, errors
from hpccoll.collectives import Handle
from hpccoll.frontend.sequence_names import SequenceNames
from hpccoll.p2p import ANY_SOURCE
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.distributed.arguments import (
    Finish,
    Tensors,
    apart,
    check_one_each,
    copies_back,
    elements,
    fill,
    joined,
    moved,
    one,
    options,
    reduced,
    reduction,
)
from hpccoll.torch.distributed.futures import name_in_callback
from hpccoll.torch.distributed.monitored_barrier import wait_for_all
from hpccoll.torch.distributed.refused import NotBegunError, tells
from hpccoll.torch.distributed.sparse import SparseSum
from hpccoll.torch.distributed.work import Work, register_in_flight
from hpccoll.worlds import World

__all__ = ["ProcessGroup"]

NAMES = 64
"""Requests of a group in flight at most. Names repeat after this many, see SequenceNames."""

Submit = Callable[[_core.Set, bool, str], Handle]
"""Enqueues a request, given the process set, whether the caller goes on to wait, and a name."""

_Base: Any = dist.ProcessGroup


class ProcessGroup(_Base):  # type: ignore[misc]
    """The ranks of one World, as torch.distributed sees them."""

    def __init__(self, world: World, name: str, timeout: timedelta) -> None:
        """Serve torch with a World.

        :param world: used by this group only
        :param name: torch's name of the group
        :param timeout: the time limit of an operation
        """
        super().__init__(world.rank, world.size)
        self.world = world
        self._name, self._description = name, ""
        self._timeout = timeout.total_seconds()
        self._sequence_names = SequenceNames(NAMES)
        self._monitored = 0  # barriers
        self.splits = 0  # calls of split_group()

    # ---- identity ----------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name of the backend."""
        return "hpccoll"

    name = getBackendName

    def getGroupName(self) -> str:  # noqa: N802
        """Return the name that torch gave the group."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Name the group."""
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return torch's description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Describe the group."""
        self._description = description

    # The same for callers in Python, which do not call through C++.
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")][: 1 + torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f"backend hpccoll has nothing for {device}: it moves host memory and that of GPUs")
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of operations from now on."""
        self._timeout = timeout.total_seconds()

    # ---- the end -------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the group in order, with its other members."""
        self.world.shutdown()

    def abort(self) -> None:
        """End the group now."""
        self.world.shutdown(wait=False)

    # ---- submitting ----------------------------------------------------------------------------------

    def _begin(
        self,
        what: str,
        opts: Any,
        tensors: Tensors,
        submits: Sequence[Submit],
        finish: Finish | None = None,
    ) -> Work:
        """Submit the requests of one work, whose result is `tensors`.

        Calls match by their order in the group, so the name of a call is its number modulo NAMES.

        :param what: the operation, for errors
        :param finish: called with the requests' results when all are done
        """
        waits = not getattr(opts, "asyncOp", True)
        seconds = opts.timeout.total_seconds()
        handles = {}
        for at, submit in enumerate(submits):
            name = self._next_name()
            start = partial(submit, self.world.core, waits)
            try:
                handles[name] = self._sequence_names.begin(name, start, self._timeout)
            except errors.HpccollError as error:
                raise NotBegunError(error, name, len(submits) - at) from None
        limit = seconds if seconds > 0 else self._timeout
        text, path = f"{what} of process group {self._name}", f"{self._name} {next(iter(handles), '')}"
        settled = partial(self._sequence_names.settle, handles)
        report = partial(self._report_of, list(handles))
        work = Work(text, list(handles.values()), list(tensors), finish, limit, settled, path, report)
        register_in_flight(work, tensors)
        return work

    def _report_of(self, names: Sequence[str]) -> str:
        """Return the newest report of a wait if it is about one of these requests."""
        said = self.world.core.loop.last_report()
        return said if any(repr(name) in said for name in names) else ""

    def _next_name(self) -> str:
        return name_in_callback() or self._sequence_names.next("c10d")

    def tell_refusal(self, operation: str, requests: int, error: Exception, name: str = "") -> None:
        """Tell the other ranks that this rank refuses a call; see tells().

        :param operation: of the library
        :param requests: those of the call that were not begun
        :param name: of the first of them; "": the next one
        """
        for _ in range(requests):
            self.world.core.tell_refusal(operation, name or self._next_name(), error)
            name = ""

    # ---- reductions ----------------------------------------------------------------------------------

    @tells("allreduce")
    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce in place."""
        opts, tensor = options(opts, AllreduceOptions), one(tensors, "allreduce")
        return (
            self._sparse_allreduce(opts, tensor) if tensor.is_sparse else self._allreduce("allreduce", opts, [tensor])
        )

    def _sparse_allreduce(self, opts: Any, tensor: torch.Tensor) -> Work:
        total = SparseSum(tensor, opts.reduceOp, self.size())

        def submit(core: _core.Set, waits: bool, name: str) -> Handle:
            return core.collective("allgather", total.rows, name, None, waits, type_name=total.type_name)

        return self._begin("allreduce", opts, [tensor], [submit], total.finish)

    @tells("allreduce")
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduce several tensors in place, together."""
        return self._allreduce("allreduce_coalesced", options(opts, AllreduceOptions), tensors)

    def _allreduce(self, what: str, opts: Any, tensors: Tensors, finish: Finish | None = None) -> Work:
        op, factor = reduction(opts.reduceOp)
        targets = [ADAPTER.contiguous(t) for t in tensors]
        buffers = [reduced(t) for t in targets]
        x = buffers[0] if len(buffers) == 1 else buffers

        def submit(core: _core.Set, waits: bool, name: str) -> Handle:
            return core.collective("allreduce", x, name, x, waits, op, prescale=factor)

        return self._begin(what, opts, tensors, [submit], finish or copies_back(targets, tensors))

    @tells("reduce")
    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce in place on the root; the other ranks' tensors do not change."""
        opts = options(opts, ReduceOptions)
        tensor, root, (op, factor) = one(tensors, "reduce"), self._root(opts), reduction(opts.reduceOp)
        target = ADAPTER.contiguous(tensor)
        x = reduced(target)
        submits: list[Submit] = [
            lambda core, waits, name: core.collective("reduce", x, name, x, waits, op, root, prescale=factor)
        ]
        finish = copies_back([target], [tensor]) if root == self.rank() else None
        return self._begin("reduce", opts, [tensor], submits, finish)

    @tells("reducescatter")
    def reduce_scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Reduce a list of tensors, one per rank, and give each rank its own."""
        opts = options(opts, ReduceScatterOptions)
        output, (parts,) = one(outputs, "reduce_scatter"), inputs
        check_one_each(parts, self.size(), "reduce_scatter")
        flat = joined(parts, output)
        if all(p.numel() == output.numel() for p in parts):
            return self._reduce_scatter([output], [flat], opts)
        mine = torch.split_with_sizes(flat, [p.numel() for p in parts])[self.rank()].view(parts[self.rank()].shape)
        return self._allreduce("reduce_scatter", opts, [flat], copies_back([mine], [output]))

    @tells("reducescatter")
    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:  # noqa: A002
        """Reduce one tensor and give each rank its share."""
        return self._reduce_scatter([output], [input], options(opts, ReduceScatterOptions))

    reduce_scatter_single = _reduce_scatter_base

    @tells("reducescatter", coalesced=True)
    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Reduce several tensors and give each rank its shares."""
        return self._reduce_scatter(outputs, inputs, options(opts, ReduceScatterOptions))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        op, factor = reduction(opts.reduceOp)
        size, sources = self.size(), [ADAPTER.contiguous(i) for i in inputs]
        targets = [apart(o, i) for o, i in zip(outputs, sources, strict=True)]

        def begin(output: torch.Tensor, source: torch.Tensor) -> Submit:
            if source.numel() != size * output.numel() or source.dtype != output.dtype:
                raise ValueError(
                    f"reduce_scatter: the input has {source.numel()} elements of {source.dtype}, the output "
                    f"{output.numel()} of {output.dtype}: needs {size} times as many, of one dtype"
                )
            x, out = reduced(source, rows=size), reduced(output, rows=1)
            return lambda core, waits, name: core.collective("reducescatter", x, name, out, waits, op, prescale=factor)

        submits = [begin(o, i) for o, i in zip(targets, sources, strict=True)]
        return self._begin("reduce_scatter", opts, outputs, submits, copies_back(targets, outputs))

    # ---- movements -----------------------------------------------------------------------------------

    @tells("broadcast")
    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        """Give the root's tensor to all ranks."""
        opts = options(opts, BroadcastOptions)
        tensor, root = one(tensors, "broadcast"), self._root(opts)
        target = ADAPTER.contiguous(tensor)
        x = moved(target)
        submits: list[Submit] = [lambda core, waits, name: core.collective("broadcast", x, name, x, waits, root=root)]
        return self._begin("broadcast", opts, [tensor], submits, copies_back([target], [tensor]))

    @tells("allgather")
    def allgather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None) -> Work:
        """Give all ranks' tensors to all ranks, each in a separate tensor."""
        tensor, (parts,) = one(inputs, "allgather"), outputs
        check_one_each(parts, self.size(), "allgather")
        return self._allgather("allgather", [parts], [tensor], opts, each=True)

    @tells("allgather")
    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:  # noqa: A002
        """Give all ranks' tensors to all ranks, one after another in one tensor."""
        return self._allgather("allgather_into_tensor", [[output]], [input], opts, each=False)

    all_gather_single = _allgather_base

    @tells("allgather", coalesced=True)
    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Give several tensors of all ranks to all ranks, each into one tensor."""
        lists = [[output] for output in outputs]
        return self._allgather("allgather_into_tensor_coalesced", lists, inputs, opts, each=False)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @tells("allgather", coalesced=True)
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Give several tensors of all ranks to all ranks; `outputs` has one list per rank."""
        check_one_each(outputs, self.size(), "allgather_coalesced")
        lists = [[of_rank[at] for of_rank in outputs] for at in range(len(inputs))]
        return self._allgather("allgather_coalesced", lists, inputs, opts, each=True)

    def _allgather(self, what: str, outputs: Sequence[Tensors], inputs: Tensors, opts: Any, *, each: bool) -> Work:
        """Gather each input into its outputs: one tensor, or with `each` one tensor per rank."""
        for parts, tensor in zip(outputs, inputs, strict=True):
            capacity = sum(p.numel() for p in parts)
            if any(p.dtype != tensor.dtype for p in parts) or not (each or capacity == self.size() * tensor.numel()):
                raise ValueError(
                    f"{what}: {capacity} elements of {parts[0].dtype} cannot take {self.size()} times "
                    f"{tensor.numel()} of {tensor.dtype}"
                )
        handles: list[Handle] = []

        def begin(x: _core.Buffer) -> Submit:
            def submit(core: _core.Set, waits: bool, name: str) -> Handle:
                handles.append(core.collective("allgather", x, name, None, waits))
                return handles[-1]

            return submit

        def finish(results: list[Any]) -> None:
            for parts, result, handle in zip(outputs, results, handles, strict=True):
                fill(parts, result, handle.rows() if each else None, what)

        submits = [begin(moved(ADAPTER.contiguous(tensor))) for tensor in inputs]
        every = [part for parts in outputs for part in parts]
        return self._begin(what, options(opts, AllgatherOptions), every, submits, finish)

    @tells("gather")
    def gather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None) -> Work:
        """Give all ranks' tensors to the root."""
        opts = options(opts, GatherOptions)
        tensor, parts = one(inputs, "gather"), self._lists_of_root(outputs, opts, "gather")
        x, root, handles = moved(ADAPTER.contiguous(tensor)), int(opts.rootRank), list[Handle]()

        def submit(core: _core.Set, waits: bool, name: str) -> Handle:
            handles.append(core.collective("gather", x, name, None, waits, root=root))
            return handles[-1]

        def finish(results: list[Any]) -> None:
            if parts:
                fill(parts, results[0], handles[0].rows(), "gather")

        return self._begin("gather", opts, parts, [submit], finish)

    @tells("scatter")
    def scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Give each rank one of the root's tensors."""
        opts = options(opts, ScatterOptions)
        output, parts = one(outputs, "scatter"), self._lists_of_root(inputs, opts, "scatter")
        x, root = moved(joined(parts, output)), int(opts.rootRank)
        splits = [p.numel() for p in parts]  # only the root's count

        def submit(core: _core.Set, waits: bool, name: str) -> Handle:
            return core.collective("scatter", x, name, None, waits, root=root, splits=splits)

        def finish(results: list[Any]) -> None:
            fill([output], results[0], None, "scatter")

        return self._begin("scatter", opts, [output], [submit], finish)

    def _lists_of_root(self, lists: Sequence[Tensors], opts: Any, what: str) -> Tensors:
        """Return the root's list of tensors, one per rank; an empty list on the other ranks."""
        parts = lists[0] if lists else []
        if self._root(opts) == self.rank():
            check_one_each(parts, self.size(), what)
        elif parts:
            raise ValueError(f"{what}: rank {opts.rootRank} is the root and has the list, this is rank {self.rank()}")
        return parts

    @tells("alltoall")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Give one tensor to each rank."""
        check_one_each(inputs, self.size(), "all_to_all")
        check_one_each(outputs, self.size(), "all_to_all")
        x, splits = joined(inputs, inputs[0]), [t.numel() for t in inputs]
        return self._alltoall("all_to_all", options(opts, AllToAllOptions), x, splits, outputs)

    @tells("alltoall")
    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        output_splits: list[int] | None,
        input_splits: list[int] | None,
        opts: Any = None,
    ) -> Work:
        """Give some rows to each rank; without splits equal shares."""
        sends = elements(input, input_splits, self.size(), "input")
        receives = elements(output, output_splits, self.size(), "output")
        target = ADAPTER.contiguous(output)
        parts = torch.split_with_sizes(target.detach().view(-1), receives)
        back = copies_back([target], [output])
        opts = options(opts, AllToAllOptions)
        return self._alltoall("all_to_all_single", opts, input, sends, parts, [output], back)

    all_to_all_single = alltoall_base

    def _alltoall(
        self,
        what: str,
        opts: Any,
        source: torch.Tensor,
        splits: list[int],
        parts: Tensors,
        outputs: Tensors | None = None,
        then: Finish | None = None,
    ) -> Work:
        """Send `splits` elements of `source` to each rank; fill `parts`, one tensor per rank."""
        x = moved(ADAPTER.contiguous(source))

        def submit(core: _core.Set, waits: bool, name: str) -> Handle:
            return core.collective("alltoall", x, name, None, waits, splits=splits)

        def finish(results: list[Any]) -> None:
            received, rows = results[0]
            fill(parts, received, rows, what)
            if then:
                then(results)

        return self._begin(what, opts, parts if outputs is None else outputs, [submit], finish)

    @tells("barrier")
    def barrier(self, opts: Any = None) -> Work:
        """Wait until all ranks have called this."""
        submits: list[Submit] = [lambda core, waits, name: core.collective("barrier", None, name, None, waits)]
        return self._begin("barrier", options(opts, BarrierOptions), [], submits)

    def monitored_barrier(self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this; an error on all that have names those that have not."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout or self._timeout
        self._monitored += 1
        wait_for_all(self.world.core, self.rank(), self.size(), self._monitored, seconds, wait_all_ranks)

    # ---- point-to-point ---------------------------------------------------------------------------------

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        """Send to one rank."""
        tensor = one(tensors, "send")
        handle = self.world.core.send(moved(ADAPTER.contiguous(tensor)), peer, tag)
        return self._p2p(f"send to rank {peer}", handle, tensor)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        """Receive from one rank."""
        return self._receive(f"recv from rank {peer}", tensors, peer, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Receive from any rank."""
        return self._receive("recv from any rank", tensors, ANY_SOURCE, tag)

    recvAnysource = recv_anysource  # noqa: N815

    def _receive(self, what: str, tensors: Any, peer: int, tag: int) -> Work:
        tensor = one(tensors, "recv")
        if tag < 0:  # to hpccoll it means any tag, and to no other backend
            raise errors.InvalidArgumentError(f"tag is {tag}: torch.distributed has tags from 0")
        target = ADAPTER.contiguous(tensor)
        handle = self.world.core.recv(moved(target), peer, tag, exact=True)
        return self._p2p(what, handle, tensor, copies_back([target], [tensor]))

    def _p2p(self, what: str, handle: Handle, tensor: torch.Tensor, finish: Finish | None = None) -> Work:
        text = f"{what} in process group {self._name}"
        return Work(text, [handle], [tensor], finish, self._timeout, lambda: None, text)

    def _root(self, opts: Any) -> int:
        root = int(opts.rootRank)
        self.world.core.check_root(root)
        return root
