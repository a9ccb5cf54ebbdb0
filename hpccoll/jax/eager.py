# SPDX-License-Identifier: Apache-2.0
"""Operations on arrays that exist: they run at once, without a compiled program."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpccoll import _core, compression, errors
from hpccoll.collectives import Handle, Reduction
from hpccoll.default_world import current
from hpccoll.jax.call import MESSAGES, Call
from hpccoll.jax.internals import wait_for_programs
from hpccoll.worlds import World

__all__ = ["Begun", "begin", "numbers", "open_gate", "run"]

_sets: weakref.WeakValueDictionary[int, World] = weakref.WeakValueDictionary()


def open_gate(world: World) -> int:
    """Let compiled programs find the process set of a World; return its number."""
    number = world.core.open_gate(world is current())
    if number:
        _sets[number] = world
    return number


def _world_of(call: Call) -> World:
    world = current() if call.set == 0 else _sets.get(call.set)
    if world is None:
        raise errors.ShutDownError("the process set of this call has ended")
    return world


class _Numbers(threading.local):
    """The numbers of calls that are called after their place in the source, and ran when they were differentiated.

    The ranks match such calls by their order. What is pulled back later is a derivative of one of them, and ranks pull
    back in any order: so it is called after the number of its call. A call counts when it has succeeded, on all ranks.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}

    def forget(self, call: Call) -> None:
        """Forget which call of this place ran last in this thread."""
        self._last.pop((call.set, call.name), None)

    def note(self, call: Call) -> None:
        """Count a call that has run."""
        if call.of_place:
            with _counting:
                done = _done.setdefault(_world_of(call), Counter())
                done[call.name] += 1
                self._last[call.set, call.name] = done[call.name]

    def last(self, call: Call) -> int | None:
        """Return the number of the call of this place that has run in this thread since forget(); None: none has."""
        return self._last.get((call.set, call.name))


numbers = _Numbers()
_counting = threading.Lock()
_done: weakref.WeakKeyDictionary[World, Counter[str]] = weakref.WeakKeyDictionary()
"""How many calls of each place have run in a World."""


def _host(x: Any) -> np.ndarray:
    """The values in host memory, without a copy where the array lies there."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        raise errors.UnsupportedError("an array that lies on several processes: hpccoll.jax takes those of this one")
    if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1:
        raise errors.UnsupportedError(
            f"an array on {len(x.sharding.device_set)} devices: one process drives one device with hpccoll.jax; use "
            "jax.device_put(x, jax.devices()[0])"
        )
    return np.asarray(x)


@dataclasses.dataclass
class Begun:
    """An operation in flight."""

    call: Call
    handles: list[Handle]
    received: np.ndarray | None = None

    def wait(self) -> list[jax.Array]:
        """Wait until it is done; return its results on this rank."""
        results = [handle.wait() for handle in self.handles]
        if self.received is not None:
            return [jnp.asarray(self.received)]
        result = results[0][0] if self.call.operation == "alltoall" else results[0]
        if result is None:
            return []
        return [jnp.asarray(one) for one in (result if self.call.group else [result])]


def begin(call: Call, arrays: Sequence[Any], name: str | None, *, waits: bool = False) -> Begun:
    """Begin an operation, after those of the programs that were called before.

    :param name: None: calls match by their order
    """
    wait_for_programs()
    core, given = _world_of(call).core, [_host(x) for x in arrays]
    if call.operation == "barrier":
        return Begun(call, [core.collective("barrier", None, name, None, waits)])
    if call.operation in MESSAGES:
        return _begin_messages(core, call, given)
    x: Any = given if call.group else given[0]
    wire = {one.dtype_code: one for one in (compression.FP16, compression.BF16)}.get(call.wire)
    op, splits = Reduction(call.reduction), None if call.splits is None else list(call.splits)
    handle = core.collective(
        call.operation, x, name, None, waits, op, call.root, splits, call.prescale, call.postscale, wire
    )
    return Begun(call, [handle])


def _begin_messages(core: _core.Set, call: Call, given: Sequence[np.ndarray]) -> Begun:
    begun = Begun(call, [])
    if call.received is not None:
        source, tag = (call.root, call.tag) if call.operation == "recv" else (call.source, call.source_tag)
        begun.received = np.empty(*call.received)
        begun.handles.append(core.recv(begun.received, source, tag))
    if given:
        begun.handles.append(core.send(given[0], call.root, call.tag))
    return begun


def run(call: Call, arrays: Sequence[Any], name: str | None) -> list[jax.Array]:
    """Run an operation; return its results on this rank."""
    return begin(call, arrays, name, waits=True).wait()
