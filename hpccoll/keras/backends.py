# SPDX-License-Identifier: Apache-2.0
"""The front end for the tensors of Keras's backend: hpccoll.torch, .jax or .tensorflow.

It is imported when it is needed, so that a program with one backend needs none of the others.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras

from hpccoll import errors
from hpccoll.elastic.own_errors import own_error
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.compression import Compressor, packed
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import has_peers

__all__ = ["Backend", "backend", "check_no_distribution", "reduce_all", "uncompiled"]

Calls = Sequence[tuple[Allreduce, Sequence[Any]]]
"""Allreduces, each with its tensors: one, or a group that is agreed, fused and finished together."""


class Backend(Protocol):
    """The interface that hpccoll.keras needs of a front end."""

    def allreduce(self, calls: Calls) -> list[Sequence[Any]]:
        """Begin all allreduces, then wait for them; return the results."""

    def operations(self) -> Any:
        """Return the module with Horovod's functions for tensors."""

    def check(self) -> None:
        """Raise the error for a program that this backend cannot run."""

    def dense(self, gradient: Any) -> Any:
        """Return a gradient as a dense tensor, also if it is sparse."""

    def sparse(self, gradient: Any) -> bool:
        """Return whether a gradient is sparse."""

    def divided(self, gradient: Any, divisor: float) -> Any:
        """Return a gradient divided by a number; a sparse one stays sparse."""

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        """Wait until values are computed; raise the error of a failed operation.

        :param raised: the exception that is being raised already; the framework may have wrapped the library's error
        """

    def forget_programs(self) -> None:
        """Make the framework trace all programs again, because the number of ranks has changed."""


class _Torch:
    def __init__(self) -> None:
        import hpccoll.torch
        from hpccoll.frontend.requests import Requests
        from hpccoll.torch.adapter import ADAPTER

        self._operations, self._requests = hpccoll.torch, Requests(ADAPTER)

    def operations(self) -> Any:
        return self._operations

    def allreduce(self, calls: Calls) -> list[Sequence[Any]]:
        return _all_begun(self._requests, calls, in_place=lambda tensors: all(x.is_contiguous() for x in tensors))

    def check(self) -> None:
        pass

    def dense(self, gradient: Any) -> Any:
        return gradient.to_dense() if gradient.is_sparse else gradient

    def sparse(self, gradient: Any) -> bool:
        return bool(gradient.is_sparse)

    def divided(self, gradient: Any, divisor: float) -> Any:
        return gradient / divisor

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        pass

    def forget_programs(self) -> None:
        pass


class _Jax:
    def __init__(self) -> None:
        import jax
        from jax.experimental.sparse import JAXSparse

        import hpccoll.jax
        from hpccoll.jax import operations

        self._jax: Any = jax
        self._sparse_type = JAXSparse
        self._operations, self._calls = hpccoll.jax, operations

    def operations(self) -> Any:
        return self._operations

    def allreduce(self, calls: Calls) -> list[Sequence[Any]]:
        jobs = [(self._calls.allreduce_call(tensors, call, call.wire), call.name, tensors) for call, tensors in calls]
        return list(self._calls.run_all(jobs))

    def check(self) -> None:
        if keras.distribution.distribution() is not None:
            raise errors.UnsupportedError(
                "keras.distribution is active: a DistributedOptimizer reduces the gradients of processes with one "
                "device each. Drop keras.distribution.set_distribution(), or the DistributedOptimizer"
            )

    def dense(self, gradient: Any) -> Any:
        return keras.ops.convert_to_tensor(gradient, sparse=False)

    def sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, self._sparse_type)

    def divided(self, gradient: Any, divisor: float) -> Any:
        return gradient / divisor

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        error = raised
        try:
            self._jax.block_until_ready([x for x in values if not (hasattr(x, "is_deleted") and x.is_deleted())])
        except (self._jax.errors.JaxRuntimeError, ValueError) as failed:
            error = failed
        if error is not None and (ours := own_error(error)):
            raise ours from error
        if error is not None and error is not raised:
            raise error

    def forget_programs(self) -> None:
        self._jax.clear_caches()


class _TensorFlow:
    def __init__(self) -> None:
        import tensorflow

        import hpccoll.tensorflow
        from hpccoll.frontend.requests import Requests
        from hpccoll.tensorflow.adapter import ADAPTER
        from hpccoll.tensorflow.reducing import divided

        self._divided = divided
        self._operations: Any = hpccoll.tensorflow
        self._tf, self._requests = tensorflow, Requests(ADAPTER)

    def operations(self) -> Any:
        return self._operations

    def allreduce(self, calls: Calls) -> list[Sequence[Any]]:
        slices = any(self.sparse(x) for _, tensors in calls for x in tensors)
        if self._tf.executing_eagerly() and not slices:
            return _all_begun(self._requests, calls, in_place=lambda _: False)
        return [self._one(call, tensors) for call, tensors in calls]

    def _one(self, call: Allreduce, tensors: Sequence[Any]) -> Sequence[Any]:
        common: Any = {
            "op": call.op, "name": call.name, "process_set": call.process_set,
            "compression": _compressor(self._operations, call.wire), "prescale_factor": call.prescale,
            "postscale_factor": call.postscale,
        }  # fmt: skip
        if call.group:
            grouped: Sequence[Any] = self._operations.grouped_allreduce(list(tensors), **common)
            return grouped
        return [self._operations.allreduce(tensors[0], **common)]

    def check(self) -> None:
        if self._tf.distribute.has_strategy():
            raise errors.UnsupportedError(
                f"{type(self._tf.distribute.get_strategy()).__name__} is active: a DistributedOptimizer reduces the "
                "gradients of processes with one device each. Drop tf.distribute, or the DistributedOptimizer"
            )

    def dense(self, gradient: Any) -> Any:
        return self._tf.convert_to_tensor(gradient)  # keras.ops.convert_to_tensor does not change an IndexedSlices

    def sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, self._tf.IndexedSlices)

    def divided(self, gradient: Any, divisor: float) -> Any:
        return self._divided(gradient, divisor)

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        pass

    def forget_programs(self) -> None:
        pass


def _all_begun(requests: Any, calls: Calls, in_place: Callable[[Sequence[Any]], bool]) -> list[Sequence[Any]]:
    """Begin allreduces (their tensors are not traced), and wait for all of them.

    :param requests: hpccoll.frontend.requests.Requests of the front end
    :param in_place: whether tensors may be overwritten
    """
    handles = [requests.begin(call, list(tensors), in_place=in_place(tensors)) for call, tensors in calls]
    results = wait_for_all(handles)
    return [result if call.group else [result] for (call, _), result in zip(calls, results, strict=True)]


def _compressor(module: Any, wire: Any) -> Any:
    """Return the front end's compressor of that name."""
    chosen = "none" if wire is None else {"float16": "fp16", "bfloat16": "bf16"}[wire.name]
    return getattr(module.Compression, chosen)


_BACKENDS: dict[str, type] = {"torch": _Torch, "jax": _Jax, "tensorflow": _TensorFlow}


@functools.cache
def backend() -> Backend:
    """Return the front end for Keras's backend.

    :raises UnsupportedError: (a ValueError) there is none
    """
    name = keras.backend.backend()
    if name not in _BACKENDS:
        raise errors.UnsupportedError(
            f"Keras runs on {name}, which does not train: set KERAS_BACKEND to one of {', '.join(_BACKENDS)}"
        )
    made: Backend = _BACKENDS[name]()
    return made


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Exclude a function from torch.compile (jit_compile=True), which cannot trace the communication of ranks.

    Compiled programs of JAX and TensorFlow have operations for it.
    """
    if keras.backend.backend() != "torch":
        return function
    import torch

    disable: Callable[..., Callable[..., Any]] = torch.compiler.disable
    return disable(function)


def check_no_distribution() -> None:
    """Check that Keras or its backend does not distribute by itself.

    :raises UnsupportedError: (a ValueError) it does
    """
    backend().check()


def reduce_all(calls: Sequence[tuple[Allreduce, Compressor, Sequence[Any]]]) -> list[Sequence[Any]]:
    """Combine tensors of all ranks; each allreduce is a separate operation, in any order on any rank.

    :param calls: allreduces over one process set, with the compression of their tensors
    :returns: the results; the tensors themselves on a rank without peers
    """
    if not calls or calls[0][0].process_set.included() is False:
        return [tensors for _, _, tensors in calls]
    if not has_peers(calls[0][0].process_set):
        scaled = [(call.prescale * call.postscale, tensors) for call, _, tensors in calls]
        return [tensors if factor == 1.0 else [x * factor for x in tensors] for factor, tensors in scaled]
    ready = [packed(one, tensors, lambda x: str(keras.backend.standardize_dtype(x.dtype))) for _, one, tensors in calls]
    sent = [(dataclasses.replace(call, wire=p.wire), p.tensors) for (call, _, _), p in zip(calls, ready, strict=True)]
    return [p.unpack(results) for p, results in zip(ready, backend().allreduce(sent), strict=True)]
