# SPDX-License-Identifier: Apache-2.0
"""The allgather of bytes by which ranks agree on what they make together (rendezvous/exchange.h)."""

from libc.stdint cimport int32_t


cdef extern from "core/hc.h" nogil:
    enum: HC_OK, HC_RESULT_SIZE, HC_BROKEN
    const char *hc_status_text(int)

cdef extern from "rendezvous/exchange.h" nogil:
    enum: HC_EXCHANGE_WHY
    ctypedef struct hc_exchange:
        int (*allgather)(void *, const char *, const void *, size_t, void *) noexcept
        void *of
        int32_t size
