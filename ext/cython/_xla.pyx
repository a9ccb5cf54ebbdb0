# SPDX-License-Identifier: Apache-2.0
"""_xla.pyx - the handler of XLA's custom calls, as a capsule. It is linked with nothing of XLA or of _core."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New

from hpccoll import _core, errors


cdef extern from "xla/xla.h":
    ctypedef struct hc_gate:
        pass
    const char *HC_GATE_CAPSULE
    enum: HC_XLA_SENDRECV, HC_GATE_SEND, HC_GATE_RECEIVE
    int hc_xla_connect(const hc_gate *)
    void *hc_xla_call(void *) noexcept
    void *hc_xla_nothing(void *) noexcept


cdef int connect() except -1:
    if hc_xla_connect(<const hc_gate *>PyCapsule_GetPointer(_core.gate, HC_GATE_CAPSULE)) < 0:
        raise errors.UnsupportedError("hpccoll._xla and hpccoll._core were built from different versions: build anew")
    return 0


connect()
handler = PyCapsule_New(<void *>hc_xla_call, "xla._CUSTOM_CALL_TARGET", NULL)
nothing = PyCapsule_New(<void *>hc_xla_nothing, "xla._CUSTOM_CALL_TARGET", NULL)
SEND, RECEIVE, SENDRECV = HC_GATE_SEND, HC_GATE_RECEIVE, HC_XLA_SENDRECV
