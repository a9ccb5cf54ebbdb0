# SPDX-License-Identifier: Apache-2.0
"""Writes the custom calls of hpccoll into a program, and finds them again."""

from collections.abc import Iterator, Sequence
from typing import Any

from hpccoll import _xla
from hpccoll.jax.internals import custom_call, ir, stablehlo

__all__ = [
    "attributes_of", "behind", "blocks", "calls", "in_three", "is_call", "many", "number", "operations", "step",
    "ticket", "uses", "write",
]  # fmt: skip

_CONFIG = "mhlo.backend_config"
"""The dictionary in which XLA keeps the attributes of a custom call."""


# ---- writing -------------------------------------------------------------------------------------------


def number(value: int) -> Any:
    """Return an integer as an attribute of 64 bits."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _bytes(count: int) -> Any:
    return ir.RankedTensorType.get([count], ir.IntegerType.get_unsigned(8))


def _row_major(type_: Any) -> tuple[int, ...]:
    return tuple(range(type_.rank - 1, -1, -1)) if isinstance(type_, ir.RankedTensorType) else ()


def step(
    target: str, operands: Sequence[Any], types: Sequence[Any], aliases: dict[int, int], attributes: dict[str, Any]
) -> list[Any]:
    """Write a custom call into the program.

    :param target: the name of the custom call
    :param aliases: for the index of an operand, the index of the result that shares its memory
    :returns: the results
    """
    made = custom_call(
        target,
        result_types=list(types),
        operands=list(operands),
        backend_config=attributes,
        has_side_effect=True,
        api_version=4,
        operand_output_aliases=aliases,
        operand_layouts=[_row_major(operand.type) for operand in operands],
        result_layouts=[_row_major(type_) for type_ in types],
    )
    return list(made.results)


def ticket(of: Sequence[Any]) -> Any:
    """Return a byte that is computed when all of these values are computed: a step that uses it waits for them."""
    return step(_xla.NOTHING, of, [_bytes(1)], {}, {})[0]


def ready(arrays: Sequence[Any], in_place: Sequence[int], types: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """Write the step before a call.

    :param in_place: the indices of the arrays that share memory with results
    :param types: the types of the other results, which need memory
    :returns: a ticket, which is computed when the arrays are; the arrays for the call; the memory for the other results
    """
    kinds = [_bytes(1), *(arrays[i].type for i in in_place), *types]
    aliases = {i: 1 + place for place, i in enumerate(in_place)}
    is_ready, *made = step(_xla.NOTHING, arrays, kinds, aliases, {})
    moved = dict(zip(in_place, made, strict=False))
    return is_ready, [moved.get(i, array) for i, array in enumerate(arrays)], made[len(in_place) :]


def finished(results: Sequence[Any], arrays: Sequence[Any], is_ready: Any) -> list[Any]:
    """Write the step after a call. Other steps use its results, which are those of the call.

    The arrays are operands of this step, so that XLA does not reuse their memory for another call before it.

    :param is_ready: the ticket of the call. It is an operand twice, because order.py replaces the last operand
    """
    types = [result.type for result in results]
    return step(_xla.NOTHING, [*results, *arrays, is_ready, is_ready], types, {i: i for i in range(len(results))}, {})


def in_three(call: Any) -> None:
    """Replace a call by three steps: *ready*, the call, *finished*. order.py explains them."""
    operands, results = list(call.operands), list(call.results)
    in_place = {alias.operand_index: ([*alias.output_tuple_indices] or [0])[0] for alias in _aliases(call)}
    values = [i for i, result in enumerate(results) if _is_array(result)]
    fresh = [i for i in values if i not in in_place.values() and 0 not in results[i].type.shape]
    with ir.InsertionPoint(call):
        is_ready, arrays, memory = ready(operands, list(in_place), [results[i].type for i in fresh])
        aliases = in_place | {len(operands) + place: i for place, i in enumerate(fresh)}
        attributes = attributes_of(call)
        trailing = attributes["trailing"].value if "trailing" in attributes else 0
        attributes |= {"trailing": number(trailing + len(memory) + 1)}
        made = step(_xla.CALL, [*arrays, *memory, is_ready], [result.type for result in results], aliases, attributes)
        kept = [operand for i, operand in enumerate(operands) if i not in in_place and _is_array(operand)]
        usable = dict(zip(values, finished([made[i] for i in values], kept, is_ready), strict=True))
    for i, result in enumerate(results):
        result.replace_all_uses_with(usable.get(i, made[i]))
    call.erase()


def _aliases(call: Any) -> list[Any]:
    if "output_operand_aliases" not in call.attributes:  # jax.export leaves an empty list out
        return []
    return [stablehlo.OutputOperandAlias(alias) for alias in call.attributes["output_operand_aliases"]]


def _is_array(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def behind(value: Any, other: Any) -> Any:
    """Return a copy of the value, in the same memory, that is computed after `other`."""
    return step(_xla.NOTHING, [value, other], [value.type], {0: 0}, {})[0]


def many(block: Any) -> None:
    """Make XLA run independent steps of a block concurrently: see _xla.MANY_STEPS."""
    with ir.InsertionPoint.at_block_begin(block):
        for place in range(_xla.MANY_STEPS):
            step(_xla.NOTHING, [], [] if place else [_bytes(_xla.LARGE_BYTES)], {}, {})


# ---- reading -------------------------------------------------------------------------------------------


def is_call(op: Any) -> bool:
    """Return whether this is a call of hpccoll."""
    return bool(op.name == "stablehlo.custom_call" and op.attributes["call_target_name"].value == _xla.CALL)


def blocks(op: Any) -> list[Any]:
    """Return the blocks of an operation's regions."""
    return [block for region in op.regions for block in region.blocks]


def operations(block: Any) -> list[Any]:
    """Return the operations of a block."""
    return [op.operation for op in block.operations]


def calls(block: Any) -> Iterator[Any]:
    """Yield all calls of a block, including those in its loops and branches."""
    for op in operations(block):
        if is_call(op):
            yield op
        for inner in blocks(op):
            yield from calls(inner)


def uses(op: Any) -> Iterator[Any]:
    """Yield the values that an operation uses, including those that its regions use."""
    yield from op.operands
    for block in blocks(op):
        for inner in operations(block):
            yield from uses(inner)


def attributes_of(call: Any) -> dict[str, Any]:
    """Return the attributes of a call."""
    return {entry.name: entry.attr for entry in call.attributes[_CONFIG]}


def write(call: Any, **changes: Any) -> None:
    """Change attributes of a call."""
    call.attributes[_CONFIG] = ir.DictAttr.get({**attributes_of(call), **changes})
