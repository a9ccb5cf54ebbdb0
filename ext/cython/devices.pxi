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

    def __init__(self, **known):
        self.known = known

    cdef object get(self):
        """Return the Accelerator, and make it at the first call. [any thread with the GIL]"""
        if self.accelerator is None:
            if new_accelerator is None:
                raise errors.UnsupportedError("nothing here moves device memory")
            made = new_accelerator(**self.known)
            if self.accelerator is None:  # an import lets other threads run
                self.accelerator = made
        return self.accelerator


# ---- data planes -----------------------------------------------------------------------------------------

cdef struct PlaneMaker:  # one per set
    hc_plane_maker base
    hc_plane_parts parts
    int32_t *ranks       # members and nodes, to which parts.place points
    void *devices        # a Devices: a reference, and one to `algorithm`
    void *algorithm      # bytes


cdef int make_plane(hc_plane_maker *base, int memory, hc_data **data, char *text) noexcept with gil:
    """Make the data plane; the loop's driver calls it, on any thread."""
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
    """Make the maker of a set's data plane for device memory, which the loop calls for the first use."""
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
