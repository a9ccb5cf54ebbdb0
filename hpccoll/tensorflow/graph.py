# SPDX-License-Identifier: Apache-2.0
"""Operations in graphs of tf.function and of sessions. Each becomes an operation of TensorFlow with our kernel.

The operation runs without Python (ext/tensorflow). Everything except the tensors is fixed when the program is traced.
In a program that XLA compiles it becomes a custom call instead (hpccoll.tensorflow.xla).
"""

import struct
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import _core, errors
from hpccoll.compression import Compression
from hpccoll.default_world import current
from hpccoll.frontend.adapter import is_inexact
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.reductions import Average, Reduction, Sum
from hpccoll.frontend.requests import check_factors
from hpccoll.tensorflow import kernels, xla
from hpccoll.tensorflow.adapter import ADAPTER, code_of
from hpccoll.tensorflow.graph_names import unique
from hpccoll.tensorflow.internals import independent_of
from hpccoll.tensorflow.retraced import contains_place

__all__ = [
    "allgather", "allreduce", "alltoall", "barrier", "broadcast", "join", "process_set_of", "reducescatter",
    "zeros_after",
]  # fmt: skip

_sets: weakref.WeakValueDictionary[int, ProcessSet] = weakref.WeakValueDictionary()


def process_set_of(number: int) -> ProcessSet:
    """Return the process set that an operation names by its number."""
    return global_process_set if number == 0 else _sets[number]


def number_of(process_set: ProcessSet) -> int:
    """Return the number by which kernels know a process set."""
    world = world_of(process_set)
    number: int = world.core.open_gate(world is current())
    if number:
        _sets[number] = process_set
    return number


def _bits(factor: float) -> int:
    value: int = struct.unpack("<q", struct.pack("<d", factor))[0]
    return value


def zeros_after(tensor: Any) -> Any:
    """Return zeros of a tensor's shape that are computed from it, so that TensorFlow does not remove its operation.

    TensorFlow would simplify a product with a constant, or a control dependency. It cannot simplify a guard, which is
    our operation. XLA removes none of our operations.
    """
    if xla.compiles():
        return tf.zeros_like(tensor)
    with tf.device("CPU:0"):
        guard = _independent(kernels.operations().hpccoll_guard())
    return tf.where(tf.equal(guard, 0), tf.zeros_like(tensor), tensor)


def _after_iteration() -> Any:
    """In the body of a loop, wait for the results of the last iteration.

    Otherwise iterations may overlap, and the operations of two iterations would get mixed up.
    """
    graph = tf.compat.v1.get_default_graph()
    first = list(graph.inputs) if "WhileBody" in type(graph).__name__ else []
    return tf.control_dependencies(first)


def _independent(results: Any) -> Any:
    """Let TensorFlow run these stateful operations in any order, but run all of them: see register.c."""
    dependencies = independent_of(tf.compat.v1.get_default_graph())
    if dependencies is not None:
        first = results[0] if isinstance(results, (list, tuple)) else results
        dependencies.run_independently(first.op)
    return results


def _put(operation: Any, **arguments: Any) -> Any:
    """Put a collective operation into the graph; return its results."""
    with tf.device("CPU:0"), _after_iteration():
        return _independent(_named(operation, **arguments))


def _named(operation: Any, **arguments: Any) -> Any:
    """Put an operation into the graph in our scope: write_callers() in ext/tensorflow/kernels.c looks for it."""
    with tf.name_scope("hpccoll/"):  # the slash makes it the whole scope
        return operation(**arguments)


def _put_of_same_shapes(operation: str, tensors: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
    """Put an operation into the graph whose results have the shapes of its tensors."""
    if xla.compiles():
        return _independent(xla.call(operation, tensors, attributes))  # type: ignore[no-any-return]
    if operation == "broadcast":
        return [_put(kernels.operations().hpccoll_broadcast, tensor=tensors[0], **attributes)]
    return list(_put(kernels.operations().hpccoll_allreduce, tensors=list(tensors), **attributes))


def _attributes(
    operation: str, name: str | None, process_set: ProcessSet, tensors: Sequence[Any] = (), **others: Any
) -> dict[str, Any]:
    if xla.compiles():
        xla.check_can_compile(operation.removeprefix("grouped_"))
    for tensor in tensors:
        code_of(tensor.dtype)
    number = number_of(process_set)
    return {**others, "tensor_name": unique(operation, name, number), "set": number}


def _scaled_before(
    tensors: Sequence[Any], op: Reduction, prescale: float, postscale: float, size: int
) -> tuple[list[Any], Reduction, float, float, float]:
    """Apply the factors that the library does not apply itself, as hpccoll.frontend.requests does."""
    check_factors(prescale, postscale)
    if op in (Sum, Average) and all(is_inexact(tensor.dtype.name) for tensor in tensors):
        return list(tensors), op, prescale, postscale, 1.0
    after = postscale
    if op is Average and postscale != 1.0:
        contains_place()
        op, after = Sum, postscale / size
    return [_scaled(tensor, prescale) for tensor in tensors], op, 1.0, 1.0, after


def _scaled(tensor: Any, factor: float) -> Any:
    return tensor if factor == 1.0 else ADAPTER.scale(tensor, factor)


def allreduce(call: Allreduce, tensors: Sequence[Any]) -> list[Any]:
    """Put an allreduce into the graph; not Adasum."""
    size = world_of(call.process_set).size
    whole, op, prescale, postscale, after = _scaled_before(tensors, call.op, call.prescale, call.postscale, size)
    wire: Compression | None = call.wire
    attributes = _attributes(
        "grouped_allreduce" if call.group else "allreduce",
        call.name,
        call.process_set,
        whole,
        reduction=op.code,
        wire=_core.WIRE_SAME if wire is None else wire.dtype_code,
        group=int(call.group),
        prescale=_bits(prescale),
        postscale=_bits(postscale),
    )
    results = _put_of_same_shapes("allreduce", whole, attributes)
    return [_scaled(result, after) for result in results]


def broadcast(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """Put a broadcast into the graph."""
    root = root_in(process_set, root_rank)
    attributes = _attributes("broadcast", name, process_set, [tensor], root=root)
    return _put_of_same_shapes("broadcast", [tensor], attributes)[0]


def _with_rows(result: Any, like: Any) -> Any:
    """Set the known dimensions of the result; its number of rows is unknown."""
    if like.shape.rank is not None:
        result.set_shape([None, *like.shape[1:]])
    return result


def allgather(tensor: Any, name: str | None, process_set: ProcessSet) -> tuple[Any, Any]:
    """Put an allgather into the graph; return the result and how many rows came from each rank."""
    whole = tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tensor
    attributes = _attributes("allgather", name, process_set, [whole])
    result, rows = _put(kernels.operations().hpccoll_allgather, tensor=whole, **attributes)
    rows.set_shape([None])
    return _with_rows(result, whole), rows


def alltoall(tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> tuple[Any, Any]:
    """Put an alltoall into the graph; return the rows received and how many came from each rank."""
    given = tf.zeros([0], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not given.dtype.is_integer:
        raise errors.InvalidArgumentError(f"alltoall of {name or 'an unnamed tensor'}: splits are {given.dtype.name}")
    attributes = _attributes("alltoall", name, process_set, [tensor])
    result, rows = _put(
        kernels.operations().hpccoll_alltoall, tensor=tensor, splits=tf.cast(given, tf.int64), **attributes
    )
    rows.set_shape([None])
    return _with_rows(result, tensor), tf.cast(rows, tf.int32 if splits is None else given.dtype)


def reducescatter(call: Reducescatter, tensors: Sequence[Any]) -> list[Any]:
    """Put reducescatters into the graph."""
    results, size = [], world_of(call.process_set).size
    for name, tensor in zip(call.names, tensors, strict=True):
        (whole,), op, prescale, postscale, after = _scaled_before(
            [tensor], call.op, call.prescale, call.postscale, size
        )
        attributes = _attributes(
            "reducescatter",
            name,
            call.process_set,
            [whole],
            reduction=op.code,
            prescale=_bits(prescale),
            postscale=_bits(postscale),
        )
        result = _put(kernels.operations().hpccoll_reducescatter, tensor=whole, **attributes)
        results.append(_scaled(_with_rows(result, tensor), after))
    return results


def barrier(process_set: ProcessSet) -> Any:
    """Put a barrier into the graph; it keeps its order with other stateful operations."""
    return _named(kernels.operations().hpccoll_barrier, **_attributes("barrier", None, process_set))


def join() -> Any:
    """Put a join into the graph; it keeps its order with other stateful operations."""
    last = _named(kernels.operations().hpccoll_join, **_attributes("join", None, global_process_set))
    last.set_shape([])
    return tf.cast(last, tf.int32)
