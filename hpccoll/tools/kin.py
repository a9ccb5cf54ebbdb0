# SPDX-License-Identifier: Apache-2.0
"""What the kernel does with a process whose parent ends (prctl)."""

import ctypes

__all__ = ["adopt_orphans", "end_with_parent"]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent(number: int) -> None:
    """Let this process get a signal when the thread that has made it ends.

    It imports nothing, so the child of a fork may call it before it executes a program (`preexec_fn`).

    :param number: of the signal
    """
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def adopt_orphans() -> None:
    """Let this process, and not process 1, become the parent of its descendants whose parents end."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
