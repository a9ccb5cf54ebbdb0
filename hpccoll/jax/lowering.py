# SPDX-License-Identifier: Apache-2.0
"""An operation of a traced program becomes a custom call of XLA, which asks the engine without Python (ext/xla)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from hpccoll import _xla, errors
from hpccoll.jax import names
from hpccoll.jax.call import MESSAGES, Call
from hpccoll.jax.internals import (
    ORDERED,
    TokenSet,
    custom_call,
    ir,
    is_kept_argument,
    place_in_program,
    stablehlo,
    tell_calls,
)

__all__ = ["lower", "refuse_platform"]

_CONFIG = "mhlo.backend_config"
"""The attribute of a custom call that has its attributes."""

jax.ffi.register_ffi_target(_xla.CALL, _xla.handler, platform="cpu")
jax.ffi.register_ffi_target(_xla.NOTHING, _xla.nothing, platform="cpu")


def lower(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    """Lower for the CPU."""
    _check_devices(ctx, call)
    _forbid_sequence()
    place, key = place_in_program(ctx.module_context, call.set, call.name), (call.set, call.name)
    if call.operation not in MESSAGES:
        call = dataclasses.replace(call, name=names.repeated(call.name, place))
    placed = [aval for aval in ctx.avals_out if aval.size or call.ordered]
    results: list[Any] = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype)) for aval in placed]
    layouts = [[_row_major(aval) for aval in avals] for avals in (ctx.avals_in, placed)]
    if call.ordered:
        operands = (ctx.tokens_in.get(ORDERED), *operands)
        results = [stablehlo.TokenType.get(), *results]
        layouts = [[(), *one] for one in layouts]
    operation = custom_call(
        _xla.CALL,
        result_types=results,
        operands=operands,
        backend_config=_attributes(call) | ({} if call.ordered else _empty(ctx.avals_out)),
        has_side_effect=True,
        api_version=4,
        operand_output_aliases=_in_place(operands, ctx.avals_in) if call.in_place else {},
        operand_layouts=layouts[0],
        result_layouts=layouts[1],
    )
    if call.operation not in MESSAGES:
        tell_calls(ctx.module_context, key, operation, _write_calls)
    made: Sequence[Any] = operation.results
    if not call.ordered:
        return _with_empty(made, ctx.avals_out)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(TokenSet({ORDERED: made[0]})))
    return made[1:]


def _write_calls(operation: Any, calls: int) -> None:
    """Write into an operation how many calls of its name the program has: the ranks must have as many."""
    int64 = ir.IntegerType.get_signless(64)
    known = {entry.name: entry.attr for entry in operation.attributes[_CONFIG]}
    operation.attributes[_CONFIG] = ir.DictAttr.get({**known, "calls": ir.IntegerAttr.get(int64, calls)})


def _in_place(operands: Sequence[Any], avals: Sequence[Any]) -> dict[int, int]:
    """By the number of an operand, which result of those that are not empty lies where it lies.

    XLA copies a value first that something else needs too. An argument that the caller keeps always is one, and has a
    result of its own: that costs no copy.
    """
    places = [i for i, aval in enumerate(avals) if aval.size]
    return {i: place for place, i in enumerate(places) if not is_kept_argument(operands[i])}


def _empty(avals: Sequence[Any]) -> dict[str, Any]:
    """The rows of results that are empty. They are no results of the custom call: ext/xla/xla.c says why."""
    if all(aval.size for aval in avals):
        return {}
    return {"empty": ir.DenseI64ArrayAttr.get([-1 if aval.size else aval.shape[0] for aval in avals])}


def _with_empty(made: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """All results: what the custom call made, and the empty ones."""
    values = iter(made)
    return [next(values) if aval.size else mlir.ir_constant(np.empty(aval.shape, aval.dtype)) for aval in avals]


def _forbid_sequence() -> None:
    """Make XLA start independent steps of the program without waiting for one another: see _xla.MANY_STEPS."""
    block = ir.InsertionPoint.current.block
    attributes = block.operations[0].attributes if len(block.operations) else {}
    if "call_target_name" in attributes and attributes["call_target_name"] == ir.StringAttr.get(_xla.NOTHING):
        return
    with ir.InsertionPoint.at_block_begin(block):
        for step in range(_xla.MANY_STEPS):
            bytes_ = ir.RankedTensorType.get([_xla.LARGE_BYTES], ir.IntegerType.get_unsigned(8))
            custom_call(
                _xla.NOTHING,
                result_types=[] if step else [bytes_],
                operands=[],
                backend_config={},
                has_side_effect=True,
                api_version=4,
            )


def refuse_platform(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    """Say that programs for other devices than the CPU have no such operation."""
    del operands
    raise errors.UnsupportedError(
        f"{call.operation} {call.name!r} in a program for {' and '.join(ctx.module_context.platforms)}: hpccoll.jax "
        "serves programs for the CPU. Run it with JAX_PLATFORMS=cpu, or call it outside of jit"
    )


def _row_major(aval: Any) -> tuple[int, ...]:
    return tuple(range(aval.ndim - 1, -1, -1))


def _check_devices(ctx: Any, call: Call) -> None:
    """A program for several devices would ask for each operation several times."""
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
    int64, float64 = ir.IntegerType.get_signless(64), ir.F64Type.get()
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
    attributes: dict[str, Any] = {key: ir.IntegerAttr.get(int64, value) for key, value in numbers.items()}
    attributes["name"] = ir.StringAttr.get(call.name)
    attributes["prescale"] = ir.FloatAttr.get(float64, call.prescale)
    attributes["postscale"] = ir.FloatAttr.get(float64, call.postscale)
    if call.splits is not None:
        attributes["splits"] = ir.DenseI64ArrayAttr.get(list(call.splits))
    return attributes
