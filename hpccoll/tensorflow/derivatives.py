# SPDX-License-Identifier: Apache-2.0
"""The derivative of each operation, for eager tensors and graphs, as Horovod defines it for TensorFlow.

docs/gradients.md has a table. With Sum, they differentiate the sum over the ranks; with Average, and in allgather and
broadcast, the mean.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend import names
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.process_sets import ProcessSet, root_in, world_of
from hpccoll.frontend.reductions import Adasum, Average, Sum
from hpccoll.horovod.operations import Operations
from hpccoll.tensorflow.graph import zeros_after
from hpccoll.tensorflow.retraced import contains_place

__all__ = ["of_allgather", "of_allreduce", "of_alltoall", "of_broadcast", "of_reducescatter"]


def of_allreduce(operations: Operations[Any], call: Allreduce, gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients of the tensors of an allreduce."""
    if call.op not in (Average, Sum, Adasum):
        raise errors.UnsupportedError(f"allreduce of {call.name!r}: there is no gradient of {call.op.name}")
    return operations.run_allreduce(dataclasses.replace(call, name=names.part(call.name, "gradient")), gradients)


def _averaged(operations: Operations[Any], gradient: Any, name: str | None, process_set: ProcessSet) -> Any:
    call = Allreduce(names.part(name, "gradient"), Average, 1.0, 1.0, process_set, group=False)
    return operations.run_allreduce(call, [gradient])[0]


def of_allgather(
    operations: Operations[Any], gradient: Any, rows: Any, like: Any, name: str | None, process_set: ProcessSet
) -> Any:
    """Return the gradient of the tensor of an allgather.

    :param rows: how many rows came from each rank
    :param like: the tensor
    """
    contains_place()
    averaged, me = _averaged(operations, gradient, name, process_set), world_of(process_set).rank
    begin = tf.reduce_sum(rows[:me])
    return tf.reshape(averaged[begin : begin + rows[me]], tf.shape(like))


def of_broadcast(
    operations: Operations[Any], gradient: Any, root_rank: int, name: str | None, process_set: ProcessSet
) -> Any:
    """Return the gradient of the tensor of a broadcast."""
    contains_place()
    averaged, root = _averaged(operations, gradient, name, process_set), root_in(process_set, root_rank)
    if world_of(process_set).rank == root:
        return averaged
    return tf.zeros_like(averaged) if tf.executing_eagerly() else zeros_after(averaged)


def of_alltoall(
    operations: Operations[Any], gradient: Any, rows: Any, name: str | None, process_set: ProcessSet
) -> Any:
    """Return the gradient of the tensor of an alltoall.

    :param rows: how many rows came from each rank
    """
    return operations.run_alltoall(gradient, rows, names.part(name, "gradient"), process_set)[0]


def of_reducescatter(operations: Operations[Any], call: Reducescatter, gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients of the tensors of reducescatters."""
    if call.op not in (Average, Sum):
        raise errors.UnsupportedError(f"reducescatter of {call.names[0]!r}: there is no gradient of {call.op.name}")
    contains_place()
    factor = call.prescale * call.postscale * (world_of(call.process_set).size if call.op is Sum else 1)
    scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
    return [
        operations.run_allgather(x, names.part(name, "gradient"), call.process_set)
        for x, name in zip(scaled, call.names, strict=True)
    ]
