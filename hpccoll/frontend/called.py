# SPDX-License-Identifier: Apache-2.0
"""The errors of a call name the function that the program called.

The rest of the text is written in the front end's words where the error arises: ext/world/words.h.
"""

import sys
from types import FrameType

from hpccoll import errors

__all__ = ["called", "of_call"]


def called(operation: str) -> str:
    """Name the hpccoll function that the program called: the outermost one on the stack.

    :param operation: the name if there is none, as in a framework's hook
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    found = operation
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("hpccoll.") and not module.endswith((".testing", ".own_errors", ".refused")):
            name = frame.f_code.co_name
            found = operation if name.startswith(("_", "<")) else name
        frame = frame.f_back
    return found


def of_call(function: str, name: str | None, error: errors.HpccollError) -> errors.HpccollError:
    """Return the error of a call, with the function and the name of the tensor before its text.

    :param function: see called()
    :param name: of the tensor, as the program gave it
    :param error: what the call has raised
    """
    return type(error)(f"{function} of {name or 'an unnamed tensor'}: {error}")
