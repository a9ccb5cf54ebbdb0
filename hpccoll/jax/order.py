# SPDX-License-Identifier: Apache-2.0
"""Orders the steps of a program so that ranks cannot deadlock.

XLA begins a step of a program when its inputs are computed *and* the memory for its results is free. It plans memory in
an order that differs between ranks. So on one rank call A could wait for memory that call B still uses, while on
another rank B waits for memory of A: a correct program deadlocked. Two rules prevent this.

A call becomes three steps. *ready*: its arrays are computed, and its results have memory. Then the call itself, which
needs nothing else. *finished*: other steps may use its results, and reuse the memory of its arrays. Each call has a
*level*: the length of the longest chain of calls that it depends on. If a call at level 3 needs the result of a call at
level 1, that result is finished only after all calls of levels 1 and 2 are ready. So the inputs of a call wait only for
calls of lower levels. A call has the same level on all ranks, in whatever order they make their calls.

A loop or a condition with calls is one step for XLA, which plans its memory together with that of the other steps. So
when the calls of a level are ready, its loops and conditions run one after another, in the order of their calls' names.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hpccoll.jax.internals import ir
from hpccoll.jax.steps import attributes_of, behind, blocks, calls, in_three, is_call, many, operations, ticket, uses

__all__ = ["arrange"]


def arrange(block: Any) -> None:
    """Order the steps of a block, and of the loops and conditions in it that have calls."""
    levels = _Levels(block)
    for op in levels.loops:
        for inner in blocks(op):
            arrange(inner)
    if levels.of:
        if len(set(levels.of.values())) < len(levels.of):  # else each call depends on the one before it
            for call in levels.calls:
                in_three(call)
            _Stages(_Levels(block)).write()
        many(block)


class _Levels:
    """The levels of the calls of a block, and of its loops and conditions that have calls."""

    def __init__(self, block: Any) -> None:
        *self.operations, self.end = operations(block)
        self.calls = [op for op in self.operations if is_call(op)]
        self.loops = {op: None for op in self.operations for inner in blocks(op) if any(calls(inner))}
        self.of: dict[Any, int] = {}
        self._find()
        self.last = max(self.of.values(), default=0)
        self._needed = self._find_needed()

    def _find(self) -> None:
        leveled = {*self.calls, *self.loops}
        needs: dict[Any, int] = {}
        for op in self.operations:
            level = max((needs.get(value, 0) for value in uses(op)), default=0)
            if op in leveled:
                self.of[op] = level
                level += 1
            needs.update(dict.fromkeys(op.results, level))

    def _find_needed(self) -> dict[Any, int]:
        """Return, for each value, the lowest level of a call that depends on it."""
        lowest: dict[Any, int] = {}
        for op in reversed(self.operations):
            levels = [lowest[value] for value in op.results if value in lowest]
            levels += [self.of[op]] if op in self.of else []
            for value in uses(op) if levels else ():
                lowest[value] = min(*levels, lowest.get(value, self.last))
        return lowest

    def until(self, call: Any) -> int:
        """Return the highest level whose calls must be ready before this call is finished."""
        return min([self.last, *(self._needed[value] - 1 for value in call.results if value in self._needed)])


class _Stages:
    """The new order of a block: for each level the steps up to *ready*, then the steps that use finished calls."""

    def __init__(self, levels: _Levels) -> None:
        self.levels = levels
        self.tickets = {call.operands[len(call.operands) - 1]: call for call in levels.calls}
        """The call of each ticket."""
        self.stages: defaultdict[int, list[Any]] = defaultdict(list)
        self.loops: defaultdict[int, list[Any]] = defaultdict(list)
        """By level, the loops and conditions."""
        self.finished: defaultdict[int, list[Any]] = defaultdict(list)
        """By level, the *finished* steps of the calls that wait for this level and not for a higher one."""
        self._values: dict[Any, int] = {}
        for op in levels.operations:
            self._place(op)

    def _place(self, op: Any) -> None:
        level = self.levels.of.get(op, 0)
        call = self._finished_call(op)
        if op in self.levels.loops:
            self.loops[level].append(op)
            self._values.update(dict.fromkeys(op.results, 2 * level + 1))
            return
        if call is not None:
            until = self.levels.until(call)
            self.finished[until].append(op)
            stage = 2 * until + 1
        else:
            stage = max((self._values.get(value, 0) for value in uses(op)), default=0)
        stage = max(stage, 2 * level)
        self.stages[stage].append(op)
        self._values.update(dict.fromkeys(op.results, stage))

    def _finished_call(self, op: Any) -> Any:
        """Return the call whose *finished* step this is; None: this is another kind of step."""
        count = len(op.operands)
        call = self.tickets.get(op.operands[count - 1]) if count else None
        return None if call is None or call == op else call

    def write(self) -> None:
        """Move all steps to the end of the block, in the new order."""
        with ir.InsertionPoint(self.levels.end):
            for level in range(self.levels.last + 1):
                self._move(self.stages[2 * level])
                self._end_level(level)
                self._move(self.stages[2 * level + 1])

    def _move(self, some: list[Any]) -> None:
        for op in some:
            op.move_before(self.levels.end)

    def _end_level(self, level: int) -> None:
        tickets = [value for value, call in self.tickets.items() if self.levels.of[call] == level]
        for loop in sorted(self.loops[level], key=_names):
            self._run_behind(loop, tickets)
            tickets = [ticket([*tickets, *_smallest(loop.results)])]
        if len(tickets) > 1:
            tickets = [ticket(tickets)]
        for op in self.finished[level]:
            op.operands[len(op.operands) - 1] = tickets[0]

    def _run_behind(self, loop: Any, tickets: Sequence[Any]) -> None:
        """Move a loop or a condition to the end of the block, and make it wait for the tickets."""
        for value in _smallest(loop.operands) if tickets else ():
            place = list(loop.operands).index(value)
            loop.operands[place] = behind(value, ticket(tickets))
        loop.move_before(self.levels.end)


def _names(loop: Any) -> list[tuple[Any, ...]]:
    """Return a sort key for a loop, from its calls. The number of a set comes last, because it may differ by rank."""
    found = [attributes_of(call) for block in blocks(loop) for call in calls(block)]
    return sorted(tuple(attributes[key].value for key in ("name", "operation", "size", "set")) for attributes in found)


def _smallest(values: Sequence[Any]) -> list[Any]:
    """Return the smallest array that has elements, in a list; an empty list if there is none."""
    arrays = [value for value in values if isinstance(value.type, ir.RankedTensorType) and 0 not in value.type.shape]
    sizes = {i: _elements(value) for i, value in enumerate(arrays)}
    return [arrays[min(sizes, key=lambda i: sizes[i])]] if arrays else []


def _elements(value: Any) -> int:
    count = 1
    for rows in value.type.shape:
        count *= rows
    return count
