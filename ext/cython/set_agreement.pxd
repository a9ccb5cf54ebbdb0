# SPDX-License-Identifier: Apache-2.0
"""The agreement of ranks on process sets."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from exchange cimport hc_exchange
from hc cimport hc_job


cdef extern from "world/set_agreement.h":
    ctypedef struct hc_sets_call:
        const char *name
        const int32_t *ranks
        int32_t size, own
        int64_t key, color
        uint64_t digest
        uint8_t colored, unfit, crowded
    ctypedef struct hc_sets_made:
        uint32_t number, generation
        int32_t *members
        int32_t size, rank
        int32_t *inside
        int32_t ninside
    enum: HC_SETS_MADE, HC_SETS_DIFFER, HC_SETS_UNFIT
    int hc_sets_agree(hc_job *, const hc_sets_call *, const hc_exchange *, hc_sets_made *, char *)
    void hc_sets_fail(hc_job *, uint32_t, int, const char *) nogil
