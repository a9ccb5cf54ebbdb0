# SPDX-License-Identifier: Apache-2.0
# device.pxi - the GPU of a World: order between the callers' streams and the data plane's, and what these still use.
#
# A request on device memory has two events. `ready` is recorded in the caller's stream when it is enqueued, and the
# data plane's streams wait for it; `finished` is recorded behind the data plane's last work, and the stream in which
# the caller goes on waits for that. The arrays live until `finished` has passed, whatever the caller drops before.

from collections import deque


@cython.final
@cython.no_gc_clear
cdef class Device:
    """A GPU that a World has opened."""
    cdef hc_device *c
    cdef hc_gpu_stream inlet     # other streams flow into it: of producers by DLPack, of groups
    cdef list spare              # events, as numbers
    cdef object loans            # of requests that have ended for the host
    cdef readonly int number
    cdef bint forked

    @staticmethod
    cdef Device open(int number, size_t address, str library):
        """The device of this number; -1: the one that `address` lies on."""
        cdef char why[HC_DEVICE_WHY]
        cdef Device self = Device.__new__(Device)
        cdef bytes path = library.encode()
        cdef const char *named = path
        cdef int status
        why[0] = 0
        self.loans, self.spare = deque(), []
        with nogil:
            if number >= 0:
                status = hc_device_open(number, HC_NVIDIA, named, &self.c, why)
            else:
                status = hc_device_open_at(<const void *>address, HC_NVIDIA, named, &self.c, why)
        check(status, why.decode(errors="replace"))
        self.number = self.c.number
        before = hc_device_enter(self.c)
        status = self.c.driver.stream_new(&self.inlet, HC_STREAM_NON_BLOCKING, 0)
        hc_device_leave(self.c, before)
        self.ask(status, "making a stream")
        return self

    def __dealloc__(self):
        cdef hc_gpu_context before
        if self.c is NULL or self.forked:
            return
        before = hc_device_enter(self.c)
        for event in self.spare:
            self.c.driver.event_free(<hc_gpu_event><size_t>event)
        if self.inlet is not NULL:
            self.c.driver.stream_free(self.inlet)
        hc_device_leave(self.c, before)
        hc_device_close(self.c)

    @property
    def pci(self):
        """Its address on the bus, such as "0000:4a:00.0"."""
        return self.c.pci.decode().lower()

    cdef int ask(self, int status, str what) except -1:
        """Raise what the driver says of a call that failed."""
        if status:
            text = hc_driver_text(&self.c.driver, status).decode(errors="replace")
            raise errors.TransportError(f"GPU {self.number}: {what}: {text} ({status})")
        return 0

    # ---- order -----------------------------------------------------------------------------------------

    cdef hc_gpu_event new_event(self) except NULL:
        cdef hc_gpu_event event = NULL
        if self.spare:
            return <hc_gpu_event><size_t>self.spare.pop()
        before = hc_device_enter(self.c)
        status = self.c.driver.event_new(&event, HC_EVENT_DISABLE_TIMING)
        hc_device_leave(self.c, before)
        self.ask(status, "making an event")
        return event

    cdef int record(self, hc_gpu_event event, size_t stream) except -1:
        """The event has passed when what is in `stream` by now has run."""
        before = hc_device_enter(self.c)
        status = self.c.driver.event_record(event, <hc_gpu_stream>stream)
        hc_device_leave(self.c, before)
        return self.ask(status, "recording an event")

    cdef int follow(self, size_t stream, hc_gpu_event event) except -1:
        """What is put into `stream` from here on runs when the event has passed."""
        before = hc_device_enter(self.c)
        status = self.c.driver.stream_wait_event(<hc_gpu_stream>stream, event, 0)
        hc_device_leave(self.c, before)
        return self.ask(status, "letting a stream wait for an event")

    cdef object new_array(self, int dtype, tuple shape):
        """A DeviceArray over new memory, for libraries that none is known of."""
        cdef DeviceMemory memory = DeviceMemory.__new__(DeviceMemory)
        cdef int status
        cdef size_t nbytes = hc_dtype_size(dtype)
        for n in shape:
            nbytes *= n
        memory.device, memory.stream = self, <size_t>self.inlet
        status = hc_device_result_new(self.c, nbytes, &memory.data)
        check(status, f"GPU {self.number} has no memory for {nbytes} bytes")
        return DeviceArray(memory, <size_t>memory.data, dtype, shape, self.number)

    cdef Loan lend(self, list buffers):
        """Note what the callers' streams have to do first, and keep the arrays."""
        cdef Loan loan = Loan.__new__(Loan)
        cdef Buffer one
        cdef hc_gpu_event event
        loan.device, loan.arrays, loan.more = self, buffers, []
        loan.ready, loan.finished = self.new_event(), self.new_event()
        loan.library = (<Buffer>buffers[0]).library
        streams = set()
        for one in buffers:
            if one.stream is not None:
                streams.add(one.stream)
            if one.library is not loan.library:
                loan.library = None
        if len(streams) > 1:
            for stream in streams:
                event = self.new_event()
                loan.more.append(<size_t>event)
                self.record(event, stream)
                self.follow(<size_t>self.inlet, event)
            streams = (<size_t>self.inlet,)
        for stream in streams:
            self.record(loan.ready, stream)
        return loan

    # ---- the arrays' lives -------------------------------------------------------------------------------

    cdef int keep(self, Loan loan) except -1:
        """Hold the arrays of a request that has ended for the host until it has on the device."""
        if loan.kept:
            return 0
        while self.loans and (<Loan>self.loans[0]).is_over():
            self.loans.popleft()
        loan.kept = True
        self.loans.append(loan)
        return 0

    cdef int drain(self, double seconds) except -1:
        """Wait for the work of all requests, but not for ever."""
        limit = time.monotonic() + seconds
        for loan in self.loans:
            while not (<Loan>loan).is_over() and time.monotonic() < limit:
                time.sleep(0.0001)
        self.loans.clear()
        return 0


@cython.final
@cython.no_gc_clear
cdef class Devices:
    """The GPU that a World uses on this rank, once there is one, and the data planes that its sets have for it."""
    cdef object settings
    cdef list nccl_files
    cdef tuple gpu_aware
    cdef int number
    cdef bint shares_device
    cdef Device device          # opened with the first array in device memory, or as a knob says
    cdef hc_device *device_c    # the same, where the data planes look
    cdef hc_turns turns         # in which the sets call NCCL on it
    cdef hc_data *planes[HC_MAX_SETS]  # the loop's; NULL: the set has none

    def __init__(self, settings, int number, nccl_files, bint shares_device, tuple gpu_aware):
        """See Loop."""
        self.settings, self.number, self.nccl_files = settings, number, list(nccl_files)
        self.shares_device, self.gpu_aware = shares_device, gpu_aware

    cdef int open(self, int number, size_t address) except -1:
        """Open a GPU by its number, or the one that an address lies on; a number that a knob has named comes first."""
        cdef Device device
        if self.settings.device == "none":
            raise errors.UnsupportedError("arrays in device memory were switched off (HPCCOLL_DEVICE=none)")
        device = Device.open(self.number if self.number >= 0 else number, address, self.settings.cuda_library)
        self.device_c = device.c
        self.device = device
        return 0

    cdef hc_data *new_plane(self, const hc_hierarchy_config *place, hc_data *host, hc_net *net) except NULL:
        """A set's data plane for device memory. It opens nothing before its first batch."""
        cdef hc_device_data_config config
        cdef hc_data *data = NULL
        cdef bytes cuda = self.settings.cuda_library.encode(), nccl = self.settings.nccl_library.encode()
        cdef bytes why = self.gpu_aware[2].encode()
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
        config.small, config.flat = self.settings.device_small, self.settings.device_flat
        config.place, config.turns = place[0], &self.turns
        config.device, config.number = &self.device_c, self.number
        config.cuda_library, config.nccl_library, config.nccl_files = cuda, nccl, paths
        config.mode = hc_device_mode_named(self.settings.device_mode.encode())
        config.shares_device = self.shares_device
        config.patience = nanoseconds(self.settings.stall_limit)
        cdef int status = hc_device_data_new(&config, host, net, &data)
        free(paths)
        check(status, "no data plane for devices")
        self.planes[place.set] = data
        return data

    cdef bytes facts(self, int number):
        """What the batches of a set run on, and why; b"" before the first."""
        return hc_device_data_facts(self.planes[number]) if self.planes[number] is not NULL else b""

    cdef int close(self) except -1:
        """When no batch runs any more: results may still be on their way."""
        self.device.drain(10.0)
        self.device_c = NULL
        self.device = None
        return 0


@cython.final
@cython.no_gc_clear
cdef class Loan:
    """The arrays of one request on the device, and its events."""
    cdef Device device
    cdef hc_gpu_event ready, finished
    cdef object library      # whose stream the caller goes on in; None: several, which makes the host wait
    cdef list arrays
    cdef list more           # events of the streams that flowed together
    cdef bint kept, over
    cdef bint copied         # `ready` was recorded once more: behind copies of the results

    def __dealloc__(self):
        if self.device is None or self.device.forked:
            return
        if self.ready is not NULL:
            self.device.spare.append(<size_t>self.ready)
        if self.finished is not NULL:
            self.device.spare.append(<size_t>self.finished)
        self.device.spare += self.more

    cdef bint is_over(self) noexcept:
        """Whether no work touches the arrays any more, because it has run or because the device has failed."""
        cdef hc_driver *driver = &self.device.c.driver
        cdef hc_gpu_context before
        if not self.over:
            before = hc_device_enter(self.device.c)
            self.over = driver.event_query(self.finished) != HC_DRIVER_NOT_READY and (
                not self.copied or driver.event_query(self.ready) != HC_DRIVER_NOT_READY)
            hc_device_leave(self.device.c, before)
        return self.over

    cdef object stream(self):
        """The stream that the caller goes on in; None: not known."""
        return None if self.library is None else self.library.stream(self.device.number)

    cdef int go_on(self, object stream) except -1:
        """The caller's `stream` goes on when the request is finished."""
        return self.device.follow(stream, self.finished)

    cdef int check_run(self) except -1:
        """After is_over(): raise what has gone wrong on the device."""
        return self.device.ask(self.device.c.driver.event_query(self.finished), "an operation's work")

    cdef int copy(self, list copies, object stream) except -1:
        """Fill strided outputs from their stand-ins, in the caller's stream."""
        for target, stand_in in copies:
            library_of(target).copy(target, stand_in)
        if stream is not None:
            self.device.record(self.ready, stream)
            self.copied, self.over = True, False
        return 0

    cdef object take_result(self, hc_piece *piece, int dtype, tuple shape):
        """What the data plane allocated, as a DeviceArray that owns it."""
        cdef DeviceMemory memory = DeviceMemory.__new__(DeviceMemory)
        memory.device = self.device
        stream = self.stream()
        memory.stream = <size_t>self.device.inlet if stream is None else stream
        if piece.out_owned:
            memory.data = piece.out
        piece.out_owned = 0
        return DeviceArray(memory, <size_t>memory.data, dtype, shape, self.device.number)

    cdef int free_results(self, hc_handle *handle) except -1:
        """Those that nobody has taken go back, behind the work that writes them."""
        cdef uint32_t i
        for i in range(handle.request.ntensors):
            if handle.pieces[i].out_owned and not self.device.forked:
                self.device.follow(<size_t>self.device.inlet, self.finished)
                hc_device_result_free(self.device.c, handle.pieces[i].out, self.device.inlet)
        return 0


@cython.final
@cython.no_gc_clear
cdef class DeviceMemory:
    """Device memory that the library allocated for a result."""
    cdef Device device
    cdef void *data
    cdef size_t stream  # what was put into it may use the memory still when it goes back

    def __dealloc__(self):
        if self.data is not NULL and not self.device.forked:
            hc_device_result_free(self.device.c, self.data, <hc_gpu_stream>self.stream)


class DeviceArray:
    """A result in device memory for a library that none is known of: it speaks __cuda_array_interface__ and DLPack.

    Its values are there: whoever is given one has waited for them.
    """

    def __init__(self, memory, address, dtype, shape, device):
        """
        :param memory: keeps the address valid
        :param dtype: index in DTYPES
        :param device: its number
        """
        self._memory = memory
        self.address, self.shape = address, tuple(shape)
        self.device, self._dtype = device, dtype
        self.size = 1
        for n in self.shape:
            self.size *= n
        self.nbytes = self.size * hc_dtype_size(dtype)

    @property
    def dtype(self):
        """The NumPy dtype; of bfloat16 that of ml_dtypes."""
        if self._dtype == HC_BFLOAT16:
            import ml_dtypes
            return np.dtype(ml_dtypes.bfloat16)
        return arrays.DTYPES[self._dtype]

    @property
    def __cuda_array_interface__(self):
        if self._dtype == HC_BFLOAT16:
            raise AttributeError("__cuda_array_interface__ has no name for bfloat16: use DLPack")
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                "strides": None, "stream": None}

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule of DLPack's first form; its consumer's `stream` is remembered for the end of the memory."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a result in device memory is lent as it is, neither copied nor moved")
        if type(self._memory) is DeviceMemory and stream is not None and stream != -1:
            (<DeviceMemory>self._memory).stream = stream
        return dlpack_capsule(self)

    def __repr__(self):
        return f"<hpccoll.DeviceArray: {DTYPES[self._dtype]} {self.shape} on GPU {self.device}>"
