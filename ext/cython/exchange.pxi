# SPDX-License-Identifier: Apache-2.0
# exchange.pxi - the allgather of an agreement in C, by a function of Python; part of each extension that needs it.

@cython.final
cdef class Exchange:
    """The allgather of bytes that C calls for an agreement."""
    cdef object gather  # takes a name and this rank's bytes; returns those of all ranks, one after the other
    cdef int size
    cdef object error  # exception of the last call of it, or None

    cdef hc_exchange c(self):
        return hc_exchange(allgather_bytes, <void *>self, self.size)

    cdef int check(self, int status, const char *why) except? -1:
        """Raise the error of an agreement: that of the allgather, or a StartError. Returns a status without one."""
        if self.error is not None:
            raise self.error
        if status < 0:
            raise errors.StartError((why if why[0] else hc_status_text(status)).decode("utf-8", "replace"))
        return status


cdef Exchange exchange_of(gather, int size):
    cdef Exchange exchange = Exchange.__new__(Exchange)
    exchange.gather, exchange.size = gather, size
    return exchange


cdef int allgather_bytes(void *of, const char *name, const void *mine, size_t nbytes,
                         void *everything) noexcept with gil:
    """The callback of hc_exchange."""
    cdef Exchange exchange = <Exchange>of
    cdef bytes gathered
    try:
        gathered = bytes(exchange.gather(name.decode(), (<const char *>mine)[:nbytes]))
        if <size_t>len(gathered) != nbytes * <size_t>exchange.size:
            return HC_RESULT_SIZE
        memcpy(everything, <const char *>gathered, len(gathered))
    except BaseException as error:
        exchange.error = error
        return HC_BROKEN
    return HC_OK
