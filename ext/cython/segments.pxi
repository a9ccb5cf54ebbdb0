# SPDX-License-Identifier: Apache-2.0
# segments.pxi - shared memory of the ranks of a node (world/segments.h), which they make together.

@cython.final
cdef class Segment:
    """Shared memory of the ranks of a node."""
    cdef hc_segment c

    def __cinit__(self):
        self.c.base = NULL
        self.c.fd = -1

    def __dealloc__(self):
        hc_segment_close(&self.c)

    @staticmethod
    def create(str name, size_t nbytes):
        """Create the segment `name` and reserve its memory; TransportError has the reason of a failure."""
        cdef Segment self = Segment()
        cdef char why[512]
        why[0] = 0
        status = hc_segment_create(&self.c, name.encode(), nbytes, why, sizeof(why))
        check(status, why.decode())  # two lines: `why` is written before it is read
        return self

    @staticmethod
    def private(size_t nbytes):
        """Zeroed memory for ranks that are threads of this process."""
        cdef Segment self = Segment()
        check(hc_segment_private(&self.c, nbytes))
        return self


def node_control_bytes(int local_size):
    """Bytes of the segment that a node of `local_size` ranks needs for its node control segment."""
    return hc_node_control_bytes(local_size)


def node_bytes(int local_size):
    """Bytes of the segment that a process set needs on a node where it has `local_size` members."""
    return hc_shm_bytes(local_size)
