# SPDX-License-Identifier: Apache-2.0
"""The JAX primitive of all operations: its evaluation, compilation, differentiation and batching.

The derivatives are those of JAX's own collectives. The result of an allreduce is the same on all ranks, and each rank
differentiates its copy of it, so the transpose of a sum over the ranks is the identity. The other operations are linear
maps between the ranks: the transpose of an allgather is a reducescatter, and so on. docs/with-jax.md has the table.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad, batching

from hpccoll import _core, errors
from hpccoll.jax import eager, loops, lowering, pullbacks
from hpccoll.jax.call import Call
from hpccoll.jax.internals import NAME, ORDERED, UNORDERED, Primitive, register_lowering

__all__ = ["bind"]

_LINEAR = [_core.REDUCTIONS.index(name) for name in ("SUM", "AVERAGE")]
_SUM = _core.REDUCTIONS.index("SUM")

operation = Primitive(NAME)
operation.multiple_results = True


def bind(call: Call, *arrays: Any) -> list[Any]:
    """Add the operation to the program that JAX traces; return its results on this rank."""
    results: list[Any] = operation.bind(*arrays, call=call)
    return results


def _split(operands: Sequence[Any], call: Call) -> tuple[list[Any], list[Any]]:
    """Split operands into the arrays and, for a derivative, the ticket of the differentiated call."""
    arrays = len(operands) - bool(call.follows)
    return list(operands[:arrays]), list(operands[arrays:])


@operation.def_impl
def _evaluate(*arrays: Any, call: Call) -> list[Any]:
    return eager.run_traced(call, arrays)


@operation.def_effectful_abstract_eval
def _abstract(*avals: Any, call: Call) -> tuple[list[ShapedArray], set[Any]]:
    arrays, _ = _split(avals, call)
    shapes = call.shapes([aval.shape for aval in arrays], [np.dtype(aval.dtype) for aval in arrays])
    shapes += [((2,), np.dtype(np.uint32))] if call.tells else []
    return [ShapedArray(shape, dtype) for shape, dtype in shapes], {ORDERED if call.ordered else UNORDERED}


register_lowering(operation, lowering.lower, "cpu")
register_lowering(operation, lowering.refuse_platform)
loops.keep_calls()
pullbacks.refuse_other_threads()


# ---- batching --------------------------------------------------------------------------------------------


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    """Batch an operation. If it distributes or concatenates rows, the new dimension goes behind them."""
    arrays, ticket = _split(arrays, call)
    if ticket and dims[-1] is not None:
        ticket = [jnp.take(ticket[0], 0, dims[-1])]  # all elements of the batch have the same ticket
    ticket_dims = [None] if call.tells else []
    if call.elementwise:
        results = bind(call, *arrays, *ticket)
        return results, [*(dims[: len(arrays)] if len(results) > len(ticket_dims) else ()), *ticket_dims]
    at = 0 if call.operation in ("send", "sendrecv") else 1
    moved = jnp.moveaxis(arrays[0], dims[0], at)
    results = bind(call.batched(moved.shape[at]), moved, *ticket)
    return results, [at] * (len(results) - len(ticket_dims)) + ticket_dims


batching.primitive_batchers[operation] = _batch


# ---- derivatives -----------------------------------------------------------------------------------------


def _refuse(call: Call) -> None:
    if call.operation not in _TRANSPOSES:
        raise errors.UnsupportedError(f"{call.operation} {call.name!r} has no derivative; see docs/with-jax.md")
    if call.received is not None and not jnp.issubdtype(call.received[1], jnp.inexact):
        raise errors.UnsupportedError(
            f"{call.operation} {call.name!r} sends floating-point values and receives {call.received[1]}, which has no "
            "derivative to send back: use jax.lax.stop_gradient(x), or two calls"
        )
    if call.operation in ("allreduce", "reducescatter") and call.reduction not in _LINEAR:
        raise errors.UnsupportedError(
            f"{call.operation} {call.name!r}: {_core.REDUCTIONS[call.reduction]} has no derivative; SUM and AVERAGE do"
        )


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    arrays, _ = _split(primals, call)
    differentiated = [bool(jnp.issubdtype(array.dtype, jnp.inexact)) for array in arrays]
    if not any(differentiated):
        results = bind(call, *primals)
        return results, [_no_tangent(result) for result in results]
    *results, ticket = bind(dataclasses.replace(call, tells=call.tells + 1), *primals)
    _refuse(call)
    # the integers of a group have no tangents that could be sent
    whole = [ad.instantiate_zeros(tangent) for tangent in itertools.compress(tangents, differentiated)]
    which = f"tangent {call.tells + 1}" if call.tells else "tangent"  # a second derivative needs another name
    sent = iter(bind(call.also(which, follows=call.name, back=False), *whole, ticket))
    pairs = zip(results, differentiated, strict=True)
    pushed = [next(sent) if has_tangent else _no_tangent(result) for result, has_tangent in pairs]
    return ([*results, ticket], [*pushed, _no_tangent(ticket)]) if call.tells else (results, pushed)


def _no_tangent(result: Any) -> Any:
    return ad.Zero(ShapedArray(result.shape, result.dtype).to_tangent_aval())


ad.primitive_jvps[operation] = _jvp


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1.0 else x * jnp.asarray(factor, x.dtype)


def _to_allreduce(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    del like
    return bind(call.also("transpose"), ct, *ticket)[0] if call.of_each else _scaled(ct, call.factor)


def _total(ct: Any, call: Call, ticket: list[Any]) -> Any:
    """Return the sum over the ranks, of which each rank uses another part. So the transpose is the sum again."""
    whole = call.also("transpose", operation="allreduce", reduction=_SUM, root=-1, rows=None, of_each=True)
    return bind(whole, ct, *ticket)[0]


def _to_broadcast(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    del like
    # All ranks use the sum, because all of them must differentiate it again; a rank that ignored it would not.
    return jnp.where(call.rank == call.root, _total(ct, call, ticket), jnp.zeros_like(ct))


def _to_allgather(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    if call.rows is None:
        return bind(call.also("transpose", operation="reducescatter", reduction=_SUM), ct, *ticket)[0]
    total = _total(ct, call, ticket)
    begin = sum(call.rows[: call.rank])
    return total[begin : begin + like.shape[0]]


def _to_reducescatter(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    n = like.shape[0]
    rows = tuple(n // call.size + (r < n % call.size) for r in range(call.size))
    plain = {"reduction": _SUM, "prescale": 1.0, "postscale": 1.0, "wire": _core.WIRE_SAME}
    gathered = bind(call.also("transpose", operation="allgather", rows=rows, **plain), ct, *ticket)[0]
    return _scaled(gathered, call.factor)


def _to_alltoall(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    del like
    return bind(call.also("transpose", splits=call.rows, rows=call.splits), ct, *ticket)[0]


def _to_sendrecv(ct: Any, call: Call, like: Any, ticket: list[Any]) -> Any:
    back = {"root": call.source, "source": call.root, "tag": call.source_tag, "source_tag": call.tag}
    received = tuple(like.shape), np.dtype(like.dtype)  # what came may have another dtype than what was sent
    return bind(call.also("transpose", received=received, back=not call.back, **back), ct, *ticket)[0]


_TRANSPOSES: dict[str, Callable[[Any, Call, Any, list[Any]], Any]] = {
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
    arrays, ticket = _split(operands, call)
    found = [
        rule(ad.instantiate_zeros(ct), call, array.aval, ticket) if ad.is_undefined_primal(array) else None
        for ct, array in zip(cts, arrays, strict=False)  # the last result may be a ticket
    ]
    return [*found, *([None] * len(ticket))]


ad.primitive_transposes[operation] = _transpose
