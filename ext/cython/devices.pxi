# SPDX-License-Identifier: Apache-2.0
# devices.pxi - device memory as this extension sees it: others recognise its arrays, and move them.
#
# hpccoll.device_arrays, which is above this extension, registers what recognises such arrays and what makes the
# Accelerator of a World (an extension of its own, which is loaded for the first of them).

cdef object library_of = None       # of an array: its device_arrays.Library, or None
cdef object device_array_of = None  # of memory: what a library of which nothing is known gets as a result
cdef object new_accelerator = None


def use_device_arrays(library, array, accelerator):
    """Tell what device memory is served by.

    :param library: of any object: its device_arrays.Library; None: it is no array in device memory
    :param array: (memory, dtype, shape) to an array of no library
    :param accelerator: makes the Accelerator of a World, from what is known of it
    """
    global library_of, device_array_of, new_accelerator
    library_of, device_array_of, new_accelerator = library, array, accelerator


@cython.final
cdef class Devices:
    """What a World has of device memory on this rank: nothing, before the first array there."""
    cdef dict known          # what the Accelerator is made from
    cdef object accelerator  # None: not needed so far

    def __init__(self, **known):
        self.known = known

    cdef object get(self):
        """The Accelerator. [any thread with Python's lock]"""
        if self.accelerator is None:
            if new_accelerator is None:
                raise errors.UnsupportedError("nothing here moves device memory")
            made = new_accelerator(**self.known)
            if self.accelerator is None:  # an import lets other threads run
                self.accelerator = made
        return self.accelerator


# ---- data planes -----------------------------------------------------------------------------------------

cdef struct PlaneMaker:  # a set's
    hc_plane_maker base
    hc_plane_parts parts
    int32_t *ranks       # members and nodes, to which parts.place points
    void *devices        # a Devices: a reference, and one to `algorithm`
    void *algorithm      # bytes


cdef int make_plane(hc_plane_maker *base, int memory, hc_data **data, char *text) noexcept with gil:
    """The loop's driver asks, on whatever thread."""
    cdef PlaneMaker *maker = <PlaneMaker *>base
    try:
        capsule = PyCapsule_New(&maker.parts, "hpccoll.plane_parts", NULL)
        data[0] = <hc_data *><size_t>(<Devices>maker.devices).get().new_plane(capsule)
        return HC_OK
    except BaseException as error:
        words = (str(error) or type(error).__name__).encode()[:HC_PLANE_TEXT - 1]
        memcpy(text, <const char *>words, len(words) + 1)
        return HC_TRANSPORT


cdef void free_maker(hc_plane_maker *base) noexcept with gil:
    cdef PlaneMaker *maker = <PlaneMaker *>base
    if (<Devices>maker.devices).accelerator is not None:
        (<Devices>maker.devices).accelerator.forget(maker.parts.place.set)
    Py_DECREF(<Devices>maker.devices)
    Py_DECREF(<object>maker.algorithm)
    free(maker.ranks)
    free(maker)


cdef hc_plane_maker *new_maker(Devices devices, const hc_hierarchy_config *place, bytes algorithm, hc_data *host,
                               hc_net *net) except NULL:
    """What makes the set's data plane for device memory, when its first batch or message there comes."""
    cdef PlaneMaker *maker = <PlaneMaker *>calloc(1, sizeof(PlaneMaker))
    cdef int32_t size = place.set_size
    cdef int32_t *ranks = <int32_t *>malloc(2 * size * sizeof(int32_t))
    if maker is NULL or ranks is NULL:
        free(maker)
        free(ranks)
        raise MemoryError
    memcpy(ranks, place.members, size * sizeof(int32_t))
    memcpy(ranks + size, place.node_of, size * sizeof(int32_t))
    maker.base.make, maker.base.free = make_plane, free_maker
    maker.parts.version = HC_PLANE_VERSION
    maker.parts.place = place[0]
    maker.parts.place.members, maker.parts.place.node_of = ranks, ranks + size
    maker.parts.place.algorithm = algorithm
    maker.parts.host, maker.parts.net = host, net
    maker.parts.new_hierarchy, maker.parts.neutral = hc_hierarchy_new, hc_host_neutral
    maker.ranks = ranks
    maker.devices, maker.algorithm = <void *>devices, <void *>algorithm
    Py_INCREF(devices)
    Py_INCREF(algorithm)
    return &maker.base
