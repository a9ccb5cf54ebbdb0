# SPDX-License-Identifier: Apache-2.0
# laps.pxi - the steps of a program, from its trace.

@cython.final
cdef class Laps:
    """The times from one request of a name in the World to the next, from the trace."""
    cdef Loop loop
    cdef hc_laps c

    def __init__(self, Loop loop, str name, uint64_t first):
        """
        :param name: as `Loop.trace()` has it
        :param first: number of the first record that counts
        """
        text = name.encode("utf-8", "replace")[:sizeof(self.c.name) - 1]
        memset(&self.c, 0, sizeof(self.c))
        memcpy(self.c.name, <const char *>text, len(text))
        self.loop = loop
        self.c.next = first

    def read(self):
        """The laps since the last call: a list of (begun, ended, bytes); ns of CLOCK_MONOTONIC."""
        cdef hc_lap laps[64]
        cdef size_t n = 64
        if self.loop.c is NULL:
            raise errors.ShutDownError("the World has been shut down")
        found = []
        while n == 64:
            with nogil:
                n = hc_loop_read_laps(self.loop.c, &self.c, laps, 64)
            found += [(laps[i].begun, laps[i].ended, laps[i].nbytes) for i in range(n)]
        return found
