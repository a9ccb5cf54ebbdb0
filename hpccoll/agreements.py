# SPDX-License-Identifier: Apache-2.0
"""Agreements of several steps, which a signal's handler that raises does not end between two of them."""

import contextlib
import threading
from collections.abc import Iterator

from hpccoll import _core

__all__ = ["whole"]


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Take all steps of an agreement inside, in which the other ranks would wait for this one.

    The exception of a signal's handler, such as KeyboardInterrupt, is raised when the steps are over. If the other
    ranks do not come within a second, or a second signal comes, it ends the wait as in any other operation.
    """
    begins = threading.current_thread() is threading.main_thread() and not _core.keeps_interrupts()
    try:
        if begins:
            _core.keep_interrupts()  # a handler may raise right after it
        yield
    finally:
        if begins and (interrupt := _core.kept_interrupt()) is not None:
            raise interrupt
