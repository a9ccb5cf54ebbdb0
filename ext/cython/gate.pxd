# SPDX-License-Identifier: Apache-2.0
"""The gate, through which compiled programs of frameworks reach a loop."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from hc cimport hc_loop


cdef extern from "gate/gate.h" nogil:
    enum: HC_GATE_VERSION, HC_GATE_WORLD
    const char *HC_GATE_CAPSULE
    ctypedef struct hc_gate:
        pass
    const hc_gate hc_the_gate
    ctypedef struct hc_gate_place:
        hc_loop *loop
        uint32_t set, generation
        int32_t rank, size
        const int32_t *members
    int hc_gate_open(const hc_gate_place *, int, uint64_t *)
    void hc_gate_close(hc_loop *, int64_t)
