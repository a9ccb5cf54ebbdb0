# SPDX-License-Identifier: Apache-2.0
"""Error texts with a front end's names: the function that the program called, its arguments, its reductions."""

from __future__ import annotations

import re
import sys
from types import FrameType

from hpccoll import _core

__all__ = ["called", "in_its_words"]

_WORDS = {
    "prescale": "prescale_factor",
    "postscale": "postscale_factor",
    "x": "the tensor",
    "array": "tensor",
    "arrays": "tensors",
    **{name.upper(): name for name in ("Average", "Sum", "Min", "Max", "Product")},
}
_WORD = re.compile(rf"(?<![\w'.])({'|'.join(_WORDS)})(?![\w'.])")
_OPERATION = re.compile(rf"\A({'|'.join(_core.OPERATIONS)}): ")


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


def in_its_words(text: str) -> str:
    """Translate the library's text about an operation into a front end's names.

    The operation at the beginning is left out: `called` names the function of the front end.
    """
    return _WORD.sub(lambda match: _WORDS[match[1]], _OPERATION.sub("", text))
