# SPDX-License-Identifier: Apache-2.0
"""The primitive: how JAX evaluates, compiles, differentiates and batches an operation.

Derivatives are those of JAX's own collectives. The result of an allreduce is the same on all ranks, and each rank
differentiates its own copy: so the transpose of a sum over the ranks is the identity. The others are linear maps
between the ranks: the transpose of an allgather is a reducescatter, and so on. docs/with-jax.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad, batching

from hpccoll import _core, errors
from hpccoll.jax import eager, lowering
from hpccoll.jax.call import Call
from hpccoll.jax.internals import ORDERED, UNORDERED, Primitive, register_lowering

__all__ = ["bind"]

_LINEAR = [_core.REDUCTIONS.index(name) for name in ("SUM", "AVERAGE")]
_SUM = _core.REDUCTIONS.index("SUM")

operation = Primitive("hpccoll")
operation.multiple_results = True


def bind(call: Call, *arrays: Any) -> list[Any]:
    """Make the operation a part of what JAX traces now; return its results on this rank."""
    results: list[Any] = operation.bind(*arrays, call=call)
    return results


@operation.def_impl
def _evaluate(*arrays: Any, call: Call) -> list[Any]:
    results = eager.run(call, arrays, call.name)
    eager.numbers.note(call)
    return results


@operation.def_effectful_abstract_eval
def _abstract(*avals: Any, call: Call) -> tuple[list[ShapedArray], set[Any]]:
    shapes = call.shapes([aval.shape for aval in avals], [np.dtype(aval.dtype) for aval in avals])
    return [ShapedArray(shape, dtype) for shape, dtype in shapes], {ORDERED if call.ordered else UNORDERED}


register_lowering(operation, lowering.lower, "cpu")
register_lowering(operation, lowering.refuse_platform)


# ---- batching --------------------------------------------------------------------------------------------


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    """Rows stay in front where rows mean something; elsewhere the new dimension is one like the others."""
    if call.elementwise:
        results = bind(call, *arrays)
        return results, list(dims) if results else []
    at = 0 if call.operation in ("send", "sendrecv") else 1
    moved = jnp.moveaxis(arrays[0], dims[0], at)
    results = bind(call.batched(moved.shape[at]), moved)
    return results, [at] * len(results)


batching.primitive_batchers[operation] = _batch


# ---- derivatives -----------------------------------------------------------------------------------------


def _refuse(call: Call) -> None:
    if call.operation not in _TRANSPOSES:
        raise errors.UnsupportedError(f"{call.operation} {call.name!r} has no derivative; see docs/with-jax.md")
    if call.operation in ("allreduce", "reducescatter") and call.reduction not in _LINEAR:
        raise errors.UnsupportedError(
            f"{call.operation} {call.name!r}: {_core.REDUCTIONS[call.reduction]} has no derivative; SUM and AVERAGE do"
        )


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    eager.numbers.forget(call)
    results = bind(call, *primals)
    if not any(jnp.issubdtype(primal.dtype, jnp.inexact) for primal in primals):
        return results, [ad.Zero(ShapedArray(result.shape, result.dtype).to_tangent_aval()) for result in results]
    _refuse(call)
    whole = [ad.instantiate_zeros(tangent) for tangent in tangents]
    return results, bind(call.numbered(eager.numbers.last(call)).also("tangent"), *whole)


ad.primitive_jvps[operation] = _jvp


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1.0 else x * jnp.asarray(factor, x.dtype)


def _to_allreduce(ct: Any, call: Call, shape: Any) -> Any:
    del shape
    return bind(call.also("transpose"), ct)[0] if call.of_each else _scaled(ct, call.factor)


def _total(ct: Any, call: Call) -> Any:
    """The sum over the ranks, of which each keeps a part. As a linear map between the ranks it is its own transpose."""
    whole = call.also("transpose", operation="allreduce", reduction=_SUM, root=-1, rows=None, of_each=True)
    return bind(whole, ct)[0]


def _to_broadcast(ct: Any, call: Call, shape: Any) -> Any:
    del shape
    # each rank takes its part with the same steps: else one whose part is empty would not differentiate the sum again
    return jnp.where(call.rank == call.root, _total(ct, call), jnp.zeros_like(ct))


def _to_allgather(ct: Any, call: Call, shape: Any) -> Any:
    if call.rows is None:
        return bind(call.also("transpose", operation="reducescatter", reduction=_SUM), ct)[0]
    total = _total(ct, call)
    begin = sum(call.rows[: call.rank])
    return total[begin : begin + shape[0]]


def _to_reducescatter(ct: Any, call: Call, shape: Any) -> Any:
    rows = tuple(shape[0] // call.size + (r < shape[0] % call.size) for r in range(call.size))
    plain = {"reduction": _SUM, "prescale": 1.0, "postscale": 1.0, "wire": _core.WIRE_SAME}
    gathered = bind(call.also("transpose", operation="allgather", rows=rows, **plain), ct)[0]
    return _scaled(gathered, call.factor)


def _to_alltoall(ct: Any, call: Call, shape: Any) -> Any:
    del shape
    return bind(call.also("transpose", splits=call.rows, rows=call.splits), ct)[0]


def _to_sendrecv(ct: Any, call: Call, shape: Any) -> Any:
    back = {"root": call.source, "source": call.root, "tag": call.source_tag, "source_tag": call.tag}
    return bind(call.also("transpose", received=(tuple(shape), np.dtype(ct.dtype)), **back), ct)[0]


_TRANSPOSES: dict[str, Callable[[Any, Call, Any], Any]] = {
    "allreduce": _to_allreduce,
    "broadcast": _to_broadcast,
    "allgather": _to_allgather,
    "reducescatter": _to_reducescatter,
    "alltoall": _to_alltoall,
    "sendrecv": _to_sendrecv,
}


def _transpose(cts: Sequence[Any], *operands: Any, call: Call) -> list[Any]:
    _refuse(call)
    rule = _TRANSPOSES[call.operation]
    return [
        rule(ad.instantiate_zeros(ct), call, operand.aval.shape) if ad.is_undefined_primal(operand) else None
        for ct, operand in zip(cts, operands, strict=True)
    ]


ad.primitive_transposes[operation] = _transpose
