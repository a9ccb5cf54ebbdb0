# SPDX-License-Identifier: Apache-2.0
# device.pxi - the GPU of a World: orders the callers' streams and the data plane's, and keeps arrays in use alive.
#
# A request on device memory has two events. `ready` is recorded in the caller's stream when it is enqueued, and the
# data plane's streams wait for it; `finished` is recorded after the data plane's last work, and the caller's stream
# waits for it. The arrays live until `finished` has passed, even if the caller drops them earlier.


cdef int check(int status, str text) except -1:
    if status < 0:
        raise _core.error_of(status, text)
    return 0


@cython.final
@cython.no_gc_clear
cdef class Device:
    """A GPU that a World has opened."""
    cdef hc_device *c
    cdef hc_gpu_stream entry     # it joins other streams: of DLPack producers, of groups
    cdef object ended            # calls that are done on the host, whose arrays are kept
    cdef readonly int number
    cdef bint forked

    @staticmethod
    cdef Device open(hc_accelerator *accelerator, int number, size_t address):
        """The accelerator's device, which it opens. Results keep it open beyond the accelerator's end."""
        cdef char why[HC_DEVICE_WHY]
        cdef Device self = Device.__new__(Device)
        cdef int status
        why[0] = 0
        self.ended = deque()
        with nogil:
            status = hc_accelerator_open(accelerator, number, <const void *>address, why)
            if status >= 0:
                status = hc_device_open(accelerator.device.number, &accelerator.config.files, &self.c, why)
        check(status, why.decode(errors="replace"))
        self.number = self.c.number
        before = hc_device_enter(self.c)
        status = self.c.driver.stream_new(&self.entry, HC_STREAM_NON_BLOCKING, 0)
        hc_device_leave(self.c, before)
        self.ask(status, "making a stream")
        return self

    def __dealloc__(self):
        cdef hc_gpu_context before
        if self.c is NULL or self.forked:
            return
        before = hc_device_enter(self.c)
        if self.entry is not NULL:
            self.c.driver.stream_free(self.entry)
        hc_device_leave(self.c, before)
        hc_device_close(self.c)

    @property
    def pci(self):
        """The PCI address, such as "0000:4a:00.0"."""
        return self.c.pci.decode().lower()

    cdef int ask(self, int status, str what) except -1:
        """Raise the driver's error of a call that has failed."""
        if status:
            text = hc_driver_text(&self.c.driver, status).decode(errors="replace")
            raise errors.TransportError(f"GPU {self.number}: {what}: {text} ({status})")
        return 0

    # ---- order -----------------------------------------------------------------------------------------

    cdef hc_gpu_event new_event(self) except NULL:
        cdef hc_gpu_event event = NULL
        self.ask(hc_device_event_take(self.c, &event), "making an event")
        return event

    cdef int record(self, hc_gpu_event event, size_t stream) except -1:
        """Record the event in `stream`: it passes after the work that the stream has now."""
        return self.ask(hc_device_event_record(self.c, event, <hc_gpu_stream>stream), "recording an event")

    cdef int follow(self, size_t stream, hc_gpu_event event) except -1:
        """Let later work in `stream` wait for the event."""
        return self.ask(
            hc_device_event_follow(self.c, <hc_gpu_stream>stream, event), "letting a stream wait for an event")

    # ---- the arrays' lives -------------------------------------------------------------------------------

    cdef int keep(self, DeviceCall call) except -1:
        """Hold the arrays of a call that is done on the host until it is done on the device."""
        if call.kept:
            return 0
        while self.ended and (<DeviceCall>self.ended[0]).is_over():
            self.ended.popleft()
        call.kept = True
        self.ended.append(call)
        return 0

    cdef int drain(self, double seconds) except -1:
        """Wait for the work of all calls, for at most `seconds`."""
        limit = time.monotonic() + seconds
        for call in self.ended:
            while not (<DeviceCall>call).is_over() and time.monotonic() < limit:
                time.sleep(0.0001)
        self.ended.clear()
        return 0


@cython.final
@cython.no_gc_clear
cdef class DeviceCall:
    """The arrays of one request on the device, and its events."""
    cdef Device device
    cdef hc_gpu_event c_ready, c_finished
    cdef object library      # its stream is the caller's; None: several libraries, so the host waits
    cdef list arrays
    cdef list more           # events of several joined streams
    cdef bint kept, over
    cdef bint copied         # `ready` was recorded again, after copies of the results

    @staticmethod
    cdef DeviceCall begin(Device device, list buffers):
        """Record `ready` after the present work of the callers' streams, and keep the arrays (Buffers of _core)."""
        cdef DeviceCall self = DeviceCall.__new__(DeviceCall)
        cdef hc_gpu_event event
        self.device, self.arrays, self.more = device, buffers, []
        self.c_ready, self.c_finished = device.new_event(), device.new_event()
        self.library = buffers[0].library
        streams = set()
        for buffer in buffers:
            if buffer.stream is not None:
                streams.add(buffer.stream)
            if buffer.library is not self.library:
                self.library = None
        if len(streams) > 1:
            for stream in streams:
                event = device.new_event()
                self.more.append(<size_t>event)
                device.record(event, stream)
                device.follow(<size_t>device.entry, event)
            streams = (<size_t>device.entry,)
        for stream in streams:
            device.record(self.c_ready, stream)
        return self

    def __dealloc__(self):
        if self.device is None or self.device.forked:
            return
        hc_device_event_give(self.device.c, self.c_ready)
        hc_device_event_give(self.device.c, self.c_finished)
        for event in self.more:
            hc_device_event_give(self.device.c, <hc_gpu_event><size_t>event)

    @property
    def ready(self):
        """The event that the data plane waits for, as a number."""
        return <size_t>self.c_ready

    @property
    def finished(self):
        """The event after the data plane's last work, as a number."""
        return <size_t>self.c_finished

    cpdef bint is_over(self) noexcept:
        """Whether no work uses the arrays any more, because it has run or the device has failed."""
        cdef const hc_device *device = self.device.c
        if not self.over:
            self.over = hc_device_event_query(device, self.c_finished) != HC_DRIVER_NOT_READY and (
                not self.copied or hc_device_event_query(device, self.c_ready) != HC_DRIVER_NOT_READY)
        return self.over

    cpdef object stream(self):
        """The caller's stream; None: unknown."""
        return None if self.library is None else self.library.stream(self.device.number)

    def go_on(self, stream):
        """Let the caller's `stream` wait for the end of the request."""
        self.device.follow(stream, self.c_finished)

    def check_run(self):
        """Call it after is_over(): raises the device's error, if any."""
        self.device.ask(hc_device_event_query(self.device.c, self.c_finished), "an operation's work")

    def copied_in(self, stream):
        """Call it after copies to strided outputs were put into `stream`: the arrays live until these end."""
        self.device.record(self.c_ready, stream)
        self.copied, self.over = True, False

    def keep(self):
        """Call it when the request is done on the host: keeps the arrays until it is done on the device."""
        self.device.keep(self)

    def take_result(self, size_t address):
        """The data plane's allocation for a result, as memory that frees itself; 0: no allocation."""
        cdef DeviceMemory memory = DeviceMemory.__new__(DeviceMemory)
        stream = self.stream()
        memory.owner = self.device
        memory.stream = <size_t>self.device.entry if stream is None else stream
        memory.address = address
        return memory

    def free_result(self, size_t address):
        """Free a result that was not taken, after the work that writes it."""
        if not self.device.forked:
            self.device.follow(<size_t>self.device.entry, self.c_finished)
            hc_device_result_free(self.device.c, <void *>address, self.device.entry)


@cython.final
@cython.no_gc_clear
cdef class DeviceMemory:
    """Device memory that the library allocated for a result."""
    cdef Device owner
    cdef readonly size_t address
    cdef public size_t stream  # the memory is freed in the order of this stream

    @property
    def device(self):
        """The number of its device."""
        return self.owner.number

    def __dealloc__(self):
        if self.address and not self.owner.forked:
            hc_device_result_free(self.owner.c, <void *>self.address, <hc_gpu_stream>self.stream)
