# SPDX-License-Identifier: Apache-2.0
# user_reductions.pxi - begins and ends the operations of a call whose reduction is a function of the program
# (world/user_reduction.h), and calls that function.

cdef extern from *:
    """
    /* Calls a C function of the program, without the interpreter's lock. */
    static int hc__call_compiled(const hc_user_reduction *user, const void *in, void *inout, int64_t count, int dtype) {
        (void)dtype;
        ((void (*)(const void *, void *, Py_ssize_t))user->function)(in, inout, (Py_ssize_t)(count / user->item));
        return 0;
    }
    """
    int hc__call_compiled(const hc_user_reduction *, const void *, void *, int64_t, int) noexcept nogil


cdef int call_python(const hc_user_reduction *user, const void *given, void *inout, int64_t count,
                     int dtype) noexcept with gil:
    cdef Folding folding = <Folding>user.of
    try:
        folding.combine(<char *>given, <char *>inout, count * <int64_t>hc_dtype_size(dtype))
    except BaseException as error:
        folding.error = error
        return HC_UNSUPPORTED
    return HC_OK


cdef int write_neutral(const hc_user_reduction *user, void *to, int64_t count, int dtype) noexcept with gil:
    cdef Folding folding = <Folding>user.of
    try:
        return folding.put_neutral(<char *>to)
    except BaseException as error:
        folding.error = error
        return 0


cdef int check_samples(const hc_user_reduction *user, const hc_sample *samples, int n) noexcept with gil:
    cdef Folding folding = <Folding>user.of
    cdef int i
    try:
        folding.op.check([samples[i].data[:samples[i].nbytes] for i in range(n)], folding.array)
    except BaseException as error:
        folding.error = error
        return HC_UNSUPPORTED
    return HC_OK


@cython.final
cdef class Folding:
    """A call, or a plan, with a UserReduction."""
    cdef hc_folding *c
    cdef hc_user_reduction user
    cdef hc_folding_step step
    cdef Call call
    cdef object op, name, out    # out: the caller's
    cdef object array            # the program's, or a contiguous copy
    cdef object base             # the result of an operation while it is taken, or None
    cdef size_t begin, end       # its memory
    cdef object error            # what the function has raised

    def __dealloc__(self):
        hc_folding_free(self.c)

    cdef int open(self, object name, object out, hc_folding_form form) except -1:
        """Begin the call, whose arguments are checked."""
        cdef bytes sample = b""
        self.name, self.out = name, out
        if self.user.check is not NULL and self.call.set.rank < self.op.SENDERS and \
                self.op.needs_check(self.array.dtype):
            sample = self.op.sample_of(self.array)
        cdef int status = hc_folding_new(
            &self.call.given, &self.call.set.place, form, <const char *>sample, len(sample), &self.c)
        if status < 0:
            raise self.call.no_memory(None, "the arrays of all ranks", self.array.nbytes)
        return 0

    cdef UserHandle begin_step(self, bint waits, bint claims):
        """Submit the next operation of the call. `claims`: record the program's memory as in flight."""
        cdef Set own = self.call.set
        cdef bint unnamed = False
        cdef UserHandle handle
        cdef hc_handle *h = own.new_request(&self.step.arguments, self.name, &unnamed)
        if claims:
            try:
                self.call.claim(h)
            except BaseException:
                if unnamed:
                    hc_order_take_back(own.order)
                raise
        handle = UserHandle.__new__(UserHandle)
        handle.c, handle.set, handle.folding, handle.unnamed = h, own, self, unnamed
        handle.operation, handle.has_result = self.step.arguments.operation, True
        own.enqueue(h, unnamed, waits)
        return handle

    cdef UserHandle make_steps(self):
        """Make all operations of the call, one after the other. Returns the last Handle; None: there were none."""
        cdef UserHandle handle = None
        while hc_folding_next(self.c, &self.step):
            handle = self.begin_step(True, False)
            handle.wait()
        return handle

    cdef int take(self, UserHandle handle) except -1:
        """Take the result of an operation. If it fails, the call is over."""
        cdef char why[HC_WHY]
        cdef hc_piece *piece = &handle.c.pieces[0]
        cdef const int64_t *rows = piece.recv_rows
        cdef char *result = <char *>piece.out
        cdef int status
        if piece.out_owned:
            nbytes = piece.out_rows * piece.row
            self.base = take_result(piece, np.dtype(np.uint8), (nbytes,))
            self.begin, self.end = <size_t>result, <size_t>result + <size_t>nbytes
        with nogil:
            status = hc_folding_take(self.c, result, rows, why)
        self.base = None
        self.begin = self.end = 0
        return self.raise_failure(status, why) if status < 0 or self.error is not None else 0

    cdef int take_start(self) except -1:
        """Combine the arrays of a plan's start."""
        cdef char why[HC_WHY]
        cdef int status
        with nogil:
            status = hc_folding_take_start(self.c, why)
        return self.raise_failure(status, why) if status < 0 or self.error is not None else 0

    cdef int raise_failure(self, int status, const char *why) except -1:
        global failures_known
        error, self.error = self.error, None
        if error is None:
            error = error_of(status, why.decode("utf-8", "replace"))
        failures_known += 1  # the others have it, or have what they need, or hear of it here
        if hc_folding_leaves(self.c):
            announce_refusal(self.call.set, OPERATIONS[self.call.given.operation], self.name, error)
        raise error

    # ---- the function ----------------------------------------------------------------------------

    cdef inline bint has(self, char *data, int64_t nbytes) noexcept:
        return self.begin <= <size_t>data and <size_t>data + <size_t>nbytes <= self.end

    cdef object view(self, char *data, int64_t nbytes):
        """An array over a part of the result, which the function may keep, or over a copy of other memory."""
        if self.has(data, nbytes):
            memory = self.base[<size_t>data - self.begin:<size_t>data - self.begin + <size_t>nbytes]
        else:
            memory = np.frombuffer(bytearray(data[:nbytes]), np.uint8)
        found = memory.view(self.array.dtype)
        return found if self.op.elementwise else found.reshape(self.array.shape)

    cdef int combine(self, char *given, char *inout, int64_t nbytes) except -1:
        cdef bytes values
        b = self.view(inout, nbytes)
        result = self.op.fold(self.view(given, nbytes), b)
        if self.has(inout, nbytes):
            b[...] = result
            return 0
        values = arrays.flat_bytes(np.ascontiguousarray(result)).tobytes()
        memcpy(inout, <const char *>values, nbytes)
        return 0

    cdef int put_neutral(self, char *to) except -1:
        found = self.op.neutral(self.array)
        if found is None:
            return 0
        cdef bytes values = arrays.flat_bytes(np.ascontiguousarray(found)).tobytes()
        memcpy(to, <const char *>values, len(values))
        return 1

    # ---- the result ------------------------------------------------------------------------------

    cdef object result(self):
        """What the call returns, after its last operation."""
        if not hc_folding_found(self.c):  # the exscan of rank 0, or no root
            return self.out if self.call.has_result else None
        if self.call.copies:
            for target, stand_in in self.call.copies:
                target[...] = stand_in
        result, restores = self.call.result, self.call.restores
        return result if restores is None or restores[0] is None else restores[0](result)


cdef class UserHandle(Handle):
    """One operation of such a call; the last one has the result."""
    cdef Folding folding

    cdef bint ends_call(self) noexcept:
        return hc_folding_is_last(self.folding.c)

    cdef int build(self) except -1:
        self.folding.take(self)
        self.result = self.folding.result()
        return 0

    cdef str describe(self):
        name = self.c.request.name[:self.c.request.name_len].decode("utf-8", "replace")
        return f"{OPERATIONS[self.folding.call.given.operation]} {name!r}"

    def rows(self):
        """No rank gives rows of its own."""
        raise errors.InvalidArgumentError(f"{self.describe()} has no rows from each rank here")


cdef Folding new_folding(Call call):
    """Describe the UserReduction of a call whose arrays were read."""
    cdef Folding folding = Folding.__new__(Folding)
    cdef hc_operand *i = call.given.operands
    cdef hc_user_reduction *user = &folding.user
    cdef bytes name = call.own.name.encode("utf-8", "replace")[:sizeof(user.name) - 1]
    cdef size_t address
    op = folding.op = call.own
    folding.call = call
    call.given.user = user
    memcpy(user.name, <const char *>name, len(name))
    if call.given.is_group or i.memory:
        return folding  # check() refuses it
    folding.array = array = call.held[0]
    if type(array) is not ndarray:
        raise errors.UnsupportedError(f"{op!r} takes an array, not a Buffer")
    op.check_dtype(array.dtype)
    user.of = <void *>folding
    user.item = array.dtype.itemsize if i.type is not NULL else 1
    user.block = user.item if op.elementwise else 0
    user.neutral, user.fold = write_neutral, call_python
    if not op.is_known:
        user.check = check_samples
    if op.address is not None:
        address = op.address
        user.fold, user.function = hc__call_compiled, <hc_function>address
    return folding


cdef object begin_user(Call call, object name, object out, bint waits):
    """Begin the operations of a call with a UserReduction; make all of them if the caller waits."""
    cdef Folding folding = new_folding(call)
    cdef UserHandle handle
    call.check()
    call.check_memory(waits)
    folding.open(name, out, HC_FOLDING_WAITS if waits else HC_FOLDING_ASYNC)
    if waits:
        return folding.make_steps()
    hc_folding_next(folding.c, &folding.step)
    return folding.begin_step(False, True)
