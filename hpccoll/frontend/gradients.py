# SPDX-License-Identifier: Apache-2.0
"""The gradients of one optimizer: their reduction begins as soon as backward passes have computed them.

the framework calls computed(gradient) --> Reducer returns a complete bucket --> its reduction starts
synchronize()                          --> the missing buckets start, everything pending is finished
"""

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from hpccoll import errors, reductions
from hpccoll._core import finish_all
from hpccoll.collectives import Handle
from hpccoll.frontend.adapter import ParameterAdapter, SparseParts
from hpccoll.frontend.buckets import Bucket
from hpccoll.frontend.buffer_cache import BufferCache, GradientBuffer
from hpccoll.frontend.compression import Compressor
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.frontend.reducer import Reducer
from hpccoll.frontend.reduction_spec import BucketEntry, ReductionSpec
from hpccoll.frontend.sparse import SparseLayout

__all__ = ["Gradients"]

P = TypeVar("P")
T = TypeVar("T")


class _Pending:
    """A bucket whose reduction is in flight."""

    __slots__ = ("absent", "bucket", "buffers", "handles", "layout", "unwanted")

    def __init__(
        self,
        bucket: Bucket,
        handles: Sequence[Handle],
        buffers: Sequence[GradientBuffer[Any, Any]],
        absent: bool,
        layout: SparseLayout | None = None,
        unwanted: Sequence[int] = (),
    ) -> None:
        """
        :param buffers: the gradients' memory, unless the gradient is sparse
        :param absent: this rank had no gradient (buckets of one gradient)
        :param layout: of a sparse gradient
        :param unwanted: members of a group that have no gradient and shall get none, as they are frozen
        """  # noqa: D205, D212
        self.bucket, self.handles, self.buffers, self.absent = bucket, handles, buffers, absent
        self.layout, self.unwanted = layout, unwanted


class Gradients(Generic[P, T]):
    """The reductions of one optimizer's gradients. A parameter's number is its index in `parameters`."""

    def __init__(
        self,
        adapter: ParameterAdapter[P, T],
        parameters: Sequence[P],
        names: Sequence[str],
        buckets: Sequence[Bucket],
        spec: ReductionSpec,
        process_set: ProcessSet,
        passes: int = 1,
        compressor: Compressor | None = None,
        sparse_as_dense: bool = False,
    ) -> None:
        """Listen to the parameters; this replaces earlier listeners.

        :param process_set: `spec` has its World, which changes after shutdown() and init()
        :param passes: backward passes that add to a gradient before it is reduced
        :param compressor: converts gradients before and after; None: only as `spec` says
        :param sparse_as_dense: make sparse gradients dense before they are reduced
        """
        self.adapter, self.spec, self._process_set = adapter, spec, process_set
        self.parameters, self.names = list(parameters), list(names)
        self._compressor, self._sparse_as_dense = compressor, sparse_as_dense
        self._caches = self._caches_of(parameters, names)
        self._listening: set[int] = set()
        self._layouts: dict[int, SparseLayout] = {}  # of the gradients that were sparse
        self._made_dense: dict[int, int] = {}  # sparse dimensions of gradients that are reduced as dense ones
        self._retried: set[int] = set()
        self._required: frozenset[int] | None = None
        self._interrupted: list[Handle] = []
        self._reducer: Reducer[_Pending] = Reducer(buckets, passes)
        for parameter in self.parameters:
            adapter.stop_listening(parameter)
        self._listen_to_all()

    def add(self, parameters: Sequence[P], names: Sequence[str], buckets: Sequence[Bucket]) -> None:
        """Reduce the gradients of these parameters, too."""
        self.parameters += parameters
        self.names += names
        self._caches += self._caches_of(parameters, names)
        self._reducer.add(buckets)
        self._listen_to_all()

    @property
    def active(self) -> bool:
        """Whether a gradient was computed since the last synchronize()."""
        return self._reducer.active

    def in_flight(self) -> dict[int, Sequence[Handle]]:
        """Return the requests of each parameter whose gradient is being reduced."""
        return {m: pending.handles for pending in self._reducer.pending() for m in pending.bucket.members}

    def passes_left(self) -> list[int]:
        """Return the remaining backward passes of each gradient before it is reduced."""
        return [self._reducer.passes_left(member) for member in range(len(self.parameters))]

    def required(self) -> list[P]:
        """Return the parameters whose gradient synchronize() reduces even if no backward pass has computed it."""
        return [self.parameters[member] for member in range(len(self.parameters)) if self._wanted(member)]

    def require(self, parameters: Iterable[P]) -> None:
        """Let synchronize() reduce the gradients of these parameters, computed or not; of others only if computed.

        :param parameters: the same on all ranks; every rank computes the gradients of the same other parameters
        """
        chosen = {id(parameter) for parameter in parameters}
        self._required = frozenset(m for m, parameter in enumerate(self.parameters) if id(parameter) in chosen)

    def set_passes(self, passes: int) -> None:
        """Reduce after this number of backward passes from now on.

        :raises AssertionError: gradients are being reduced
        """
        self._reducer.set_passes(passes)

    def _caches_of(self, parameters: Sequence[P], names: Sequence[str]) -> list[BufferCache[P, T]]:
        return [
            BufferCache(self.adapter, parameter, name, self._compressor)
            for parameter, name in zip(parameters, names, strict=True)
        ]

    def _listen_to_all(self) -> None:
        """Listen to every parameter that needs a gradient now."""
        for member, parameter in enumerate(self.parameters):
            if member not in self._listening and self.adapter.trainable(parameter):
                self._listening.add(member)
                self.adapter.listen(parameter, _listener(weakref.ref(self), member))

    # ---- the course of a step ------------------------------------------------------------------------

    def computed(self, member: int) -> None:
        """Count a backward pass of this gradient; start its bucket if that completes it."""
        bucket = self._reducer.computed(member)
        if bucket is not None:
            self._reducer.started(bucket, self._start(bucket))

    def synchronize(self) -> None:
        """Wait until every parameter's gradient is reduced. A rank without a gradient contributes zeros.

        :raises HpccollError: the first failure, after everything else is finished
        :raises AssertionError: a gradient was changed while it was being reduced
        """
        self._listen_to_all()
        try:
            for bucket in self._reducer.missing(self._wanted):
                self._reducer.started(bucket, self._start(bucket))
            self._finish_all()
        finally:
            self._leave_step()

    def _leave_step(self) -> None:
        """Begin a new step, also where an exception such as Ctrl-C has left requests of the old one in flight."""
        self._interrupted += [handle for pending in self._reducer.pending() for handle in pending.handles]
        self._reducer.reset()

    def finish_interrupted(self) -> None:
        """Wait for requests that an interrupted step has left in flight. Gradients must not change before."""
        if self._interrupted:
            finish_all(self._interrupted)
            self._interrupted = []

    def abandon(self) -> None:
        """Wait for all requests in flight, ignore their results, and start over."""
        try:
            self._finish_all()
        except (errors.HpccollError, AssertionError):
            pass
        finally:
            self._leave_step()

    def _wanted(self, member: int) -> bool:
        if self._required is not None:
            return member in self._required
        parameter = self.parameters[member]
        return self.adapter.trainable(parameter) or self.adapter.gradient(parameter) is not None

    def _finish_all(self) -> None:
        """Finish in rounds: each round starts all its buckets before it waits for one, as the ranks' orders differ."""
        failure: Exception | None = None
        while round_ := self._reducer.pending():
            finish_all([handle for pending in round_ for handle in pending.handles])
            for pending in self._reducer.take_pending():
                try:
                    self._finish(pending)
                except (errors.HpccollError, AssertionError) as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    # ---- one bucket ----------------------------------------------------------------------------------

    def _start(self, bucket: Bucket) -> _Pending:
        self.finish_interrupted()
        try:
            return self._start_here(bucket)
        except errors.ShutDownError:
            world = world_of(self._process_set)
            if world is self.spec.world:
                raise
            self.spec = dataclasses.replace(self.spec, world=world)
            return self._start_here(bucket)

    def _start_here(self, bucket: Bucket) -> _Pending:
        for member in bucket.members if self._made_dense else ():
            if self.adapter.gradient(self.parameters[member]) is not None:
                self._made_dense.pop(member, None)  # until it is sparse again
        if len(bucket.members) > 1:
            return self._start_group(bucket)
        member = bucket.members[0]
        gradient, cache = self.adapter.gradient(self.parameters[member]), self._caches[member]
        buffer = None if gradient is None else cache.again(gradient)
        if buffer is None:
            if self._is_sparse(member, gradient):
                return self._start_sparse(bucket, member, gradient)
            buffer = cache.describe(self._dense(member, gradient))
        handle = self.spec.start_one(bucket.name, buffer.memory, cache.narrows)
        return _Pending(bucket, (handle,), (buffer,), gradient is None)

    def _start_group(self, bucket: Bucket) -> _Pending:
        caches = [self._caches[member] for member in bucket.members]
        unwanted = [
            m for m in bucket.members if self.adapter.gradient(self.parameters[m]) is None and not self._wanted(m)
        ]
        gradients = [self._dense(m, self.adapter.gradient(self.parameters[m])) for m in bucket.members]
        buffers = [cache.describe(gradient) for cache, gradient in zip(caches, gradients, strict=True)]
        entries = [BucketEntry(b.memory, cache.narrows) for b, cache in zip(buffers, caches, strict=True)]
        return _Pending(bucket, self.spec.start(bucket.name, entries), buffers, False, unwanted=unwanted)

    def _finish(self, pending: _Pending) -> None:
        """Store the result, or raise the error; after the first mismatch start the bucket again."""
        if pending.layout is not None:
            self._finish_sparse(pending, pending.layout)
            return
        try:
            wait_for_all(pending.handles)
        except errors.MismatchError as error:
            self._start_once_more(error, pending)
            return
        for buffer in pending.buffers:
            buffer.finish()
        for member in pending.unwanted:  # zeros, which momentum and weight decay would turn into a change
            self.adapter.set_gradient(self.parameters[member], None)
        for member in self._made_dense.keys() & set(pending.bucket.members) if self._made_dense else ():
            self._make_sparse_again(member)

    def _make_sparse_again(self, member: int) -> None:
        """Make a gradient sparse again, as it was before the reduction or in an earlier step.

        Some optimizers need that.
        """
        adapter, parameter = self.adapter, self.parameters[member]
        gradient = adapter.gradient(parameter)
        assert gradient is not None
        adapter.set_gradient(parameter, adapter.to_sparse(gradient, self._made_dense[member]))

    def _dense(self, member: int, gradient: T | None) -> T:
        """Return the dense gradient; zeros if there is none, as another rank may have one."""
        adapter, parameter = self.adapter, self.parameters[member]
        if gradient is None:
            return adapter.zero_gradient(parameter)
        if adapter.is_sparse(gradient):
            if not self._sparse_as_dense:
                raise errors.UnsupportedError(
                    f"the gradient of {self.names[member]} is sparse, and it is in a group: take it out of groups, "
                    "or use sparse_as_dense=True"
                )
            self._made_dense[member] = adapter.sparse_dimensions(gradient)
            gradient = adapter.to_dense(gradient)
            adapter.set_gradient(parameter, gradient)
        return gradient

    # ---- sparse gradients ----------------------------------------------------------------------------

    def _is_sparse(self, member: int, gradient: T | None) -> bool:
        """Whether to reduce a gradient as a sparse one; a missing one if it was sparse before."""
        if gradient is None:
            return member in self._layouts
        return not self._sparse_as_dense and self.adapter.is_sparse(gradient)

    def _start_sparse(self, bucket: Bucket, member: int, gradient: T | None) -> _Pending:
        adapter, spec = self.adapter, self.spec
        if spec.op not in (reductions.SUM, reductions.AVERAGE):
            raise errors.UnsupportedError(f"the gradient of {self.names[member]} is sparse: Sum or Average only")
        if adapter.on_device(adapter.values(self.parameters[member])):
            raise errors.UnsupportedError(
                f"the gradient of {self.names[member]} is sparse and in device memory: use sparse_as_dense=True"
            )
        if gradient is None:
            layout = self._layouts[member]
            rows = layout.nothing()
        else:
            parts = adapter.sparse_parts(gradient, coalesce=True)
            indices, values = adapter.to_numpy(parts.indices), adapter.to_numpy(parts.values)
            layout = SparseLayout(indices.shape[1], values.shape[1:], values.dtype, adapter.dtype(parts.values))
            rows = layout.pack(indices, values)
        handle: Handle = spec.world.core.collective(
            "allgather", rows, bucket.name, None, False, type_name=layout.type_name
        )
        return _Pending(bucket, (handle,), (), gradient is None, layout)

    def _finish_sparse(self, pending: _Pending, layout: SparseLayout) -> None:
        adapter, member = self.adapter, pending.bucket.members[0]
        try:
            indices, bits = layout.unpack(pending.handles[0].wait())
        except errors.MismatchError as error:
            self._start_once_more(error, pending)
            return
        parameter = self.parameters[member]
        like = adapter.values(parameter)
        values = adapter.from_numpy(bits, adapter.dtype(like))
        if self.spec.op == reductions.AVERAGE:
            values = adapter.divide(values, self.spec.world.size)
        parts = SparseParts(adapter.from_numpy(indices), values)
        adapter.set_gradient(parameter, adapter.from_sparse(parts, adapter.shape(like), coalesce=True))
        self._layouts[member] = layout

    def _start_once_more(self, error: errors.MismatchError, pending: _Pending) -> None:
        """Start a bucket again after its first mismatch: all ranks got the same error, so all of them start again.

        So a rank without a gradient (`absent`) learns that the gradient is sparse on other ranks, and ranks whose dense
        gradients have different orders of dimensions in memory change to the usual order.
        """
        bucket, member = pending.bucket, pending.bucket.members[0]
        if len(bucket.members) > 1 or member in self._retried:
            raise error
        self._retried.add(member)
        self._caches[member].use_usual_order()
        if pending.absent:
            adapter, parameter = self.adapter, self.parameters[member]
            adapter.set_gradient(parameter, None)
            like = adapter.values(parameter)
            dtype = adapter.to_numpy(adapter.empty(like, (0,))).dtype
            self._layouts[member] = SparseLayout(1, adapter.shape(like)[1:], dtype, adapter.dtype(like))
        self._reducer.started(bucket, self._start(bucket))


def _listener(owner: weakref.ref[Gradients[Any, Any]], member: int) -> Callable[[], None]:
    """Make the callback for a computed gradient; it does not keep the optimizer alive."""

    def computed() -> None:
        gradients = owner()
        if gradients is not None:  # else the optimizer is deleted, but the model is not
            gradients.computed(member)

    return computed
