# SPDX-License-Identifier: Apache-2.0
"""Lowers an operation of a traced program to a custom call of XLA, which runs without Python (ext/xla)."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from hpccoll import _xla, errors
from hpccoll.jax import program, steps
from hpccoll.jax.call import Call
from hpccoll.jax.internals import ORDERED, TokenSet, count_call, ir, is_kept_argument, when_lowered

__all__ = ["lower", "refuse_platform"]

jax.ffi.register_ffi_target(_xla.CALL, _xla.handler, platform="cpu")
jax.ffi.register_ffi_target(_xla.NOTHING, _xla.nothing, platform="cpu")
when_lowered(program.finish)


def lower(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    """Lower an operation for the CPU."""
    _check_devices(ctx, call)
    count_call(ctx.module_context)
    placed = [aval for aval in ctx.avals_out if aval.size or call.ordered]
    arrays = len(operands) - bool(call.follows)
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype)) for aval in placed]
    tokens = [ctx.tokens_in.get(ORDERED)] if call.ordered else []
    made = steps.step(
        _xla.CALL,
        [*tokens, *operands],
        [*(token.type for token in tokens), *types],
        _in_place(operands[:arrays], ctx.avals_in[:arrays]) if call.in_place else {},
        _attributes(call) | ({} if call.ordered else _empty(ctx.avals_out)),
    )
    if not call.ordered:
        return _with_empty(made, ctx.avals_out)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(TokenSet({ORDERED: made[0]})))
    return made[1:]


def _in_place(operands: Sequence[Any], avals: Sequence[Any]) -> dict[int, int]:
    """Return which result shares the memory of each operand: its index among the results that are not empty.

    If other code needs the operand, too, XLA copies it before the call. Other code always needs an argument that the
    caller keeps, so its result gets separate memory, which saves the copy.
    """
    places = [i for i, aval in enumerate(avals) if aval.size]
    return {i: place for place, i in enumerate(places) if not is_kept_argument(operands[i])}


def _empty(avals: Sequence[Any]) -> dict[str, Any]:
    """Return an attribute with the rows of empty results, which the custom call lacks: ext/xla/xla.c says why."""
    if all(aval.size for aval in avals):
        return {}
    return {"empty": ir.DenseI64ArrayAttr.get([-1 if aval.size else aval.shape[0] for aval in avals])}


def _with_empty(made: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Return all results: those of the custom call, and the empty ones."""
    values = iter(made)
    return [next(values) if aval.size else mlir.ir_constant(np.empty(aval.shape, aval.dtype)) for aval in avals]


def refuse_platform(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    """Raise an error: only programs for the CPU can have the operation."""
    del operands
    raise errors.UnsupportedError(
        f"{call.operation} {call.name!r} in a program for {' and '.join(ctx.module_context.platforms)}: hpccoll.jax "
        "serves programs for the CPU. Run it with JAX_PLATFORMS=cpu, or call it outside of jit"
    )


def _check_devices(ctx: Any, call: Call) -> None:
    """Refuse a program for several local devices, which would make each call once per device."""
    axes = ctx.module_context.axis_context
    mesh, replicas = getattr(axes, "mesh", None), getattr(axes, "axis_env", None)
    counts = (getattr(axes, "num_devices", 1), getattr(mesh, "size", 1), getattr(replicas, "nreps", 1))
    many = max(count or 1 for count in counts)
    if many > 1:
        raise errors.UnsupportedError(
            f"{call.operation} {call.name!r} in a program for {many} local devices (pmap, shard_map, or "
            "sharded arrays): one process drives one device with hpccoll.jax; start a process per device, as in "
            f"`hpccoll run -np {many}`"
        )


def _attributes(call: Call) -> dict[str, Any]:
    float64 = ir.F64Type.get()
    numbers = {
        "operation": call.code,
        "reduction": call.reduction,
        "wire": call.wire,
        "group": int(call.group),
        "root": call.root,
        "set": call.set,
        "rank": call.rank,
        "size": call.size,
        "tag": call.tag,
        "source": call.source,
        "source_tag": call.source_tag,
    }
    attributes: dict[str, Any] = {key: steps.number(value) for key, value in numbers.items()}
    attributes["name"] = ir.StringAttr.get(call.name)
    attributes["prescale"] = ir.FloatAttr.get(float64, call.prescale)
    attributes["postscale"] = ir.FloatAttr.get(float64, call.postscale)
    if call.tells:
        attributes["tells"] = steps.number(1)
    if call.follows:
        attributes["follows"] = steps.number(1)
        attributes["of"] = ir.StringAttr.get(call.follows)
    if call.back:
        attributes["back"] = steps.number(1)
    if call.splits is not None:
        attributes["splits"] = ir.DenseI64ArrayAttr.get(list(call.splits))
    return attributes
