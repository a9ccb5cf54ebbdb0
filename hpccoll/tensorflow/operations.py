# SPDX-License-Identifier: Apache-2.0
"""The operations on tensors, eager and in graphs, with the arguments of Horovod's for TensorFlow.

Arguments that many of them share:

- a tensor is a tf.Tensor, a variable, or what tf.convert_to_tensor() takes;
- `device_dense`, `device_sparse`: have no effect; Horovod has these parameters;
- `name` matches the calls of different ranks, in whatever order each rank makes them. Eager calls without a name
  match by their order, those in a graph by their place in the source;
- `process_set`: the ranks that take part; roots are global ranks.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend import names
from hpccoll.frontend.compression import Compressor, Compressors, NoneCompressor
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Average, Op, Sum, choose
from hpccoll.frontend.refused import tells
from hpccoll.horovod import job
from hpccoll.tensorflow import graph
from hpccoll.tensorflow.adapter import ADAPTER, tensor_of
from hpccoll.tensorflow.dispatch import OPERATIONS, name_unnamed
from hpccoll.tensorflow.facts import ranks_of
from hpccoll.tensorflow.graph_names import scoped
from hpccoll.tensorflow.own_errors import public

__all__ = [
    "Compression", "allgather", "allreduce", "alltoall", "barrier", "broadcast", "grouped_allgather",
    "grouped_allreduce", "grouped_reducescatter", "join", "reducescatter",
]  # fmt: skip


_tells = functools.partial(tells, name_unnamed=name_unnamed)
Compression = Compressors(ADAPTER)


# ---- reductions ------------------------------------------------------------------------------------------


@public
@_tells
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    op: Op | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Combine the tensors of all ranks into a new tensor.

    :param tensor: the same shape and dtype on all ranks. A tf.IndexedSlices (with Sum or Average): the rows of all
        ranks are gathered, and rows with equal indices stand for their sum
    :param average: deprecated: True for op=Average, False for op=Sum
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param op: Average (default), Sum, Adasum, Min, Max or Product
    :param prescale_factor: factor of each rank's tensor
    :param postscale_factor: factor of the result
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :returns: the result, of the shape and dtype of `tensor`
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
    :raises UnsupportedError: (a ValueError) the library does not know the dtype, or has no such reduction of it
    :raises MismatchError: (a RuntimeError) the ranks called with different arguments under one name
    :raises HorovodInternalError: (a RuntimeError) a rank or the transport failed; a new World may work
    """
    del device_dense, device_sparse
    name = scoped(name, ignore_name_scope)
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(
            tensor, choose(op, average), compression, name, process_set, prescale_factor * postscale_factor
        )
    return OPERATIONS.allreduce(
        tensor_of(tensor), average, name, compression, op, prescale_factor, postscale_factor, process_set
    )


def _allreduce_slices(
    slices: Any, op: Op, compression: Compressor, name: str | None, process_set: ProcessSet, factor: float
) -> Any:
    if op not in (Sum, Average):
        raise errors.NotDefinedError(
            f"allreduce of {name or 'an unnamed IndexedSlices'}: op is {choose(op).name}, and only Average and Sum are "
            "defined for an IndexedSlices: use sparse_as_dense=True, or tf.convert_to_tensor"
        )
    if factor != 1.0:
        raise errors.NotDefinedError(
            f"allreduce of {name or 'an unnamed IndexedSlices'}: there are no factors of an IndexedSlices"
        )
    sent, context = compression.compress(tensor_of(slices.values))
    whole = f"{name} as IndexedSlices" if name else name  # so a report tells it from a dense tensor of other ranks
    values, indices = OPERATIONS.grouped_allgather([sent, tensor_of(slices.indices)], whole, process_set)
    values = compression.decompress(values, context)
    if op == Average:
        values = ADAPTER.divide(values, ranks_of(process_set))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@public
@_tells
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    op: Op | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Allreduce several tensors that are agreed, fused and finished together.

    :param tensors: as many on all ranks, each with the same shape and dtype; a tf.IndexedSlices
        is gathered as by allreduce()
    :param average: deprecated: True for op=Average, False for op=Sum
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param op: Average (default), Sum, Adasum, Min, Max or Product
    :param prescale_factor: factor of each rank's tensors
    :param postscale_factor: factor of the results
    :param process_set: the ranks that take part
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param name: the name of the whole group
    :returns: the results, in the order of `tensors`
    :raises HpccollError: see allreduce
    """
    del device_dense, device_sparse
    name = scoped(name, ignore_name_scope)
    results, dense = list(tensors), [i for i, x in enumerate(tensors) if not isinstance(x, tf.IndexedSlices)]
    for i in sorted(set(range(len(results))) - set(dense)):
        results[i] = _allreduce_slices(
            tensors[i], choose(op, average), compression, names.member(name, i, len(results)), process_set,
            prescale_factor * postscale_factor,
        )  # fmt: skip
    if dense:
        whole = [tensor_of(tensors[i]) for i in dense]
        made = OPERATIONS.grouped_allreduce(
            whole, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
        for i, result in zip(dense, made, strict=True):
            results[i] = result
    return results


@public
@_tells
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Compressor = NoneCompressor,
    op: Op | None = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Combine the tensors of all ranks; each rank gets its share of the rows.

    :param tensor: the same shape and dtype on all ranks. Each rank gets n // size of n rows, and the first n % size
        ranks get one more
    :param device_dense: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param op: Average (default), Sum, Min, Max or Product
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param prescale_factor: factor of each rank's tensor
    :param postscale_factor: factor of the result
    :returns: this rank's rows of the result
    :raises HpccollError: see allreduce
    """
    del device_dense
    name = scoped(name, ignore_name_scope)
    return OPERATIONS.reducescatter(
        tensor_of(tensor), name, compression, op, process_set, prescale_factor, postscale_factor
    )


@public
@_tells
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Compressor = NoneCompressor,
    op: Op | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Reducescatter each of several tensors.

    :param tensors: as many on all ranks, each with the same shape and dtype
    :param device_dense: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param op: Average (default), Sum, Min, Max or Product
    :param process_set: the ranks that take part
    :param prescale_factor: factor of each rank's tensors
    :param postscale_factor: factor of the results
    :param name: the name of the whole group
    :returns: this rank's rows of each result, in the order of `tensors`
    :raises HpccollError: see allreduce
    """
    del device_dense
    name = scoped(name, ignore_name_scope=False)
    whole = [tensor_of(tensor) for tensor in tensors]
    return OPERATIONS.grouped_reducescatter(
        whole, name, compression, op, process_set, prescale_factor, postscale_factor
    )


# ---- movements -------------------------------------------------------------------------------------------


@public
@_tells
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate the tensors of all ranks along their first dimension.

    :param tensor: the first dimension may differ between ranks, the others may not; a tensor without dimensions counts
        as one row
    :param name: matches the calls of different ranks
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param process_set: the ranks that take part
    :returns: the rows of all ranks, in the order of the ranks
    :raises HpccollError: see allreduce
    """
    name = scoped(name, ignore_name_scope)
    return OPERATIONS.allgather(tensor_of(tensor), name, process_set)


@public
@_tells
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Allgather each of several tensors.

    :param tensors: as many on all ranks
    :param name: the name of the whole group
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param process_set: the ranks that take part
    :returns: the results, in the order of `tensors`
    :raises HpccollError: see allreduce
    """
    name = scoped(name, ignore_name_scope)
    return OPERATIONS.grouped_allgather([tensor_of(tensor) for tensor in tensors], name, process_set)


@public
@_tells
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give the root's tensor to all ranks, as a new tensor.

    :param tensor: the values on the root; the same shape and dtype on the other ranks
    :param root_rank: global rank of the root, also within a process set
    :param name: matches the calls of different ranks
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param process_set: the ranks that take part
    :returns: the root's values
    :raises HpccollError: see allreduce
    """
    name = scoped(name, ignore_name_scope)
    return OPERATIONS.broadcast(tensor_of(tensor), root_rank, name, process_set)


@public
@_tells
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send a part of the rows to each rank.

    :param tensor: all dimensions but the first are the same on all ranks
    :param splits: how many rows go to each rank of the set, in order; default: as many to each
    :param name: matches the calls of different ranks
    :param ignore_name_scope: in a graph, the name is `name` alone, without TensorFlow's name scope
    :param process_set: the ranks that take part
    :returns: the rows received, in the order of the ranks; if `splits` is given, a pair of them and how many rows came
        from each rank
    :raises HpccollError: see allreduce
    """
    name = scoped(name, ignore_name_scope)
    return OPERATIONS.alltoall(tensor_of(tensor), splits, name, process_set)


# ---- the end of the data ---------------------------------------------------------------------------------


@public
def join() -> Any:
    """Announce that this rank has no more data, and wait until all ranks have joined.

    Until then this rank takes part in the operations of the others with neutral elements: it adds nothing to a sum,
    gives no rows to a gather, and Average divides by all ranks.

    :returns: an int32 tensor of the rank that joined last
    :raises HpccollError: a rank or the transport failed
    """
    return tf.constant(job.join(), tf.int32) if tf.executing_eagerly() else graph.join()


@public
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Wait until all ranks of the process set have called this.

    :param process_set: the ranks that take part
    :returns: None; in a graph of a session the operation
    :raises HpccollError: a rank or the transport failed, or this rank is not in the process set
    """
    return job.barrier(process_set) if tf.executing_eagerly() else graph.barrier(process_set)
