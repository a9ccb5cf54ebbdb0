# SPDX-License-Identifier: Apache-2.0
# devices.pxi - the interface to device memory; other modules recognise and move its arrays.
#
# hpccoll.device_arrays, a layer above this extension, registers functions that recognise such arrays and make the
# Accelerator of a World (in a separate extension, which is loaded for the first such array).

cdef object library_of = None       # array -> device_arrays.Library or None
cdef object device_array_of = None  # memory -> result for an unknown library
cdef object new_accelerator = None


def use_device_arrays(library, array, accelerator):
    """Register the functions that serve device memory.

    :param library: (object) to its device_arrays.Library; None: it is no array in device memory
    :param array: (memory, dtype, shape) to an array of no library
    :param accelerator: makes the Accelerator of a World from keyword arguments
    """
    global library_of, device_array_of, new_accelerator
    library_of, device_array_of, new_accelerator = library, array, accelerator


@cython.final
cdef class Devices:
    """The Accelerator of a World on this rank, which is made for the first array in device memory."""
    cdef dict known          # arguments of the Accelerator
    cdef object accelerator  # None: not needed so far
    cdef hc_plane_source source

    def __init__(self, **known):
        self.known = known
        self.source = hc_plane_source(make_plane, planes_begin, planes_end, <void *>self)

    cdef object get(self):
        """Return the Accelerator, and make it at the first call. [any thread with the GIL]"""
        if self.accelerator is None:
            if new_accelerator is None:
                raise errors.UnsupportedError("nothing here moves device memory")
            made = new_accelerator(**self.known)
            if self.accelerator is None:  # an import lets other threads run
                self.accelerator = made
        return self.accelerator


# ---- data planes (world/plane_maker.h) -------------------------------------------------------------------


cdef int make_plane(void *devices, const hc_plane_parts *parts, hc_data **data, char *text) noexcept with gil:
    """Make the data plane; the loop's driver calls it, on any thread."""
    try:
        capsule = PyCapsule_New(<void *>parts, "hpccoll.plane_parts", NULL)
        data[0] = <hc_data *><size_t>(<Devices>devices).get().new_plane(capsule)
        return HC_OK
    except BaseException as error:
        words = (str(error) or type(error).__name__).encode("utf-8", "replace")[:HC_PLANE_TEXT - 1]
        memcpy(text, <const char *>words, len(words) + 1)
        return HC_TRANSPORT


cdef void planes_begin(void *devices) noexcept with gil:
    Py_INCREF(<Devices>devices)


cdef void planes_end(void *devices, uint32_t number) noexcept with gil:
    if (<Devices>devices).accelerator is not None:
        (<Devices>devices).accelerator.forget(number)
    Py_DECREF(<Devices>devices)
