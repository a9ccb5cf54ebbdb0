# SPDX-License-Identifier: Apache-2.0
# accelerator.pxi - the GPU of a World on this rank, and the data planes of its sets for it.


@cython.final
@cython.no_gc_clear
cdef class Accelerator:
    """The GPU of a World on this rank, or none yet, and the data planes of its sets for it."""
    cdef hc_accelerator *c
    cdef readonly Device device        # opened for the first array in device memory, or for a knob

    def __init__(self, settings, *, int rank, int number, nccl_files, bint shares_device, tuple gpu_aware):
        """
        :param settings: a Config
        :param rank: of the World
        :param number: of the GPU that a knob names; -1: the GPU of the first array in device memory
        :param nccl_files: files where Python packages may have NCCL
        :param shares_device: the user intends several ranks on one GPU
        :param gpu_aware: whether MPI may get GPU memory ("yes", "no", "auto"), of which devices, the reason for none
        """
        cdef hc_device_data_config config
        cdef bytes cuda = os.fsencode(settings.cuda_library), nccl_file = os.fsencode(settings.nccl_library)
        cdef bytes why = gpu_aware[2].encode("utf-8", "replace"), kernels = os.fsencode(KERNELS)
        cdef list files = [os.fsencode(file) for file in nccl_files]
        cdef list devices = [device.encode() for device in gpu_aware[1]]
        cdef const char **paths = <const char **>calloc(len(files) + len(devices) + 2, sizeof(char *))
        if paths is NULL:
            raise MemoryError
        for i, text in enumerate([*files, None, *devices]):
            if text is not None:
                paths[i] = text
        memset(&config, 0, sizeof(config))
        config.gpu_aware.mode = hc_gpu_aware_named(gpu_aware[0].encode())
        config.gpu_aware.proofs = paths + len(files) + 1
        config.gpu_aware.why = why
        config.small = settings.device_small
        config.number = number
        config.files.driver, config.files.kernels = cuda, kernels
        config.nccl_library, config.nccl_files = nccl_file, paths
        config.mode = hc_device_mode_named(settings.device_mode.encode())
        config.shares_device = shares_device
        config.patience = <uint64_t>(settings.stall_limit * 1e9)
        cdef int status = hc_accelerator_new(&config, rank, settings.device == "none", &self.c)
        free(paths)
        check(status, "no memory for the state of a GPU")

    def __dealloc__(self):
        if self.device is None or not self.device.forked:
            hc_accelerator_free(self.c)

    # ---- the device ------------------------------------------------------------------------------------

    def open(self, int number=-1, size_t address=0):
        """Open a GPU: the number that a knob names, else `number`, else the GPU that has `address`."""
        self.device = Device.open(self.c, number, address)

    def view(self, library, x):
        """Describe an array in device memory (device_arrays.Lent); the first array opens its GPU."""
        if self.device is None:
            self.open(library.device(x), library.address(x))
        return library.describe(x, <size_t>self.device.entry)

    def check(self, int number, size_t address, bint is_empty, str name):
        """Refuse an array on another device than the World's. `number` -1: the driver finds the device."""
        cdef char why[HC_DEVICE_WHY]
        cdef const void *place = NULL
        why[0] = 0
        if self.device is None:
            self.open(number, address)
        if not is_empty:
            place = <const void *>address
        cdef int status = hc_accelerator_check(self.c, number, place, name.encode(), why)
        check(status, why.decode(errors="replace"))

    def call(self, list buffers):
        """Order a request on these Buffers after the work in their streams."""
        return DeviceCall.begin(self.device, buffers)

    def new_memory(self, size_t nbytes):
        """Allocate a result for a library that cannot."""
        cdef DeviceMemory memory = DeviceMemory.__new__(DeviceMemory)
        cdef void *data = NULL
        cdef int status = hc_device_result_new(self.device.c, nbytes, &data)
        check(status, f"GPU {self.device.number} has no memory for {nbytes} bytes")
        memory.owner, memory.address, memory.stream = self.device, <size_t>data, <size_t>self.device.entry
        return memory

    def close(self):
        """Close the GPU after the last batch has run; first wait for results that are still being written."""
        if self.device is not None:
            self.device.drain(10.0)
        self.device = None
        hc_accelerator_close(self.c)

    def mark_forked(self):
        """Call it in the child of a fork, which must not use or free the parent's objects."""
        if self.device is not None:
            self.device.forked = True

    # ---- data planes -----------------------------------------------------------------------------------

    def new_plane(self, parts):
        """Make a set's data plane; it opens nothing before its first batch.

        :param parts: capsule "hpccoll.plane_parts" of hc_plane_parts
        :returns: the hc_data as a number; the loop owns it
        """
        cdef const hc_plane_parts *c = <const hc_plane_parts *>PyCapsule_GetPointer(parts, "hpccoll.plane_parts")
        cdef hc_data *data = NULL
        if c.version != HC_PLANE_VERSION:
            raise errors.StartError(
                f"_cuda was built for another _core (planes {HC_PLANE_VERSION}, there {c.version}): rebuild")
        check(hc_accelerator_plane(self.c, c, &data), "no data plane for devices")
        return <size_t>data

    def forget(self, int number):
        """Forget a set's data plane, which the loop has freed."""
        hc_accelerator_forget(self.c, number)

    def facts(self, int number):
        """Describe how a set's batches run, and why; "" before the first."""
        return hc_accelerator_facts(self.c, number).decode(errors="replace")
