# SPDX-License-Identifier: Apache-2.0
"""Numbers of calls without a name, by which their derivatives are named.

The ranks match such calls by their order. Their derivatives run when a rank's tape likes, and the tapes of the ranks
need not like the same order: matched by their order, they would be added up with those of other calls. A call counts
when it has succeeded, on all ranks: what one rank has refused is an error on all, so that their numbers stay equal.
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
    """Return the name of the call that was counted last, after which its derivative is named."""
    return name or f"eager call {_done.get(world_of(process_set), 0)}"
