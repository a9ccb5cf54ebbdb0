# SPDX-License-Identifier: Apache-2.0
"""Finds pullbacks that several threads apply.

If a rank applies a pullback twice, the other ranks can match the two applications only by their order. That order is
the same on all ranks if one thread makes them, but not if several threads do.
"""

import threading
import weakref
from typing import Any

__all__ = ["other_at_ticket"]

_Known = dict[str, threading.Thread]
"""For each name, the thread that made the last call of this name."""

_lock = threading.Lock()
_by_ticket: dict[int, tuple[weakref.ref[Any], _Known]] = {}
"""By the id() of a ticket. An entry is removed with its ticket, which lives as long as its pullback."""


def _take(known: _Known, name: str) -> threading.Thread | None:
    """Note that this thread makes a call; return the thread of the last call if it is another one and still runs."""
    current = threading.current_thread()
    last = known.get(name, current)
    if last is not current and last.is_alive():
        return last
    known[name] = current
    return None


def other_at_ticket(ticket: Any, name: str) -> threading.Thread | None:
    """Note that this thread applies a derivative of the call with this ticket.

    :returns: another thread, which still runs, that applied it last; None: this thread may apply it
    """
    key = id(ticket)
    with _lock:
        ref, known = _by_ticket.get(key, (None, {}))
        if ref is None or ref() is not ticket:
            known = {}
            _by_ticket[key] = weakref.ref(ticket, lambda _: _by_ticket.pop(key, None)), known
        return _take(known, name)
