# SPDX-License-Identifier: Apache-2.0
# interrupts.pxi - exceptions of signal handlers during an agreement of several steps. If one ended it between two
# steps, the other ranks would wait in the next one. So a wait keeps it, for a moment in which the others may come.

cdef double MOMENT = 1.0  # seconds

cdef uint64_t kept_by = 0    # the thread, Python's main one, that is in an agreement; 0: none
cdef object kept = None      # the exception
cdef double kept_until = 0.0


def keeps_interrupts():
    """Whether an agreement is under way."""
    return kept_by != 0


def keep_interrupts():
    """Begin an agreement in this thread, which runs signal handlers."""
    global kept_by
    kept_by = PyThread_get_thread_ident()


def kept_interrupt():
    """End the agreement. Returns the exception that it has kept, or None."""
    global kept_by, kept
    ended, kept, kept_by = kept, None, 0
    return ended


cdef bint keeps(error) noexcept:
    """Keep the exception of a signal's handler, unless it is the second one."""
    global kept, kept_until
    if kept is not None or kept_by != PyThread_get_thread_ident():
        return False
    kept, kept_until = error, time.monotonic() + MOMENT
    return True


cdef int check_kept() except -1:
    """Raise a kept exception when its moment is over."""
    if kept is not None and kept_by == PyThread_get_thread_ident() and time.monotonic() > kept_until:
        raise kept
    return 0
