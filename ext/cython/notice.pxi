# SPDX-License-Identifier: Apache-2.0
# notice.pxi - words about a call that does not return and holds Python's lock.

cdef class Notice:
    """With it around a block: `text` on stderr if the block lasts longer than `seconds`, Python's lock held or not.

    If it lasts longer than `limit`, a final line is written and the process ends with status 1.
    """

    cdef hc_notice *c
    cdef uint64_t ns, limit
    cdef bytes text, final_line

    def __init__(self, double seconds, str text, double limit=0, str final_line=""):
        self.ns, self.text = <uint64_t>(seconds * 1e9), text.encode()
        self.limit, self.final_line = <uint64_t>(limit * 1e9), final_line.encode()

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
    """`text` on stderr if the process still lives after so many seconds."""
    hc_notice_new(<uint64_t>(seconds * 1e9), text.encode(), 0, b"")


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
    """Let the process end with status 1, whatever the interpreter ends with: functions of atexit cannot say so."""
    fail_at_end()
