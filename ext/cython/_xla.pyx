# SPDX-License-Identifier: Apache-2.0
"""_xla.pyx - the handler of XLA's custom calls, as a capsule. It is not linked with XLA or _core."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New

from hpccoll import _core, errors


cdef extern from "xla/xla.h":
    ctypedef struct hc_gate:
        pass
    const char *HC_GATE_CAPSULE
    const char *HC_XLA_CALL
    const char *HC_XLA_NOTHING
    enum: HC_XLA_SENDRECV, HC_GATE_SEND, HC_GATE_RECEIVE
    int hc_xla_connect(const hc_gate *)
    void *hc_xla_call(void *) noexcept
    void *hc_xla_nothing(void *) noexcept
    const char *hc_xla_register(const char *, const char *)


cdef int connect() except -1:
    if hc_xla_connect(<const hc_gate *>PyCapsule_GetPointer(_core.gate, HC_GATE_CAPSULE)) < 0:
        raise errors.UnsupportedError("hpccoll._xla and hpccoll._core were built from different versions: build anew")
    return 0


connect()
handler = PyCapsule_New(<void *>hc_xla_call, "xla._CUSTOM_CALL_TARGET", NULL)
nothing = PyCapsule_New(<void *>hc_xla_nothing, "xla._CUSTOM_CALL_TARGET", NULL)
SEND, RECEIVE, SENDRECV = HC_GATE_SEND, HC_GATE_RECEIVE, HC_XLA_SENDRECV
CALL, NOTHING = HC_XLA_CALL.decode(), HC_XLA_NOTHING.decode()

MANY_STEPS, LARGE_BYTES = 9, 1024
"""XLA runs the steps of a program one after another if it has fewer steps, or only arrays smaller than half of this.

It does so even if a step is an operation that waits for other ranks. Then ranks with two operations in different orders
would deadlock. So we make every program large: its first steps are calls that do nothing, and one of them has a result.
"""


def register(str library, str table):
    """Register both custom calls with the XLA of a loaded library; return "", or the text of an error.

    :param table: the name of the library's function that returns XLA's table of functions
    """
    return hc_xla_register(library.encode(), table.encode()).decode()
