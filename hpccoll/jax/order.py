# SPDX-License-Identifier: Apache-2.0
"""The order of the steps of a program.

XLA begins a step of a program when its values are there *and* the memory that it writes to is free. It plans memory by
an order of its own, which differs between ranks. So an operation could wait for memory that another one still uses, and
on the next rank the other one for it: a right program stood still. Two rules prevent it.

A call has three steps. *ready*: its arrays are there, and its results have memory. The call begins behind it and needs
nothing else. *finished*: its results may be used, and the memory of its arrays may be used again. Each call has a
*level*: how many calls come before it of which each needs the one before. No call is finished before all calls of its
level are ready, and of each higher level up to the first that needs it. So what makes the arrays of a call waits only
for calls of lower levels. Calls have the same levels on all ranks, in whatever order these make them.

A loop or a condition with calls is one step for XLA, and its memory is planned with that of the others. So those of one
level run one after another, in the order of their calls' names, when the calls of this level are ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hpccoll.jax.internals import ir
from hpccoll.jax.steps import attributes_of, behind, blocks, calls, in_three, is_call, many, operations, ticket, uses

__all__ = ["arrange"]


def arrange(block: Any) -> None:
    """Put the steps of a block with calls into order, and those of the loops and conditions in it."""
    levels = _Levels(block)
    for op in levels.loops:
        for inner in blocks(op):
            arrange(inner)
    if levels.of:
        if len(set(levels.of.values())) < len(levels.of):  # else each needs the one before, as where there is one
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
        own = {*self.calls, *self.loops}
        needs: dict[Any, int] = {}
        for op in self.operations:
            level = max((needs.get(value, 0) for value in uses(op)), default=0)
            if op in own:
                self.of[op] = level
                level += 1
            needs.update(dict.fromkeys(op.results, level))

    def _find_needed(self) -> dict[Any, int]:
        """By value, the lowest level of a call that needs it."""
        lowest: dict[Any, int] = {}
        for op in reversed(self.operations):
            levels = [lowest[value] for value in op.results if value in lowest]
            levels += [self.of[op]] if op in self.of else []
            for value in uses(op) if levels else ():
                lowest[value] = min(*levels, lowest.get(value, self.last))
        return lowest

    def until(self, call: Any) -> int:
        """Return the level of which all calls are ready before this one is finished: the last that its values allow."""
        return min([self.last, *(self._needed[value] - 1 for value in call.results if value in self._needed)])


class _Stages:
    """What of a block comes when: for each level what makes calls ready, then what finished calls give."""

    def __init__(self, levels: _Levels) -> None:
        self.levels = levels
        self.tickets = {call.operands[len(call.operands) - 1]: call for call in levels.calls}
        """Each call, by its ticket."""
        self.stages: defaultdict[int, list[Any]] = defaultdict(list)
        self.loops: defaultdict[int, list[Any]] = defaultdict(list)
        """By level."""
        self.finished: defaultdict[int, list[Any]] = defaultdict(list)
        """By level, the last steps of the calls that end with it."""
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
        """Return the call of which this is the last step; None: it is none."""
        count = len(op.operands)
        call = self.tickets.get(op.operands[count - 1]) if count else None
        return None if call is None or call == op else call

    def write(self) -> None:
        """Move all steps to the end of the block, in their order."""
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
        """Move a loop or a condition here, and let it begin when the tickets are there."""
        for value in _smallest(loop.operands) if tickets else ():
            place = list(loop.operands).index(value)
            loop.operands[place] = behind(value, ticket(tickets))
        loop.move_before(self.levels.end)


def _names(loop: Any) -> list[tuple[Any, ...]]:
    """Return what the calls of a loop are known by. The number of a set comes last: ranks may have other ones."""
    known = [attributes_of(call) for block in blocks(loop) for call in calls(block)]
    return sorted(tuple(one[key].value for key in ("name", "operation", "size", "set")) for one in known)


def _smallest(values: Sequence[Any]) -> list[Any]:
    """Return the smallest value that has elements; none if there is none."""
    arrays = [value for value in values if isinstance(value.type, ir.RankedTensorType) and 0 not in value.type.shape]
    sizes = {i: _elements(value) for i, value in enumerate(arrays)}
    return [arrays[min(sizes, key=lambda i: sizes[i])]] if arrays else []


def _elements(value: Any) -> int:
    count = 1
    for rows in value.type.shape:
        count *= rows
    return count
