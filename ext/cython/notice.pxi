# SPDX-License-Identifier: Apache-2.0
# notice.pxi - prints a text if a call does not return, also if it holds the GIL.

cdef class Notice:
    """A context manager: writes `text` to stderr if the block lasts longer than `seconds`, even if it holds the GIL.

    If it lasts longer than `limit`, it writes a final line, and the process ends with status 1.
    """

    cdef hc_notice *c
    cdef uint64_t ns, limit
    cdef bytes text, final_line

    def __init__(self, double seconds, str text, double limit=0, str final_line=""):
        self.ns, self.text = <uint64_t>(seconds * 1e9), text.encode("utf-8", "replace")
        self.limit, self.final_line = <uint64_t>(limit * 1e9), final_line.encode("utf-8", "replace")

    def __enter__(self):
        hc_notice_free(self.c)
        self.c = hc_notice_new(self.ns, self.text, self.limit, self.final_line)
        return self

    def __exit__(self, *_):
        hc_notice_free(self.c)
        self.c = NULL

    def __dealloc__(self):
        hc_notice_free(self.c)


def say_later(double seconds, str text):
    """Write `text` to stderr if the process is still alive after `seconds`."""
    hc_notice_new(<uint64_t>(seconds * 1e9), text.encode("utf-8", "replace"), 0, b"")


cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void end_with_failure(void) {
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
    static int fail_at_end(void) { return atexit(end_with_failure); }
    """
    int fail_at_end() nogil


def fail_at_exit():
    """Let the process end with status 1, whatever the interpreter's status is; functions of atexit cannot set it."""
    fail_at_end()
