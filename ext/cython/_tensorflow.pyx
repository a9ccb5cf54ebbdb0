# SPDX-License-Identifier: Apache-2.0
"""_tensorflow.pyx - operations and kernels of TensorFlow, which register themselves when TensorFlow loads this file.

It also has memory for results.

It is not linked with TensorFlow or _core.
"""

from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from libc.stdint cimport int64_t

from hpccoll import _core, errors


cdef extern from "tensorflow/tensorflow.h":
    ctypedef struct hc_gate:
        pass
    const char *HC_GATE_CAPSULE
    int hc_tensorflow_connect(const hc_gate *)
    const char *hc_tensorflow_problem()
    void *hc_tf_memory_take(size_t) noexcept
    void hc_tf_memory_give(void *) noexcept
    void hc_tf_memory_free_idle() noexcept
    size_t hc_tf_memory_idle() noexcept
    int HC_MAX_DIMS


cdef int connect() except -1:
    if hc_tensorflow_connect(<const hc_gate *>PyCapsule_GetPointer(_core.gate, HC_GATE_CAPSULE)) < 0:
        raise errors.UnsupportedError(
            "hpccoll._tensorflow and hpccoll._core were built from different versions: build anew"
        )
    return 0


# ---- memory for results of eager calls -------------------------------------------------------------------

cdef extern from *:
    """
    #include "cython/dlpack.h"
    /* The header of a block that TensorFlow gets; the elements follow it. */
    typedef struct { hc__dl_managed managed; int64_t dims[HC_MAX_DIMS]; } hc__result;
    enum { HC__RESULT_BYTES = (sizeof(hc__result) + 63) / 64 * 64 };
    static void hc__give_result(hc__dl_managed *managed) { hc_tf_memory_give(managed); }
    /* Makes a result without a shape. NULL: no memory. */
    static hc__result *hc__new_result(size_t bytes, int ndim, int kind, int bits) {
        hc__result *made = (hc__result *)hc_tf_memory_take(HC__RESULT_BYTES + bytes);
        if (made) {
            hc__dl_tensor tensor = {(char *)made + HC__RESULT_BYTES, {1, 0}, ndim,
                                    {(uint8_t)kind, (uint8_t)bits, 1}, made->dims, NULL, 0};
            made->managed.tensor = tensor;
            made->managed.context = NULL;
            made->managed.deleter = hc__give_result;
        }
        return made;
    }
    """
    ctypedef struct hc__dl_managed:
        pass
    ctypedef struct hc__result:
        hc__dl_managed managed
        int64_t dims[1]
    size_t HC__RESULT_BYTES
    hc__result *hc__new_result(size_t, int, int, int) noexcept
    void hc__give_result(hc__dl_managed *) noexcept


cdef void free_capsule(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, "dltensor"):
        hc__give_result(<hc__dl_managed *>PyCapsule_GetPointer(capsule, "dltensor"))


def new_result(tuple shape, int kind, int bits):
    """Return a capsule of DLPack with memory for a result, and its address. The values are undefined.

    :param kind: DLPack's code of the dtype
    :param bits: of an element
    """
    cdef int64_t dims[64]
    cdef int ndim = 0
    cdef size_t bytes = bits // 8
    if len(shape) > HC_MAX_DIMS:
        raise errors.UnsupportedError(f"a tensor of {len(shape)} dimensions: there can be {HC_MAX_DIMS}")
    for n in shape:
        dims[ndim] = n
        bytes *= <size_t>dims[ndim]
        ndim += 1
    cdef hc__result *made = hc__new_result(bytes, ndim, kind, bits)
    if made is NULL:
        raise MemoryError(f"no memory for a result of {bytes} bytes")
    for i in range(ndim):
        made.dims[i] = dims[i]
    return PyCapsule_New(&made.managed, "dltensor", free_capsule), <size_t>made + HC__RESULT_BYTES


def read(view):
    """Return the address of a memoryview of contiguous memory, and its shape."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    return <size_t>buffer.buf, tuple([buffer.shape[i] for i in range(buffer.ndim)])


def idle_memory():
    """Return the number of idle bytes for later results."""
    return hc_tf_memory_idle()


def free_idle_memory():
    """Free the idle memory for later results."""
    hc_tf_memory_free_idle()


connect()
problem = hc_tensorflow_problem().decode()
