# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of a front end that run while Python goes on, as those of JAX do.

A call that speaks of all operations before it first waits for the programs that its thread has started: they may not
have begun theirs.
"""

from collections.abc import Callable

__all__ = ["wait_for_programs", "waits"]

waits: list[Callable[[], object]] = []
"""Functions of front ends; each waits for the programs of this thread, and does not raise their errors."""


def wait_for_programs() -> None:
    """Wait until the programs that this thread has started have ended."""
    for wait in waits:
        wait()
