# SPDX-License-Identifier: Apache-2.0
"""The front end for the tensors of Keras's backend: hpccoll.torch, .jax or .tensorflow.

It is imported when it is needed, so that a program with one backend needs none of the others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras

from hpccoll import errors, reductions
from hpccoll.frontend.compression import NoneCompressor, own_wire
from hpccoll.frontend.own_errors import own_error
from hpccoll.frontend.process_sets import ProcessSet, has_peers
from hpccoll.keras.compression import Compressor

__all__ = ["Backend", "Reduction", "backend", "check_no_distribution", "reduce_all", "uncompiled"]

Named = Sequence[tuple[str, Sequence[Any]]]
"""Names, each with the tensors that are agreed, fused and finished together."""


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The options of a reduction."""

    op: reductions.Reduction
    process_set: ProcessSet
    compression: Compressor = NoneCompressor
    prescale: float = 1.0
    postscale: float = 1.0


class Backend(Protocol):
    """The interface that hpccoll.keras needs of a front end."""

    def allreduce(self, named: Named, how: Reduction, wire: Any) -> list[Sequence[Any]]:
        """Begin all allreduces, then wait for them; return the results.

        :param wire: the library's own compression (hpccoll.compression), or None
        """

    def operations(self) -> Any:
        """Return the module with Horovod's functions for tensors."""

    def check(self) -> None:
        """Raise the error for a program that this backend cannot run."""

    def dense(self, gradient: Any) -> Any:
        """Return a gradient as a dense tensor, also if it is sparse."""

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

    def allreduce(self, named: Named, how: Reduction, wire: Any) -> list[Sequence[Any]]:
        return _all_begun(
            self._requests, named, how, wire, in_place=lambda tensors: all(x.is_contiguous() for x in tensors)
        )

    def check(self) -> None:
        pass

    def dense(self, gradient: Any) -> Any:
        return gradient.to_dense() if gradient.is_sparse else gradient

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        pass

    def forget_programs(self) -> None:
        pass


class _Jax:
    def __init__(self) -> None:
        import jax

        import hpccoll.jax
        from hpccoll.jax import operations

        self._jax: Any = jax
        self._operations, self._calls = hpccoll.jax, operations

    def operations(self) -> Any:
        return self._operations

    def allreduce(self, named: Named, how: Reduction, wire: Any) -> list[Sequence[Any]]:
        calls = []
        for name, tensors in named:
            narrow = wire if _wide(tensors) else None
            call = self._calls.allreduce_call(
                tensors, how.op, narrow, how.prescale, how.postscale, how.process_set, group=len(tensors) > 1
            )
            calls.append((call, name, tensors))
        return list(self._calls.run_all(calls))

    def check(self) -> None:
        if keras.distribution.distribution() is not None:
            raise errors.UnsupportedError(
                "keras.distribution is active: a DistributedOptimizer reduces the gradients of processes with one "
                "device each. Drop keras.distribution.set_distribution(), or the DistributedOptimizer"
            )

    def dense(self, gradient: Any) -> Any:
        return keras.ops.convert_to_tensor(gradient, sparse=False)

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

        self._operations: Any = hpccoll.tensorflow
        self._tf, self._requests = tensorflow, Requests(ADAPTER)

    def operations(self) -> Any:
        return self._operations

    def allreduce(self, named: Named, how: Reduction, wire: Any) -> list[Sequence[Any]]:
        slices = any(isinstance(x, self._tf.IndexedSlices) for _, tensors in named for x in tensors)
        if self._tf.executing_eagerly() and not slices:
            return _all_begun(self._requests, named, how, wire, in_place=lambda _: False)
        narrow = _compressor(self._operations, wire)
        common: Any = {"op": how.op, "process_set": how.process_set, "compression": narrow}
        common |= {"prescale_factor": how.prescale, "postscale_factor": how.postscale}
        allreduce, grouped = self._operations.allreduce, self._operations.grouped_allreduce
        return [
            [allreduce(tensors[0], name=name, **common)]
            if len(tensors) == 1
            else grouped(list(tensors), name=name, **common)
            for name, tensors in named
        ]

    def check(self) -> None:
        if self._tf.distribute.has_strategy():
            raise errors.UnsupportedError(
                f"{type(self._tf.distribute.get_strategy()).__name__} is active: a DistributedOptimizer reduces the "
                "gradients of processes with one device each. Drop tf.distribute, or the DistributedOptimizer"
            )

    def dense(self, gradient: Any) -> Any:
        return self._tf.convert_to_tensor(gradient)  # keras.ops.convert_to_tensor does not change an IndexedSlices

    def finish(self, values: Sequence[Any], raised: BaseException | None) -> None:
        pass

    def forget_programs(self) -> None:
        pass


def _all_begun(
    requests: Any, named: Named, how: Reduction, wire: Any, in_place: Callable[[Sequence[Any]], bool]
) -> list[Sequence[Any]]:
    """Begin an allreduce of each tensor (none of them traced), and wait for all of them.

    :param requests: hpccoll.frontend.requests.Requests of the front end
    :param in_place: whether tensors may be overwritten
    """
    handles = [
        requests.allreduce(
            name, list(tensors), how.op, how.prescale, how.postscale, how.process_set, group=len(tensors) > 1,
            in_place=in_place(tensors), wire=wire if _wide(tensors) else None,
        )
        for name, tensors in named
    ]  # fmt: skip
    results = [handle.wait() for handle in handles]
    return [result if isinstance(result, list) else [result] for result in results]


def _compressor(module: Any, wire: Any) -> Any:
    """Return the front end's compressor of that name."""
    chosen = "none" if wire is None else {"float16": "fp16", "bfloat16": "bf16"}[wire.name]
    return getattr(module.Compression, chosen)


def _wide(tensors: Sequence[Any]) -> bool:
    return all(keras.backend.standardize_dtype(x.dtype) in ("float32", "float64") for x in tensors)


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


def reduce_all(named: Named, how: Reduction) -> list[Sequence[Any]]:
    """Combine tensors of all ranks; each name is a separate operation, in any order on any rank.

    :returns: the results, in the form of `named`; the tensors themselves on a rank without peers
    """
    if how.process_set.included() is False:
        return [tensors for _, tensors in named]
    if not has_peers(how.process_set):
        factor = how.prescale * how.postscale
        return [tensors if factor == 1.0 else [x * factor for x in tensors] for _, tensors in named]
    wire = own_wire(how.compression)
    if how.compression is NoneCompressor or wire is not None:
        return backend().allreduce(named, how, wire)
    pairs = [[how.compression.compress(x) for x in tensors] for _, tensors in named]
    sent = [(name, [x for x, _ in each]) for (name, _), each in zip(named, pairs, strict=True)]
    received = backend().allreduce(sent, how, None)
    return [
        [how.compression.decompress(x, context) for x, (_, context) in zip(xs, each, strict=True)]
        for xs, each in zip(received, pairs, strict=True)
    ]
