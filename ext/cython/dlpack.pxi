# SPDX-License-Identifier: Apache-2.0
# dlpack.pxi - reads DLPack capsules of arrays in device memory, and makes capsules of results. (Host arrays: NumPy.)

cdef extern from "cython/dlpack.h":
    ctypedef struct hc__dl_device:
        int32_t device_type, device_id
    ctypedef struct hc__dl_type:
        uint8_t code, bits
        uint16_t lanes
    ctypedef struct hc__dl_tensor:
        void *data
        hc__dl_device device
        int32_t ndim
        hc__dl_type dtype
        int64_t *shape
        int64_t *strides
        uint64_t offset
    ctypedef struct hc__dl_managed:
        hc__dl_tensor tensor
        void *context
        void (*deleter)(hc__dl_managed *) noexcept


@cython.final
cdef class DLPackView:
    """The fields of a capsule "dltensor"; owns the tensor, and frees it at the end."""
    cdef hc__dl_managed *c
    cdef readonly size_t address
    cdef readonly tuple shape, dtype
    cdef readonly object strides
    cdef readonly int device

    def __init__(self, capsule):
        self.c = <hc__dl_managed *>PyCapsule_GetPointer(capsule, "dltensor")
        PyCapsule_SetName(capsule, "used_dltensor")
        cdef hc__dl_tensor *t = &self.c.tensor
        self.address = <size_t>t.data + t.offset
        self.shape = tuple([t.shape[i] for i in range(t.ndim)])
        self.strides = None if t.strides is NULL else tuple([t.strides[i] for i in range(t.ndim)])
        self.dtype = t.dtype.code, t.dtype.bits, t.dtype.lanes
        self.device = t.device.device_id

    def __dealloc__(self):
        if self.c is not NULL and self.c.deleter is not NULL:
            self.c.deleter(self.c)


cdef void free_managed(hc__dl_managed *managed) noexcept with gil:
    Py_DECREF(<object>managed.context)
    free(managed.tensor.shape)
    free(managed)


cdef void free_capsule(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, "dltensor"):
        free_managed(<hc__dl_managed *>PyCapsule_GetPointer(capsule, "dltensor"))


def dlpack_capsule(object array, str dtype, int nbits):
    """A capsule of a device_arrays.DeviceArray, which it keeps alive.

    :param dtype: its name
    :param nbits: of an element
    """
    cdef int ndim = len(array.shape)
    cdef hc__dl_managed *managed = <hc__dl_managed *>calloc(1, sizeof(hc__dl_managed))
    cdef int64_t *shape = <int64_t *>malloc((ndim + 1) * sizeof(int64_t))
    if managed is NULL or shape is NULL:
        free(managed)
        free(shape)
        raise MemoryError
    for i, n in enumerate(array.shape):
        shape[i] = n
    kind = {"bfloat16": 4, "bool": 6}.get(dtype) or {"i": 0, "u": 1, "f": 2, "c": 5}[dtype[0]]
    managed.tensor.data = <void *><size_t>array.address
    managed.tensor.device = hc__dl_device(2, array.device)
    managed.tensor.ndim = ndim
    managed.tensor.dtype = hc__dl_type(kind, nbits, 1)
    managed.tensor.shape = shape
    managed.deleter = free_managed
    managed.context = <void *>array
    Py_INCREF(array)
    return PyCapsule_New(managed, "dltensor", free_capsule)
