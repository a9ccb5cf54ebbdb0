# SPDX-License-Identifier: Apache-2.0
"""Finishes a lowered program: inserts functions where they are called, and numbers and orders the calls."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from hpccoll import _xla
from hpccoll.jax import names
from hpccoll.jax.internals import ir
from hpccoll.jax.order import arrange
from hpccoll.jax.steps import attributes_of, blocks, calls, is_call, number, operations, write

__all__ = ["finish"]

_CONDITIONS = ("stablehlo.case", "stablehlo.if")
_MESSAGES = (_xla.SEND, _xla.RECEIVE, _xla.SENDRECV)
"""Operations that have no names: ranks match them by order."""


def finish(module: Any) -> None:
    """Insert functions with calls, number the calls of a program, and order its steps."""
    functions = {op.attributes["sym_name"].value: op for op in operations(module.body) if "sym_name" in op.attributes}
    main = functions["main"].regions[0].blocks[0]
    having = _with_calls(functions)
    _put_functions_in_place(main, functions, having)
    for name in having - {"main"}:
        functions[name].erase()
    _forget_own_tickets(main)
    _number_calls(main)
    arrange(main)


# ---- nested functions ------------------------------------------------------------------------------------


def _callees(block: Any) -> Iterator[str]:
    for op in operations(block):
        if op.name == "func.call":
            yield op.attributes["callee"].value
        for inner in blocks(op):
            yield from _callees(inner)


def _with_calls(functions: dict[str, Any]) -> set[str]:
    """Return the names of the functions that have calls of hpccoll, or call such a function."""
    having = {name for name, op in functions.items() for block in blocks(op) if any(calls(block))}
    called = {name: {callee for block in blocks(op) for callee in _callees(block)} for name, op in functions.items()}
    while more := {name for name, callees in called.items() if callees & having} - having:
        having |= more
    return having


def _put_functions_in_place(block: Any, functions: dict[str, Any], having: set[str]) -> None:
    """Insert copies of functions with calls where they are called, as XLA does."""
    for op in operations(block):
        if op.name == "func.call" and op.attributes["callee"].value in having:
            function = functions[op.attributes["callee"].value].clone(ir.InsertionPoint(op))
            body = function.regions[0].blocks[0]
            _put_functions_in_place(body, functions, having)
            _move_body(body, op)
            function.erase()
        else:
            for inner in blocks(op):
                _put_functions_in_place(inner, functions, having)


def _move_body(body: Any, call: Any) -> None:
    for argument, operand in zip(list(body.arguments), list(call.operands), strict=True):
        argument.replace_all_uses_with(operand)
    *moved, end = operations(body)
    for op in moved:
        op.move_before(call)
    for result, value in zip(list(call.results), list(end.operands), strict=True):
        result.replace_all_uses_with(value)
    call.erase()


# ---- numbers ---------------------------------------------------------------------------------------------

Key = tuple[int, str]
"""The number of a process set, and a name. Each set is numbered separately, as its ranks may not be in the others."""


def _number_calls(main: Any) -> None:
    """Number the calls of each set and name, and write their total into each of them."""
    numbered: list[tuple[Key, Any, int]] = []
    totals = _count(main, Counter(), numbered)
    for key, call, place in numbered:
        total = {"calls": number(totals[key])} if totals[key] > 1 else {}
        write(call, name=ir.StringAttr.get(names.repeated(key[1], place)), **total)


def _count(block: Any, before: Counter[Key], numbered: list[tuple[Key, Any, int]]) -> Counter[Key]:
    """Count the calls of a block, starting with `before`. Branches share numbers, because only one of them runs."""
    counts = before.copy()
    for op in operations(block):
        if is_call(op):
            key = _key(op)
            if key:
                counts[key] += 1
                numbered.append((key, op, counts[key]))
        elif op.name in _CONDITIONS:
            for branch in [_count(inner, counts, numbered) for inner in blocks(op)]:
                counts |= branch
        else:
            for inner in blocks(op):
                counts = _count(inner, counts, numbered)
    return counts


def _forget_own_tickets(main: Any) -> None:
    """Identify derivatives whose call is in the same program by their number in it, instead of by a ticket.

    Such a name is the same in each run of the program, so later agreements need fewer bytes. The call gets the
    attribute `derived`, by which ranks check that all of them have the derivatives in the program. If they do not, the
    call fails; so a derivative begins only after its call, even if it does not need the result, or else it would wait
    for the other ranks. Derivatives of messages have no names and keep their tickets.
    """
    with_tickets: defaultdict[Key, list[Any]] = defaultdict(list)
    for call in calls(main):
        attributes, key = attributes_of(call), _key(call)
        follows = key is not None and "of" in attributes and attributes["follows"].value != 0
        if key is not None and follows and (before := with_tickets.get((key[0], attributes["of"].value))):
            for origin in before:
                write(origin, derived=number(1))
            write(call, follows=number(0), trailing=number(1))
            follows = False
        if key is not None and "tells" in attributes and not follows and any(True for _ in _ticket(call).uses):
            with_tickets[key].append(call)


def _ticket(call: Any) -> Any:
    """Return the ticket of a call: its last result."""
    return call.results[len(call.results) - 1]


def _key(call: Any) -> Key | None:
    attributes = attributes_of(call)
    if attributes["operation"].value in _MESSAGES:
        return None
    return attributes["set"].value, names.without_number(attributes["name"].value)
