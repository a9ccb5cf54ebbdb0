# SPDX-License-Identifier: Apache-2.0
# plans.pxi - persistent operations: one agreement, many starts.

cdef extern from "world/plan_memory.h" nogil:
    ctypedef struct hc_plan_memory:
        char words[96]
    hc_plan_memory *hc_plan_memory_new(hc_plan_memories *, const hc_extent *, size_t, int, const char *)
    void hc_plan_memory_free(hc_plan_memories *, hc_plan_memory *)
    const hc_plan_memory *hc_plan_memory_start(hc_plan_memories *, hc_plan_memory *)
    void hc_plan_memory_end(hc_plan_memory *)


cdef object lasting(Loop loop, object x, list fills, list restores):
    """The contiguous array that every start reads. If `x` is strided, it is a stand-in, and each start copies the
    (stand-in, x) in `fills`. Adds a function to `restores` that converts a result to the type of `x`, or None."""
    restore = None
    if type(x) is Buffer or x is None:
        restores.append(None)
        return x
    if type(x) is not ndarray:
        if library_of is not None and library_of(x) is not None:
            raise errors.UnsupportedError(
                f"x ({arrays.name_of(x)}) lies in device memory: plans are for host memory, use the _async form")
        if isinstance(x, (list, tuple, bool, int, float, complex, np.generic)):
            raise errors.InvalidArgumentError(
                f"x is of type {type(x).__name__}: a plan reads the same memory at each start, so it needs an array")
        x, restore = arrays.adopt(x)
    restores.append(restore)
    if x.flags.c_contiguous:
        return x
    try:
        stand_in = empty(x.shape, x.dtype)
    except MemoryError:
        raise no_memory(loop, "a contiguous copy of x", x.nbytes) from None
    fills.append((stand_in, x))
    return stand_in


cdef class Plan:
    """A persistent operation: all ranks have agreed on it once, and start it many times.

    `start()` begins, `wait()` ends; `plan()` does both. Between them the arrays belong to the library. A start sends no
    control message, and nothing is compared: the ranks must make the same number of starts of a plan, in any order with
    other plans and operations. Only one thread at a time may use a plan. `free()`, or the end of a ``with`` block,
    frees its memory.
    """
    cdef object __weakref__
    cdef hc_plan *c
    cdef hc_handle *h
    cdef hc_plan_memory *memory
    cdef Set set
    cdef Call call           # the arguments, until it is built
    cdef hc_operand two[2]   # the operands of `call`
    cdef object x, out, options, held, result
    cdef list restores       # functions that convert results to the types of x, or None
    cdef list fills, copies  # (stand-in, x) and (out, stand-in) of strided arrays; None: empty
    cdef list late           # (place, function, array): what each start converts to the type of x; None: empty
    cdef public str name     # for reports and errors
    cdef str kind            # likewise: the operation
    cdef Folding folding     # its UserReduction, or None
    cdef int number          # of its tags between nodes; -1: no tags
    cdef hc_plan_terms terms  # the terms of the agreement, until it is built
    cdef bint is_barrier, receives
    cdef readonly bint active
    """Whether it was started, and neither `wait()` nor `test()` has said that this start is over."""

    def __init__(self):
        raise TypeError("a Plan is what hpccoll.allreduce_init and its like return")

    def __dealloc__(self):
        self.forget_terms()
        if self.c is NULL and self.h is not NULL:
            hc_handle_release(self.h)

    # ---- init ------------------------------------------------------------------------------------

    cdef int read(self, object out) except -1:
        """Read and check the arguments, with this `out`."""
        operation, op, root, splits, prescale, postscale, compression = self.options
        self.call = Call.__new__(Call)
        self.call.set, self.call.name = self.set, self.name
        self.call.read_options(operation, op, root, prescale, postscale, compression)
        self.call.read_arrays(self.x, out, splits, self.two)
        if self.call.own is None:
            return self.call.check()
        self.folding = new_folding(self.call)
        self.call.check()
        return self.folding.open("hpccoll.plan of a UserReduction", out, HC_FOLDING_PLAN)

    def dtypes(self):
        """The dtypes of its arrays."""
        return [DTYPES[self.call.given.operands[2 * at].dtype] for at in range(<Py_ssize_t>self.call.given.n)]

    def agree(self, Plan whole):
        """Agree on the plan with all ranks of its process set, which all get the same error, if any.

        :param whole: the plan of the group that has this plan, else the plan itself
        """
        agree_on_plan(self, whole)
        hc_job_note_generation(&self.set.loop.job, self.terms.generation)
        self.name = f"plan {self.terms.generation}"

    def has_check(self):
        """Say whether its function must show that it works element by element; the same on all ranks."""
        return self.folding is not None and self.folding.user.check is not NULL

    def check_function(self):
        """Check that, with samples of all ranks, after they have agreed. The function may raise on this rank alone."""
        self.folding.make_steps()

    cdef int find_result(self) except -1:
        """Set the result of wait(): `out`, or a new array with the agreed number of rows."""
        cdef Call call = self.call
        cdef int me = self.set.rank
        cdef const hc_plan_agreed *agreed = &self.terms.agreed
        if call.has(HC_OP_RESULT_ALLOCATED):
            if self.out is None and call.has_result:
                self.make_out(hc_plan_rows_of(agreed, me))
            else:
                self.result = self.out if call.has_result else None
        elif call.has_result and not self.is_barrier:
            self.result = self.out if self.out is not None else self.restored(call.result)
        if call.has(HC_OP_COUNTS) and not call.has(HC_OP_ROOTED):
            counts = [hc_plan_rows_from(agreed, r, me) for r in range(self.set.size)]
            self.result = (self.result, np.array(counts, np.int64))
        return 0

    cdef int make_out(self, int64_t rows) except -1:
        array = self.call.held[0]
        if type(array) is Buffer:
            raise errors.InvalidArgumentError("a Buffer needs an out")
        shape = (rows, *array.shape[1:])
        try:
            self.out = empty(shape, array.dtype)
        except MemoryError:
            raise no_memory(self.set.loop, "its result", math.prod(shape) * array.dtype.itemsize) from None
        self.read(self.out)
        self.result = self.restored(self.out)
        return 0

    cdef void forget_terms(self) noexcept:
        free(self.terms.memory)
        self.terms.memory = NULL

    cdef object restored(self, object result):
        """Make a new result, or a group's results, of the inputs' types."""
        if not self.call.given.is_group:
            return self.convert(0, result)
        return [self.convert(place, one) for place, one in enumerate(result)]

    cdef object convert(self, int place, object array):
        """Convert a result. If that makes a copy, as of bytes, each start does it again: see convert_late()."""
        restore = self.restores[place]
        if restore is None:
            return array
        converted = restore(array)
        if not np.may_share_memory(arrays.adopt(converted)[0], array):
            self.late = self.late or []
            self.late.append((place, restore, array))
        return converted

    cdef int convert_late(self) except -1:
        for place, restore, array in self.late:
            converted = restore(array)
            if type(self.result) is list:
                self.result[place] = converted
            else:
                self.result = (converted, self.result[1]) if type(self.result) is tuple else converted
        return 0

    def segment_bytes(self):
        """Bytes of the plan's shared memory on this node; 0: no shared memory."""
        return hc_plan_segment_bytes(&self.terms.agreed)

    def build(self, Segment segment):
        """Make the plan's data plane, after all ranks have agreed on it."""
        cdef bint unnamed = False
        cdef Call call
        self.find_result()
        call = self.call
        if self.folding is None:
            self.h = call.request(self.name, &unnamed)
        else:
            hc_folding_plan(self.folding.c, &self.folding.step)
            self.h = self.set.new_request(&self.folding.step.arguments, self.name, &unnamed)
        cdef hc_segment none = hc_segment(NULL, 0, -1)
        cdef hc_segment *taken = &none if segment is None else &segment.c
        cdef int status = hc_plan_build(&self.set.loop.job, &self.set.where, &self.terms, self.h, taken, &self.c)
        check(status, "no data plane for the plan (is the number of its tags beyond what the net has? Free some plans)")
        self.forget_terms()
        self.note_memory()
        self.held, self.copies = call.held, call.copies or None
        self.call = self.x = None
        self.number = self.terms.number
        hc_job_take_plan_number(&self.set.loop.job, self.number)
        self.set.loop.plans.add(self)

    cdef int note_memory(self) except -1:
        cdef hc_arguments *given = &self.call.given
        cdef object storage = PyByteArray_FromStringAndSize(NULL, (2 * given.n + 1) * sizeof(hc_extent))
        cdef hc_extent *extents = <hc_extent *>PyByteArray_AS_STRING(storage)
        cdef size_t n = 0 if self.is_barrier else hc_arguments_extents(given, &self.set.place, extents)
        return self.add_memory(extents, n, given.operation)

    cdef int add_memory(self, const hc_extent *extents, size_t n, int operation) except -1:
        cdef bytes words = self.describe().encode("utf-8", "replace")
        self.memory = hc_plan_memory_new(&self.set.loop.job.plans, extents, n, operation, words)
        if self.memory is NULL:
            raise errors.OutOfMemoryError("no memory for a plan")
        return 0

    # ---- start, wait, free -----------------------------------------------------------------------

    def start(self):
        """Start the operation on the present values of its arrays.

        :raises InvalidArgumentError: the last start is not over; the plan was freed; or another plan was started and is
            not over, and one of the two writes memory that they share
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        self.begin(False)

    def wait(self, timeout=None):
        """Block until the start is done and return the result; if nothing was started, return at once.

        :param timeout: seconds; None: no limit
        :returns: what the blocking form of the operation returns; the same array after every start
        :raises TimeoutError: the time is over; the start goes on, and may be waited for again
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        return self.end(timeout)

    cdef object end(self, object timeout):
        if self.active and (self.c is NULL or not hc_plan_poll(self.c)):
            self.block(timeout)
        return self.outcome()

    def __call__(self):
        """Start it and wait for it.

        :returns: as `wait()`
        :raises HpccollError: as `start()` and `wait()`
        """
        self.begin(True)
        if not hc_plan_poll(self.c):
            self.block(None)
        return self.outcome()

    def test(self):
        """Say whether the start is done, or nothing was started. Never blocks. After True `wait()` returns at once.

        :returns: True or False
        """
        if not self.active or self.c is NULL:
            return True
        if not hc_plan_test(self.c):
            self.set.loop.progress()
            if not hc_plan_test(self.c):
                return False
        self.end_memory()
        return True

    def free(self):
        """Free the plan's memory. A second call does nothing. It needs no other rank.

        :raises InvalidArgumentError: the last start is not over
        """
        if self.active and self.c is not NULL and not hc_plan_test(self.c):
            raise errors.InvalidArgumentError(
                f"{self.describe()} was started and is not over: wait for it before free()")
        self.active = False
        self.release()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            self.free()
        elif not self.active:
            self.release()

    def __del__(self):
        if self.c is NULL or self.set.loop.forked:
            return
        if self.active and not hc_plan_test(self.c):  # its memory must live until the library has finished with it
            self.set.loop.started_plans.append(self)
            self.end_memory()  # nothing else would
        else:
            self.release()

    def __repr__(self):
        state = "freed" if self.c is NULL else "started" if self.active else "not started"
        return f"<hpccoll.Plan: {self.describe()}, {state}>"

    cdef str describe(self):
        return f"{self.kind} {self.name!r}"

    cdef inline int begin(self, bint waits) except -1:
        cdef const hc_plan_memory *other
        cdef int status
        if self.active or self.c is NULL or self.set.closed or self.set.loop.closed:
            return self.begin_unready(waits)
        if self.memory is not NULL:
            other = hc_plan_memory_start(&self.set.loop.job.plans, self.memory)
            if other is not NULL:
                return self.refuse_memory(other)
        if self.fills is not None:
            for stand_in, x in self.fills:
                stand_in[...] = x
        status = hc_plan_start(self.c, waits)
        if status < 0:
            self.end_memory()
            self.fail(status, hc_loop_broken_text(self.set.loop.c) if status == HC_BROKEN else NULL)
        self.active = True
        return 0

    cdef inline void end_memory(self) noexcept:
        if self.memory is not NULL:
            hc_plan_memory_end(self.memory)

    cdef int refuse_memory(self, const hc_plan_memory *other) except -1:
        words = (<bytes>other.words).decode("utf-8", "replace")
        raise errors.InvalidArgumentError(
            f"{self.describe()} shares memory with {words}, which was started and is not over: wait for that one first")

    cdef int begin_unready(self, bint waits) except -1:
        """Raise the reason why it cannot be started, unless it is a group, which starts its plans."""
        if self.set.closed or self.set.loop.closed or self.set.loop.forked:
            self.set.refuse()
        if self.c is NULL:
            raise errors.InvalidArgumentError(f"{self.describe()} was freed: make another plan")
        raise errors.InvalidArgumentError(f"{self.describe()} was started and is not over: wait for it first")

    cdef int block(self, object timeout) except -1:
        cdef hc_plan *c = self.c
        cdef int over = False
        cdef uint64_t ns
        cdef Loop loop = self.set.loop
        limit = None if timeout is None else time.monotonic() + seconds_of(timeout)
        while not over:
            if self.c is NULL or loop.closed:
                self.active = False
                self.set.refuse()
            ns = SLICE
            if limit is not None:
                ns = min(<uint64_t>SLICE, nanoseconds(max(0.0, limit - time.monotonic())))
            loop.active += 1
            with nogil:
                over = hc_plan_wait(c, ns)
            loop.active -= 1
            if not over and limit is not None and time.monotonic() >= limit:
                raise TimeoutError(f"{self.describe()} is not over after {timeout} s; it goes on")
            PyErr_CheckSignals()
        return 0

    cdef inline object outcome(self):
        if not self.active:
            return self.result
        self.active = False
        self.end_memory()
        if self.c is NULL:
            self.set.refuse()
        if self.h.status < 0:
            self.fail(self.h.status, self.h.text)
        if self.folding is not None:
            self.folding.take_start()
            if not hc_folding_found(self.folding.c):  # the exscan of rank 0, or no root
                self.result = self.out if self.result is not None else None
                return self.result
        if self.copies is not None:
            for target, stand_in in self.copies:
                target[...] = stand_in
        if self.late is not None:
            self.convert_late()
        if self.receives:
            return self.set.rank_in(self.h.op.peer)
        return self.result

    cdef int fail(self, int status, const char *text) except -1:
        words = text.decode("utf-8", "replace") if text is not NULL else ""
        if status == HC_RESULT_SIZE and self.receives:
            words = f"a message of {self.h.op.received} bytes came for {self.describe()}, whose x has " \
                    f"{self.h.op.bytes} bytes"
        self.set.loop.note_raised(status)
        raise error_of(status, words)

    cdef int release(self) except -1:
        cdef hc_plan *c = self.c
        cdef Loop loop = self.set.loop
        if c is NULL or loop.forked:
            return 0
        self.c = NULL
        hc_plan_free(c)
        hc_plan_memory_free(&loop.job.plans, self.memory)
        self.memory = NULL
        hc_handle_release(self.h)
        self.h = NULL
        self.held = self.result = self.out = self.fills = self.copies = self.late = self.folding = None
        hc_job_give_plan_number_back(&loop.job, self.number)
        loop.plans.discard(self)
        return 0


cdef Plan new_plan(Set own, str kind, str name, object x, object out):
    cdef Plan plan = Plan.__new__(Plan)
    plan.set, plan.kind, plan.name = own, kind, name
    plan.number = -1
    plan.restores = []
    cdef list fills = []
    if type(x) is list or type(x) is tuple:
        plan.x = [lasting(own.loop, one, fills, plan.restores) for one in x]
    else:
        plan.x = lasting(own.loop, x, fills, plan.restores)
    plan.out = out
    plan.fills = fills or None
    return plan


cdef Plan new_message_plan(Set own, bint receives, object x, object peer, object tag, str name, bint library):
    cdef Plan plan = new_plan(own, "recv" if receives else "send", name, x, None)
    cdef hc_extent extent
    cdef list copies = []
    if receives:
        plan.fills = None
        plan.held = read_target(own.loop, x, &plan.two[0], copies, "x")
        plan.copies = copies or None
    else:
        plan.held = read_input(own.loop, plan.x, &plan.two[0], [])
    drop_type(x, &plan.two[0])
    plan.receives = receives
    plan.h = own.new_message(
        receives, peer, tag, &plan.two[0], context_of(library, 0), HC_P2P_EXACT if copies or library else 0)
    plan.c = hc_plan_new(own.loop.c, plan.h, own.size)
    if plan.c is NULL:
        raise errors.OutOfMemoryError("no memory for a plan of a message")
    extent.begin, extent.end = plan.two[0].data, plan.two[0].data + plan.two[0].nbytes
    extent.writes, extent.array = receives, 0
    plan.add_memory(&extent, peer != HC_NO_PEER, -1)
    own.loop.plans.add(plan)
    return plan
