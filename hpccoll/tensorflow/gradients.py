# SPDX-License-Identifier: Apache-2.0
"""Registers the derivative of each operation with TensorFlow, for graphs; the operation's attributes determine it."""

import struct
from typing import Any

import tensorflow as tf

from hpccoll import _core, compression
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.reductions import Reduction
from hpccoll.tensorflow import derivatives
from hpccoll.tensorflow.dispatch import OPERATIONS
from hpccoll.tensorflow.graph import process_set_of

__all__: list[str] = []

_WIRES = {kind.dtype_code: kind for kind in (compression.FP16, compression.BF16)}


def _number(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


def _name(op: Any) -> str:
    """Return the name that the caller gave, or the name made from the call's place in the source."""
    whole: str = op.get_attr("tensor_name").decode()
    return whole.split(".", 1)[-1] if not whole.startswith(tuple(f"{name} at " for name in _core.OPERATIONS)) else whole


def _factors(op: Any) -> tuple[float, float]:
    return _number(op.get_attr("prescale")), _number(op.get_attr("postscale"))


@tf.RegisterGradient("HpccollAllreduce")
def _of_allreduce(op: Any, *gradients: Any) -> list[Any]:
    call = Allreduce(
        _name(op),
        Reduction(op.get_attr("reduction")),
        *_factors(op),
        process_set_of(op.get_attr("set")),
        group=bool(op.get_attr("group")),
        wire=_WIRES.get(op.get_attr("wire")),
    )
    whole = [
        tf.zeros_like(output) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, output in zip(gradients, op.outputs, strict=True)
    ]
    return derivatives.of_allreduce(OPERATIONS, call, whole)


@tf.RegisterGradient("HpccollBroadcast")
def _of_broadcast(op: Any, gradient: Any) -> list[Any]:
    process_set = process_set_of(op.get_attr("set"))
    root = (process_set.ranks or [])[op.get_attr("root")]
    return [derivatives.of_broadcast(OPERATIONS, tf.convert_to_tensor(gradient), root, _name(op), process_set)]


@tf.RegisterGradient("HpccollAllgather")
def _of_allgather(op: Any, gradient: Any, _: Any) -> list[Any]:
    process_set = process_set_of(op.get_attr("set"))
    whole = tf.convert_to_tensor(gradient)
    return [derivatives.of_allgather(OPERATIONS, whole, op.outputs[1], op.inputs[0], _name(op), process_set)]


@tf.RegisterGradient("HpccollAlltoall")
def _of_alltoall(op: Any, gradient: Any, _: Any) -> list[Any]:
    process_set = process_set_of(op.get_attr("set"))
    whole = tf.convert_to_tensor(gradient)
    return [derivatives.of_alltoall(OPERATIONS, whole, op.outputs[1], _name(op), process_set), None]


@tf.RegisterGradient("HpccollReducescatter")
def _of_reducescatter(op: Any, gradient: Any) -> list[Any]:
    reduction, process_set = Reduction(op.get_attr("reduction")), process_set_of(op.get_attr("set"))
    call = Reducescatter([_name(op)], reduction, *_factors(op), process_set)
    return derivatives.of_reducescatter(OPERATIONS, call, [tf.convert_to_tensor(gradient)])
