# SPDX-License-Identifier: Apache-2.0
# handles.pxi - the handles of requests in flight.

DEF SLICE = 50000000  # ns between checks for signals
DEF MOST_LOST = 8  # errors of dropped handles that a World reports

cdef extern from *:
    """
    static _Thread_local uint64_t failures_known; /* errors of this thread that all ranks of a call have, or hear of */
    """
    uint64_t failures_known


cdef object is_finalizing = sys.is_finalizing  # lives longer than the names of a module


cdef double seconds_of(object timeout) except? -1.0:
    cdef double seconds
    try:
        seconds = timeout
    except (TypeError, OverflowError):
        raise errors.InvalidArgumentError(f"timeout is {timeout!r}: seconds, or None for no limit") from None
    if isnan(seconds):
        raise errors.InvalidArgumentError(f"timeout is {timeout!r}: seconds, or None for no limit")
    return seconds


cdef class Handle:
    """A request in flight: wait for it, ask whether it is done, or ``await`` it.

    Until it is done, its arrays belong to the library: do not write the input, do not touch the output.
    """
    cdef object __weakref__
    cdef hc_handle *c
    cdef Set set
    cdef object inputs       # kept alive until done: input and output of each array, or the array of a message
    cdef object result       # the result of wait(), or the arrays to make it of
    cdef list restores       # functions that convert results to the inputs' types
    cdef list copies         # (target, stand-in) for strided outputs
    cdef object out          # the caller's out
    cdef str text            # of the error
    cdef int operation
    cdef bint group, has_result, unnamed, voted, built
    cdef unsigned long builder  # the thread that makes the result; 0: none
    cdef object unbuilt      # why there is no result
    cdef object call         # device memory: its DeviceCall, the arrays and their order

    @classmethod
    def __class_getitem__(cls, result):
        """Handle[np.ndarray] in an annotation: the type of the result."""
        return GenericAlias(cls, (result,))

    def __init__(self):
        raise TypeError("a Handle is what hpccoll.allreduce_async and its like return")

    def __dealloc__(self):
        cdef uint32_t i
        if self.call is not None:
            for i in range(self.c.request.ntensors):
                if self.c.pieces[i].out_owned:
                    self.call.free_result(<size_t>self.c.pieces[i].out)
        hc_handle_release(self.c)

    def __del__(self):
        # A program that drops handles behind an interrupted wait would have waited for them, as the other ranks do.
        if self.unnamed and self.set.interrupted is not None:
            self.note_interrupted()
        # If it is dropped in flight, the arrays must live until the library has finished with them.
        if self.c is not NULL and not hc_handle_done(self.c):
            self.set.loop.adopt_orphan(self)
        else:
            self.warn_of_lost_error()
            self.keep_arrays()

    cdef void warn_of_lost_error(self) noexcept:
        """Warn of an error that no wait() has raised; call it when the program has dropped the handle."""
        cdef int status = HC_OK if self.c is NULL else self.final_status()
        if status >= 0 or self.text is not None or self.set.loop.forked or is_finalizing():
            return
        self.text = self.failure()
        if self.set.loop.lost_errors < MOST_LOST:
            self.set.loop.lost_errors += 1
            more = " (later ones are not reported)" if self.set.loop.lost_errors == MOST_LOST else ""
            warn_of_lost_error(f"rank {self.set.rank}", error_of(status, self.text), more)

    cdef int final_status(self) noexcept:
        """The status of a request that is done, with that of its result."""
        if self.c.status >= 0 and TRAITS[self.operation] & HC_OP_RESULT_ALLOCATED:
            return self.c.pieces[0].status
        return self.c.status

    def launched(self):
        """Say whether `wait()` would return at once. In host memory this is `done()`. Never blocks.

        :returns: True or False
        """
        if not hc_handle_done(self.c):
            self.set.loop.nudge(self.c.op is not NULL)
        return bool(hc_handle_done(self.c))

    def done(self):
        """Say whether the request is finished, well or not, and its values in device memory are there. Never blocks.

        :returns: True or False
        """
        if not self.launched():
            return False
        return self.call is None or self.c.status < 0 or bool(self.call.is_over())

    def wait(self, timeout=None, bint host=False):
        """Block until the request is finished and return its result. A second call returns the same result.

        In device memory this blocks until the work has been launched; the caller's current stream (PyTorch's or CuPy's)
        then waits for the result. If the array's library has no such stream, this waits for the values.

        :param timeout: seconds; None: no limit
        :param host: wait for the values themselves, also in device memory
        :returns: what the blocking form of the operation returns
        :raises TimeoutError: the time is over; the handle stays valid and may be waited for again
        :raises HpccollError: what the blocking form of the operation raises
        """
        limit = None if timeout is None else time.monotonic() + seconds_of(timeout)
        self.block(timeout, limit)
        if self.call is not None and self.c.status >= 0:
            self.go_on(host, limit)
        return self.outcome()

    def __await__(self):
        import asyncio
        delay = 0.0
        while not hc_handle_done(self.c):
            self.set.loop.drive(&self.c, 1, 0)
            if hc_handle_done(self.c):
                break
            yield from asyncio.sleep(delay).__await__()
            delay = min(delay + 0.00005, 0.001)
        if self.call is not None and self.c.status >= 0:
            while self.call.stream() is None and not self.call.is_over():
                self.set.loop.progress()
                yield from asyncio.sleep(delay).__await__()
                delay = min(delay + 0.00005, 0.001)
            self.go_on(False, None)
        return self.outcome()

    cdef int go_on(self, bint host, object limit) except -1:
        """Let the caller's stream, or the host until `limit`, wait for what was launched."""
        stream = self.call.stream()
        self.set.print_device()
        if stream is not None:
            self.call.go_on(stream)
        if stream is None or host:
            self.block_on_device(limit)
        if self.copies:
            for target, stand_in in self.copies:
                library_of(target).copy(target, stand_in)
            if stream is not None:
                self.call.copied_in(stream)
            self.copies = None
            if host:
                self.block_on_device(limit)
        return 0

    cdef int block_on_device(self, object limit) except -1:
        """Wait until it has run, and make progress meanwhile: NCCL may be waiting for a lost rank."""
        cdef double delay = 0.0
        while not self.call.is_over():
            if limit is not None and time.monotonic() > limit:
                raise TimeoutError(f"{self.describe()} was launched and has not run in time; the handle stays valid")
            self.set.loop.progress()
            time.sleep(delay)
            delay = min(delay + 0.00001, 0.001)
        if self.set.loop.broken():  # an aborted operation also ends, without a result
            self.set.loop.note_raised(HC_BROKEN)
            raise error_of(HC_BROKEN, hc_loop_broken_text(self.set.loop.c).decode(errors="replace"))
        self.call.check_run()
        return 0

    cdef int keep_arrays(self) except -1:
        """Call it when the request is done on the host: keeps the arrays until it is done on the device."""
        if self.call is not None:
            self.call.keep()
        return 0

    cdef int block(self, object timeout, object limit) except -1:
        cdef double left
        if hc_handle_done(self.c) and self.set.loop.background:  # without it, messages may be unsent
            return 0
        if limit is None:
            while not self.set.loop.drive(&self.c, 1, SLICE):
                self.check_signals()
            return 0
        while not hc_handle_done(self.c):
            left = limit - time.monotonic()
            if left <= 0:
                self.set.loop.drive(&self.c, 1, 0)
                if hc_handle_done(self.c):
                    break
                raise TimeoutError(f"{self.describe()} is not finished after {timeout} s; the handle stays valid")
            self.set.loop.drive(&self.c, 1, nanoseconds(left) if left * 1e9 < SLICE else SLICE)
            self.check_signals()
        return 0

    cdef int check_signals(self) except -1:
        """PyErr_CheckSignals(). If it raises an exception, the request goes on."""
        global failures_known
        try:
            PyErr_CheckSignals()
            check_kept()
        except BaseException as error:
            if keeps(error):
                return 0
            if self.ends_call():
                failures_known += 1  # this rank does not refuse the call
            self.note_interrupted()
            raise
        return 0

    cdef bint ends_call(self) noexcept:
        """Whether the other ranks need no later request of this call."""
        return True

    cdef int note_interrupted(self) except -1:
        if self.unnamed:
            self.set.note_interrupted(self)
        return 0

    @property
    def peer(self):
        """The other rank of a send or a receive; -1 while a receive from any rank has none, and for collectives."""
        if self.c.op is NULL:
            return -1
        return self.set.rank_in(self.c.op.peer)

    @property
    def tag(self):
        """The tag of a send or a receive; -1 while a receive of any tag has no message, and for collectives."""
        if self.c.op is NULL or (self.c.op.flags & HC_P2P_ANY_TAG and not (self.c.op.peer >= 0 and self.done())):
            return -1
        return self.c.op.tag

    @property
    def number(self):
        """Which entry of the set's log agreed on it, the same on all ranks; of a message its number at its sender."""
        return self.c.position if self.c.op is NULL else self.c.op.serial

    @property
    def nbytes(self):
        """The bytes of a message: sent, or received, which may be fewer than its array has; 0 until it is received."""
        if self.c.op is NULL:
            return 0
        return (self.c.op.received if self.done() else 0) if self.c.op.receives else self.c.op.bytes

    cdef str describe(self):
        if self.c.op is not NULL:
            return self.describe_p2p()
        name = self.c.request.name[:self.c.request.name_len].decode("utf-8", "replace")
        return f"{OPERATIONS[self.operation]} {name!r}"

    cdef str describe_p2p(self):
        cdef hc_p2p_op *op = self.c.op
        who = "any rank" if op.peer == HC_ANY_PEER else "no rank" if op.peer < 0 else f"rank {self.peer}"
        what = "probe" if op.flags & HC_P2P_PROBE else "receive" if op.receives else "send"
        size = "" if op.flags & (HC_P2P_PROBE | HC_P2P_ALLOCATES) else f" of {op.bytes} bytes"
        tag = "any tag" if op.flags & HC_P2P_ANY_TAG and op.peer < 0 else f"tag {op.tag}"
        return f"{what}{size} {'from' if op.receives else 'to'} {who} ({tag})"

    cdef str failure(self):
        if self.c.op is not NULL and self.c.status == HC_RESULT_SIZE:
            how = "must have its size" if self.c.op.received < self.c.op.bytes else "is too small"
            return f"a message of {self.c.op.received} bytes came for a {self.describe_p2p()}: x {how}"
        if self.c.op is not NULL and self.c.status == HC_NO_MEMORY and self.c.op.flags & HC_P2P_ALLOCATES:
            return (f"{self.describe_p2p()}: no memory on rank {self.set.rank} ({platform.node()}) for a message of "
                    f"{self.c.op.received} bytes, which is lost; the World goes on")
        if self.c.status >= 0:
            why = self.c.pieces[0].why
            return f"{self.describe()}: {why.decode('utf-8', 'replace') if why is not NULL else 'it has no result'}"
        if self.c.status == HC_RESULT_SIZE and self.out is not None:
            return self.wrong_size()
        return self.c.text.decode("utf-8", "replace") if self.c.text else ""

    cdef object outcome(self):
        global failures_known
        if self.unnamed:
            self.leave_order()
        elif TRAITS[self.operation] & HC_OP_ONLY_EVENT:
            hc_order_note(self.set.order, self.c)
        self.set.note_waited(self.c)
        self.keep_arrays()
        if self.set.loop.orphans:
            self.set.loop.let_go_of_orphans()
        cdef int status = self.final_status()
        if status < 0:
            failures_known += 1
            if self.text is None:
                self.text = self.failure()
            self.inputs = self.out = None
            self.set.loop.note_raised(status)
            raise error_of(status, self.text)
        if not self.built:
            self.build_once()
        if self.unbuilt is not None:
            raise self.unbuilt
        return self.result

    cdef int build_once(self) except -1:
        """Call build() in one thread. Others that wait for the handle may use the result only when it is made."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.builder == 0:
            self.builder = me
            try:
                self.build()
            except BaseException as error:
                self.unbuilt = error
            self.built = True
        while not self.built and self.builder != me:  # a handler of a signal cannot wait for the thread that it is in
            time.sleep(0.00005)
        return 0

    cdef int leave_order(self) except -1:
        """Call it when the program has waited for an unnamed call: the numbers of such calls may restart."""
        self.unnamed = False
        if self.set.interrupted is not None:
            self.set.interrupted = [handle for handle in self.set.interrupted if handle is not self] or None
        if self.voted and not hc_handle_position(self.c):  # by votes alone: on the other ranks it had no number
            hc_order_take_back(self.set.order)
            return 0
        hc_order_note(self.set.order, self.c)
        hc_order_end(self.set.order)
        return 0

    cdef int build(self) except -1:
        """Make `result` from what the data plane left; call it only once."""
        if self.c.op is not NULL:
            self.result = self.take_bytes_received() if self.c.op.flags & HC_P2P_ALLOCATES else \
                self.peer if self.c.op.receives else None
        elif TRAITS[self.operation] & HC_OP_ONLY_EVENT:
            self.result = self.c.value
        elif self.has_result and TRAITS[self.operation] & HC_OP_RESULT_ALLOCATED:
            self.result = self.restored(self.take_allocated())
        elif self.restores is not None:
            self.result = self.restored(self.result)
        if self.copies:
            for target, stand_in in self.copies:
                if self.c.op is not NULL and self.c.op.received < self.c.op.bytes:
                    stand_in.view(np.uint8).reshape(-1)[self.c.op.received:] = \
                        np.ascontiguousarray(target).view(np.uint8).reshape(-1)[self.c.op.received:]
                target[...] = stand_in
        self.copies = self.restores = None
        self.inputs = None
        if TRAITS[self.operation] & (HC_OP_COUNTS | HC_OP_ROOTED) == HC_OP_COUNTS:
            self.result = (self.result, self.rows())
        return 0

    cdef object take_bytes_received(self):
        """Take the memory that was allocated for a message; call it only once."""
        cdef ResultMemory memory = ResultMemory.__new__(ResultMemory)
        memory.data, memory.nbytes = self.c.op.data, self.c.op.received
        self.c.op.data = NULL
        return ndarray((memory.nbytes,), np.uint8, memory) if memory.data is not NULL else empty(0, np.uint8)

    cdef object restored(self, object result):
        """Convert a result, or a group's results, to the inputs' types."""
        if self.restores is None:
            return result
        if not self.group:
            return result if self.restores[0] is None else self.restores[0](result)
        return [
            array if restore is None else restore(array)
            for array, restore in zip(result, self.restores, strict=True)]

    cdef object take_allocated(self):
        """The result that the data plane has allocated, with the input's dtype and row shape."""
        cdef hc_piece *piece = &self.c.pieces[0]
        array = self.inputs[0]
        if type(array) is Buffer:
            if self.call is not None:
                return self.take_from_device(piece, <Buffer>array)
            return self.take_bytes(piece, <Buffer>array)
        if self.out is not None:
            return self.out
        return take_result(piece, array.dtype, (piece.out_rows, *array.shape[1:]))

    cdef object take_bytes(self, hc_piece *piece, Buffer like):
        """The result for a Buffer: bytes, in new memory or in `out`."""
        if self.out is not None:
            return self.out
        return take_result(piece, np.dtype(np.uint8), (piece.out_rows * piece.row * hc_dtype_size(like.o.dtype),))

    cdef str wrong_size(self):
        """The error of an `out` whose size differs from the result's."""
        like, target = self.inputs[0], self.result
        row = shape_of(&(<Buffer>like).o)[1:] if type(like) is Buffer else like.shape[1:]
        has = shape_of(&(<Buffer>target).o) if type(target) is Buffer else target.shape
        return f"{self.describe()}: out has shape {has}, the result has {(self.c.pieces[0].out_rows, *row)}"

    cdef object take_from_device(self, hc_piece *piece, Buffer like):
        """The result in the caller's `out`, or as an array of the input's library over new memory."""
        if self.out is not None:
            return self.out
        shape = (piece.out_rows, *[like.o.dims[d] for d in range(1, like.o.ndim)])
        memory = self.call.take_result(<size_t>piece.out if piece.out_owned else 0)
        piece.out_owned = 0
        return like.library.take(device_array_of(memory, like.o.dtype, shape), like.owner)

    def rows(self):
        """Say how many rows came from each rank.

        Call it after wait() of an allgather, an alltoall, a scatter (all rows came from the root) or, on the root, a
        gather.

        :returns: an int64 array with an entry per rank
        :raises InvalidArgumentError: this operation, or this rank of it, has no rows from each rank; it is not
            finished, or has failed
        """
        cdef const int64_t *rows = NULL
        if not hc_handle_done(self.c) or self.final_status() < 0:  # nobody has written them
            what = "has failed" if hc_handle_done(self.c) else "is not finished"
            raise errors.InvalidArgumentError(f"{self.describe()} {what}, so it has no rows from each rank")
        if TRAITS[self.operation] & (HC_OP_COUNTS | HC_OP_ROOTED) == HC_OP_COUNTS | HC_OP_ROOTED:
            from_root = np.zeros(self.set.size, np.int64)
            from_root[self.c.request.root] = self.c.pieces[0].out_rows
            return from_root
        if self.c.pieces is not NULL and self.has_result:
            rows = self.c.pieces[0].recv_rows
        if rows is NULL:
            raise errors.InvalidArgumentError(f"{self.describe()} has no rows from each rank here")
        return np.array([rows[r] for r in range(self.set.size)], np.int64)


def finish_all(handles):
    """Block until all of these Handles are finished; then call wait() of each for its outcome.

    It waits once instead of once per handle: a waiting caller drives, and wakes other threads when it stops. The loops
    of several Worlds take turns, as ranks may list their handles in different orders.
    """
    cdef dict waited = {}
    for handle in handles:
        waited.setdefault((<Handle?>handle).set.loop, []).append(handle)
    while waited:
        try:
            PyErr_CheckSignals()
        except BaseException:
            for handle in handles:
                (<Handle>handle).note_interrupted()
            raise
        waited = {loop: those for loop, those in waited.items() if not drive_a_slice(loop, those)}


cdef bint drive_a_slice(Loop loop, list handles) except -1:
    """Drive for a while; returns whether these Handles of the loop are finished."""
    cdef size_t n = len(handles), at
    cdef hc_handle **all_of_them = <hc_handle **>malloc(n * sizeof(hc_handle *))
    if all_of_them is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    try:
        for at in range(n):
            all_of_them[at] = (<Handle>handles[at]).c
        return loop.drive(all_of_them, n, SLICE)
    finally:
        free(all_of_them)
