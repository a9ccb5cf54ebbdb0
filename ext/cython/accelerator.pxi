# SPDX-License-Identifier: Apache-2.0
# accelerator.pxi - the GPU of a World on this rank, and the data planes of its sets for it.


@cython.final
@cython.no_gc_clear
cdef class Accelerator:
    """The GPU of a World on this rank, or none yet, and the data planes of its sets for it."""
    cdef object settings
    cdef list nccl_files
    cdef tuple gpu_aware
    cdef int named_number, rank
    cdef bint shares_device
    cdef readonly Device device        # opened for the first array in device memory, or for a knob
    cdef hc_device *device_c           # the same, for the data planes
    cdef hc_launch_order order         # the order of the sets' NCCL calls on it
    cdef const hc_data *planes[HC_MAX_SETS]  # the loop owns them; NULL: no plane

    def __init__(self, settings, *, int rank, int number, nccl_files, bint shares_device, tuple gpu_aware):
        """
        :param settings: a Config
        :param rank: of the World
        :param number: of the GPU that a knob names; -1: the GPU of the first array in device memory
        :param nccl_files: files where Python packages may have NCCL
        :param shares_device: the user intends several ranks on one GPU
        :param gpu_aware: whether MPI may get GPU memory ("yes", "no", "auto"), of which devices, the reason for none
        """
        self.settings, self.rank, self.named_number = settings, rank, number
        self.nccl_files, self.shares_device, self.gpu_aware = list(nccl_files), shares_device, gpu_aware

    # ---- the device ------------------------------------------------------------------------------------

    def open(self, int number=-1, size_t address=0):
        """Open a GPU: the number that a knob names, else `number`, else the GPU that has `address`."""
        if self.settings.device == "none":
            raise errors.UnsupportedError("arrays in device memory were switched off (HPCCOLL_DEVICE=none)")
        if self.named_number >= 0:
            number = self.named_number
        self.device = Device.open(number, address, self.settings.cuda_library)
        self.device_c = self.device.c

    def view(self, library, x):
        """Describe an array in device memory (device_arrays.Lent); the first array opens its GPU."""
        if self.device is None:
            self.open(library.device(x), library.address(x))
        return library.describe(x, <size_t>self.device.entry)

    def check(self, int number, size_t address, bint is_empty, str name):
        """Refuse an array on another device than the World's. `number` -1: the driver finds the device."""
        if self.device is None:
            self.open(number, address)
        if number < 0 and not is_empty:
            number = hc_device_of(self.device.c, <const void *>address)
            if number < 0:
                raise errors.InvalidArgumentError(
                    f"{name} says that it is in device memory; the driver does not know its address {address:#x}")
        if number >= 0 and number != self.device.number:
            raise errors.InvalidArgumentError(
                f"{name} lies on GPU {number}, this World uses GPU {self.device.number} on rank {self.rank} "
                f"({self.device.pci}): a World has one device on each rank")

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
        self.device_c = NULL
        self.device = None

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
        self.make(c, &data)
        self.planes[c.place.set] = data
        return <size_t>data

    cdef int make(self, const hc_plane_parts *parts, hc_data **data) except -1:
        cdef hc_device_data_config config
        cdef bytes cuda = self.settings.cuda_library.encode(), nccl_file = self.settings.nccl_library.encode()
        cdef bytes why = self.gpu_aware[2].encode(), kernels = os.fsencode(KERNELS)
        cdef list files = [str(file).encode() for file in self.nccl_files]
        cdef list devices = [device.encode() for device in self.gpu_aware[1]]
        cdef const char **paths = <const char **>calloc(len(files) + len(devices) + 2, sizeof(char *))
        if paths is NULL:
            raise MemoryError
        for i, text in enumerate([*files, None, *devices]):
            if text is not None:
                paths[i] = text
        memset(&config, 0, sizeof(config))
        config.gpu_aware.mode = hc_gpu_aware_named(self.gpu_aware[0].encode())
        config.gpu_aware.proofs = paths + len(files) + 1
        config.gpu_aware.why = why
        config.small = self.settings.device_small
        config.order = &self.order
        config.device, config.number = &self.device_c, self.named_number
        config.files.driver, config.files.kernels = cuda, kernels
        config.nccl_library, config.nccl_files = nccl_file, paths
        config.mode = hc_device_mode_named(self.settings.device_mode.encode())
        config.shares_device = self.shares_device
        config.patience = <uint64_t>(self.settings.stall_limit * 1e9)
        cdef int status = hc_device_data_new(&config, parts, data)
        free(paths)
        return check(status, "no data plane for devices")

    def forget(self, int number):
        """Forget a set's data plane, which the loop has freed."""
        self.planes[number] = NULL

    def facts(self, int number):
        """Describe how a set's batches run, and why; "" before the first."""
        if self.planes[number] is NULL:
            return ""
        return hc_device_data_facts(self.planes[number]).decode(errors="replace")
