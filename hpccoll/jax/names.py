# SPDX-License-Identifier: Apache-2.0
"""Names for calls that have none: in a trace from their place in it, elsewhere from the order of the calls.

The order in which a program is traced, or its operations run, says nothing about other ranks. The place in the source
does: the file, the function and the line of the caller, and which call of this place it is in the trace.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from typing import Any

import jax

from hpccoll import errors
from hpccoll.jax.internals import EvalTrace, trace_ctx

__all__ = ["checked", "in_trace", "tracing"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_counters: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()
UNNAMED = "unnamed call "


def tracing(arrays: Any) -> bool:
    """Whether a call of these arrays becomes a part of a program, and does not run now."""
    return not isinstance(trace_ctx.trace, EvalTrace) or any(isinstance(x, jax.core.Tracer) for x in arrays)


def checked(name: str | None) -> str | None:
    """Return the name that a caller has given.

    :raises InvalidArgumentError: it is no name
    """
    if name is not None and (not isinstance(name, str) or not name or name.startswith(UNNAMED)):
        raise errors.InvalidArgumentError(
            f"name is {name!r}: a name is a string that is not empty and does not begin with {UNNAMED!r}"
        )
    return name


def in_trace(operation: str, name: str | None) -> str:
    """Return the name of a call that becomes a part of a program."""
    if name is not None:
        return name
    place = f"{operation} at {_place()}"
    counter = _counters.setdefault(trace_ctx.trace, Counter())
    counter[place] += 1
    return place if counter[place] == 1 else f"{place}, call {counter[place]}"


def _place() -> str:
    frame = sys._getframe()  # noqa: SLF001 - this is how inspect does it
    while frame.f_back is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
        frame = frame.f_back
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} ({code.co_name})"
