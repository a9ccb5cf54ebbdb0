# SPDX-License-Identifier: Apache-2.0
"""Calls that only their order tells apart: one thread makes them, because ranks run their threads in other orders.

A pullback that is applied twice is such a call: its cotangents do not say which application belongs to which of another
rank. In one thread the order is that of the program.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

__all__ = ["other_at_ticket"]

_Known = dict[str, threading.Thread]
"""By the name of a call, the thread that has made the last one."""

_lock = threading.Lock()
_by_ticket: dict[int, tuple[weakref.ref[Any], _Known]] = {}
"""By the identity of a ticket, as long as the ticket lives. A ticket lives as long as its pullback."""


def _take(known: _Known, name: str) -> threading.Thread | None:
    """Note that this thread makes a call; return the living thread that has made the one before, if it is another."""
    me = threading.current_thread()
    before = known.get(name, me)
    if before is not me and before.is_alive():
        return before
    known[name] = me
    return None


def other_at_ticket(ticket: Any, name: str) -> threading.Thread | None:
    """Note that this thread makes a derivative of the call that has this ticket.

    :returns: another living thread that has made the last one; None: this thread may make it
    """
    at = id(ticket)
    with _lock:
        ref, known = _by_ticket.get(at, (None, {}))
        if ref is None or ref() is not ticket:
            known = {}
            _by_ticket[at] = weakref.ref(ticket, lambda _: _by_ticket.pop(at, None)), known
        return _take(known, name)
