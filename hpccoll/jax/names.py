# SPDX-License-Identifier: Apache-2.0
"""Names of calls: the caller's name or the place in the source, and a number if a program has the name several times.

Ranks may run the operations of a program in different orders, so they cannot match calls by order. They match them by
the place in the source (file, line and function of the caller) or the name, and by the number of the call among those
with this place or name in the program. This number is known when the program is lowered, because nested functions are
inserted where they are called. Outside of programs, calls without a name match by their order.
"""

import os
import re
import sys
from typing import Any

import jax

from hpccoll import errors
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.jax.internals import EvalTrace, trace_ctx

__all__ = ["checked", "in_trace", "of_entry", "repeated", "tracing", "unnamed", "without_number"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
UNNAMED = "unnamed call "
_REPEATED = re.compile(r" \((call|of entry) \d+\)$")


def tracing(arrays: Any) -> bool:
    """Return whether JAX traces: then a call with these arrays becomes a part of a program, and does not run now."""
    return not isinstance(trace_ctx.trace, EvalTrace) or any(isinstance(x, jax.core.Tracer) for x in arrays)


def checked(name: str | None) -> str | None:
    """Return the caller's name after a check.

    :raises InvalidArgumentError: it is not allowed as a name
    """
    if name is not None and (not isinstance(name, str) or not name or name.startswith(UNNAMED)):
        raise errors.InvalidArgumentError(
            f"name is {name!r}: a name is a string that is not empty and does not begin with {UNNAMED!r}"
        )
    if name is not None and _REPEATED.search(name):
        raise errors.InvalidArgumentError(
            f"name is {name!r}: a name does not end with ' (call 2)' or ' (of entry 2)', which repeated calls and "
            "derivatives get"
        )
    return name


def in_trace(operation: str, name: str | None) -> str:
    """Return the name of a call that becomes a part of a program."""
    return name if name is not None else f"{operation} at {_place()}"


def unnamed(operation: str, process_set: ProcessSet) -> str | None:
    """Return the name under which to report a refused call that the caller did not name; None: calls match by order.

    In a trace it is the name of the program's first call at this place. This rank makes none of the program's calls,
    because a program with a refused call never runs.
    """
    del process_set  # it is not in the name
    return in_trace(operation.removeprefix("grouped_"), None) if tracing([]) else None


def repeated(name: str, count: int) -> str:
    """Return the unique name of the call number `count` (from 1) of this name in a program."""
    return name if count == 1 else f"{name} (call {count})"


def without_number(name: str) -> str:
    """Return the name of a call without its number in the program from which jax.export has taken it."""
    return _REPEATED.sub("", name)


def of_entry(name: str, entry: int) -> str:
    """Return the name of a derivative that runs outside of the program of its call.

    Each rank may run such derivatives in a different order, so the name has the number of the log entry in which the
    ranks agreed on the call.

    :param entry: that number; 0: there is none
    """
    return f"{name} (of entry {entry})" if entry else name


def _place() -> str:
    frame = sys._getframe()  # noqa: SLF001 - this is how inspect does it
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_OURS):
        frame = frame.f_back
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} ({code.co_name})"
