# SPDX-License-Identifier: Apache-2.0
"""Numbers calls without a name, to name their derivatives.

Such calls match by their order. Their derivatives run in the order of each rank's tape, which may differ between ranks;
matched by order, they would be added to derivatives of other calls. Only successful calls are counted: a call that one
rank refuses is an error on all ranks, so their numbers stay equal.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.worlds import World

__all__ = ["last_call", "note_call"]

_done: WeakKeyDictionary[World, int] = WeakKeyDictionary()
"""How many calls without a name each World has done that could have been recorded."""


def note_call(name: str | None, process_set: ProcessSet) -> None:
    """Count a call that has succeeded, if it has no name."""
    if not name:
        world = world_of(process_set)
        _done[world] = _done.get(world, 0) + 1


def last_call(name: str | None, process_set: ProcessSet) -> str:
    """Return the name of the last counted call, for the name of its derivative."""
    return name or f"eager call {_done.get(world_of(process_set), 0)}"
