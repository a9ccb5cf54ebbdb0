# SPDX-License-Identifier: Apache-2.0
# calls.pxi - translates the Python arguments of an operation; C code checks them (world/arguments.h).
#
# All operations take this path. The code tests the traits of an operation (core/hc.h), not the operation.

cdef dict CODES = {sys.intern(name): code for code, name in enumerate(OPERATIONS)}  # interned: found by identity


cdef str UNNAMED = HC_ORDER_PREFIX.decode()


cdef const char *read_name(object name, Py_ssize_t *length) except NULL:
    """The bytes of a request's name, which live as long as `name`; InvalidArgumentError if it is none."""
    cdef const char *text
    if not isinstance(name, str) or (<str>name).startswith(UNNAMED):
        raise errors.InvalidArgumentError(
            f"name is {name!r}: a name is a string that does not begin with {UNNAMED!r}")
    try:
        text = PyUnicode_AsUTF8AndSize(name, length)
    except UnicodeEncodeError as error:
        raise errors.InvalidArgumentError(f"name is {name!r}, which UTF-8 cannot say: {error.reason}") from None
    if length[0] == 0 or length[0] > HC_MAX_NAME:
        raise errors.InvalidArgumentError(
            f"name is {name[:64]!r}{'...' * (length[0] > 64)}, {length[0]} bytes: a name has 1 to {HC_MAX_NAME}")
    return text


cdef inline bint nothing_in_flight(Loop loop) noexcept:
    return hc_in_flight_none(&loop.job.in_flight, loop.c, hc_loop_pending)


cdef bint make_claim(Loop loop, hc_claim *claim, str what) except -1:
    """hc_in_flight_claim(). Returns whether it refused the memory. If it fails, the handle is released."""
    cdef int status = hc_in_flight_claim(&loop.job.in_flight, claim)
    if status < 0 and claim.handle is not NULL:
        hc_handle_release(claim.handle)
    if status == HC_NO_MEMORY:
        raise errors.OutOfMemoryError(f"no memory for {what}; nothing was sent")
    return status < 0


cdef object shared_with(str argument, const hc_claim *claim, const hc_words *words=&hc_words_table[HC_WORDS_OWN]):
    """The error for memory that a request in flight uses."""
    its = (<bytes>claim.its).decode("utf-8", "replace")
    return errors.InvalidArgumentError(
        f"{argument} shares memory with {words.an_array.decode()} of {its}, which is in flight: wait for that one "
        "first")


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Call:
    """The arguments of an operation: read and checked before anything is sent."""
    cdef Set set
    cdef hc_arguments given
    cdef bint has_input, has_result
    cdef bytearray storage, counts  # a group's operands; the rows for each rank
    cdef object held             # arrays that must live until the request is done, in the order of the operands
    cdef list restores, copies   # see Handle; None: empty
    cdef list copied             # strided inputs, whose values are already copied; None: empty
    cdef object result           # the result of wait(); None: not known yet
    cdef object name
    cdef object own              # a UserReduction, or None
    cdef int words               # enum hc_words_of: the caller's

    cdef inline bint has(self, int trait) noexcept:
        return hc_arguments_has(&self.given, trait)

    cdef int read_options(self, str operation, object op, object root, object prescale, object postscale,
                          object compression) except -1:
        """Read the arguments other than arrays."""
        cdef hc_arguments *given = &self.given
        given[0] = hc_arguments_of(CODES[operation])
        given.words = self.words
        given.wire = wire_of(compression)
        if self.has(HC_OP_REDUCES):
            given.reduction = reduction_of(op)
            if given.reduction == HC_REDUCTION_COUNT:
                self.own = op
            given.prescale = factor_of(prescale, self.said().prescale)
            given.postscale = factor_of(postscale, self.said().postscale)
        if self.has(HC_OP_ROOTED):
            self.set.check_root(root)
            given.root = root
        self.has_input = hc_arguments_gives(given, &self.set.place)
        self.has_result = hc_arguments_gets(given, &self.set.place)
        return 0

    cdef int check(self) except -1:
        """Make all checks of the arguments that need no other rank."""
        cdef char why[HC_WHY]
        cdef int status = hc_arguments_one_memory(&self.given, &self.set.place, why)
        if status >= 0:
            status = hc_arguments_check(&self.given, &self.set.place, why)
        if status < 0:
            raise error_of(status, f"{self.prefix()}{(<bytes>why).decode('utf-8', 'replace')}")
        return 0

    cdef inline const hc_words *said(self) noexcept:
        return &hc_words_table[self.words]

    cdef str prefix(self, str name=""):
        """What begins the text of an error: the operation. A front end puts the function that was called there."""
        return "" if self.words else f"{OPERATIONS[self.given.operation]}{name}: "

    # ---- arrays ----------------------------------------------------------------------------------

    cdef int read_arrays(self, object x, object out, object splits, hc_operand *two) except -1:
        """Read all arrays of the call into operands: into `two`, which must outlive the call, unless it is a group."""
        self.given.is_fresh = out is None
        if splits is not None and self.has_input and self.has(HC_OP_COUNTS):
            self.counts = counts_of(splits)
            self.given.splits = <const int64_t *>PyByteArray_AS_STRING(self.counts)
            self.given.nsplits = len(self.counts) // <Py_ssize_t>sizeof(int64_t)
        if (type(x) is list or type(x) is tuple) and self.has(HC_OP_FUSES):
            return self.read_group(x, out)
        self.given.n, self.given.operands = 1, two
        self.result = self.read_array(0, x, out)
        return 0

    cdef int read_group(self, object x, object out) except -1:
        cdef Py_ssize_t at, n = len(x)
        if not self.has_result:
            out = None
        if out is not None and (type(out) not in (list, tuple) or len(out) != n):
            raise errors.InvalidArgumentError(f"out of a group of {n} arrays is a list of {n} arrays")
        self.held = []
        self.storage = PyByteArray_FromStringAndSize(NULL, 2 * n * sizeof(hc_operand))
        self.given.is_group, self.given.n = True, n
        self.given.operands = <hc_operand *>PyByteArray_AS_STRING(self.storage)
        self.result = [self.read_array(at, x[at], None if out is None else out[at]) for at in range(n)]
        if self.copies:
            check_strided(self.targets())
        return 0

    cdef list targets(self):
        """The caller's outs of a group, not the stand-ins of strided outs."""
        cdef dict stands_for = {id(stand_in): target for target, stand_in in self.copies}
        return [stands_for.get(id(used), used) for used in self.held[1::2]]

    cdef object read_array(self, Py_ssize_t at, object x, object out):
        """Read an array and its out. Returns the result; None: not known yet."""
        cdef hc_operand *i = &self.given.operands[2 * at]
        array = self.read_source(at, x, out, i)
        if self.has(HC_OP_REDUCES) and i.dtype == HC_UINT8 and type(array) is ndarray and \
                not arrays.has_code(array.dtype):
            if self.own is None:
                raise arrays.refusal(array.dtype, OPERATIONS[self.given.operation])
            if array.ndim == 0 and hc_arguments_by_rows(&self.given):
                self.make_row(at, array, i)  # raises
        if i.ndim == 0 and hc_arguments_by_rows(&self.given):
            array = self.make_row(at, array, i)
        return self.read_result(at, x, out, array)

    cdef object read_source(self, Py_ssize_t at, object x, object out, hc_operand *i):
        """Read the input. If the operation does not read this rank's values, it uses only dtype and shape."""
        if self.has_input:
            return self.read_one(at, x, i)
        if x is None:
            x = out
        if x is None:
            raise errors.InvalidArgumentError(
                f"{OPERATIONS[self.given.operation]}: a rank that is not the root gives out, or as x an array with the "
                "dtype and the row shape of the root's")
        array = self.read_one(at, x, i)
        i.count = i.nbytes = 0
        if i.ndim:
            i.dims[0] = 0
        return array

    cdef object read_one(self, Py_ssize_t at, object x, hc_operand *i):
        cdef list found
        if read_plain(x, i, False) and not i.memory:
            return x
        found = []
        try:
            array = read_input(self.set.loop, x, i, found)
        except MemoryError as error:
            raise self.no_memory(error, "a contiguous copy of x", getattr(x, "nbytes", 0)) from None
        if array is not x and type(x) is ndarray:
            if self.copied is None:
                self.copied = []
            self.copied.append(x)
        if found[0] is not None:
            if self.restores is None:
                self.restores = [None] * <Py_ssize_t>self.given.n
            self.restores[at] = found[0]
        return array

    cdef inline void forget_restore(self, Py_ssize_t at):
        """Do not convert the result to the input's type."""
        if self.restores is not None:
            self.restores[at] = None

    cdef inline void hold(self, object array, object target):
        if self.given.is_group:
            (<list>self.held).append(array)
            (<list>self.held).append(target)
        else:
            self.held = (array, target)

    cdef object make_row(self, Py_ssize_t at, object array, hc_operand *i):
        """Make an array without dimensions one row, unless the operation cuts rows."""
        if self.has(HC_OP_COUNTS) or not self.has(HC_OP_ROWS_DIFFER):
            raise errors.InvalidArgumentError(
                f"{self.prefix()}it needs at least one dimension, {self.said().x.decode()} has none")
        i.ndim, i.dims[0] = 1, 1
        if type(array) is ndarray:
            self.forget_restore(at)
            return array.reshape(1)
        return array

    cdef object read_result(self, Py_ssize_t at, object x, object out, object array):
        """Read or make the output, and hold it. Returns the caller's result; None: not known yet."""
        cdef hc_operand *i = &self.given.operands[2 * at]
        cdef hc_operand *o = i + 1
        cdef hc_operand share
        cdef hc_operand *shape = i
        target = None
        hc_operand_clear(o)
        if not self.has_result:
            self.forget_restore(at)
        elif self.has(HC_OP_RESULT_ALLOCATED):
            if out is not None:
                self.forget_restore(at)
                target = self.read_allocated(out, i, o)
        else:
            if not self.has(HC_OP_ELEMENTWISE) and self.has(HC_OP_REDUCES):
                share = i[0]
                share.dims[0] = hc_share(i.dims[0], self.set.size, self.set.rank)
                shape = &share
            if out is None:
                target = self.new_result(array, shape, shape == i, o)
                self.hold(array, target)
                return result_of(target)
            self.forget_restore(at)
            if out is x and shape == i and result_of(array) is x and (array is not x or read_plain(x, o, True)):
                target = array
                if array is not x:
                    o[0] = i[0]
            else:
                target = read_output(self.set.loop, out, shape, o, self.all_copies())
            self.hold(array, target)
            return out
        self.hold(array, target)
        return target

    cdef list all_copies(self):
        if self.copies is None:
            self.copies = []
        return self.copies

    cdef object read_allocated(self, object out, const hc_operand *i, hc_operand *o):
        """Describe the caller's `out`. Its number of rows is checked when the rows of all ranks are known."""
        cdef hc_operand row = i[0]
        cdef int64_t row_bytes = hc_operand_row(i) * <int64_t>hc_dtype_size(i.dtype)
        target = read_target(self.set.loop, out, o, self.all_copies())
        if type(target) is Buffer and not o.memory and not i.memory:  # bytes, of any shape
            if row_bytes and o.nbytes % row_bytes:
                raise errors.ResultSizeError(f"out has {o.nbytes} bytes, the result has rows of {row_bytes} bytes")
            o.dims[0] = o.nbytes // row_bytes if row_bytes else 0
        else:
            check_kind(o, i)
            row.dims[0] = o.dims[0]
            if o.ndim == 0 or not same_shape(o, &row):
                rows = ", ".join(["n", *[str(n) for n in shape_of(i)[1:]]])
                raise errors.ResultSizeError(f"out has shape {shape_of(o)}, the result has ({rows}), with n rows")
        if not overlap(i, o) or i.memory:
            return target
        if type(target) is Buffer:
            raise errors.InvalidArgumentError("out overlaps the input")
        return read_stand_in(self.set.loop, target, o, self.all_copies())

    cdef object new_result(self, object like, hc_operand *shape, bint as_like, hc_operand *o):
        try:
            return new_output(self.set.loop, like, NULL if as_like else shape, o)
        except MemoryError as error:
            nbytes = hc_dtype_size(shape.dtype)
            for n in shape_of(shape):
                nbytes *= n
            raise self.no_memory(error, "its result", nbytes) from None

    cdef object no_memory(self, object error, str what, object nbytes):
        """The error of an allocation that has failed before anything was sent."""
        if isinstance(error, errors.OutOfMemoryError):
            return error
        name = "" if self.name is None else f" {self.name!r}"
        return errors.OutOfMemoryError(
            f"{self.prefix(name)}no memory on rank {self.set.rank} (host {platform.node()}, pid {os.getpid()}) for "
            f"{what} of {nbytes} bytes; nothing was sent, and the World goes on")

    # ---- the request -----------------------------------------------------------------------------

    cdef Handle start(self, object name, object out, bint waits):
        """Submit the request of checked arguments; only the name is still unchecked."""
        cdef bint unnamed = False
        cdef Handle handle
        self.check_memory(waits)
        cdef hc_handle *h = self.request(name, &unnamed)
        try:
            if not waits:
                self.claim(h)
            handle = self.set.hold(h, self.held)
        except BaseException:
            if unnamed:
                hc_order_take_back(self.set.order)
            raise
        handle.unnamed, handle.operation = unnamed, self.given.operation
        handle.group, handle.has_result = self.given.is_group, self.has_result
        handle.out = out if self.has_result else None
        handle.result = self.result if self.has_result else None
        handle.restores = self.restores
        handle.copies = self.copies
        if unnamed and waits:
            count_request(self.set, handle)
        self.set.enqueue(h, unnamed, waits)
        return handle

    cdef hc_handle *request(self, object name, bint *unnamed) except NULL:
        """Make a request of the arguments."""
        if self.has(HC_OP_ONLY_EVENT):
            name = OPERATIONS[self.given.operation]
        return self.set.new_request(&self.given, name, unnamed)

    cdef int claim(self, hc_handle *h) except -1:
        """Refuse memory that a request in flight uses; otherwise record it for the handle (NULL: the caller waits)."""
        cdef hc_extent two[2]
        cdef hc_extent *extents = two
        cdef hc_claim claim
        cdef object storage
        if self.given.n > 1 or self.copies:
            storage = PyByteArray_FromStringAndSize(
                NULL, (2 * self.given.n + (len(self.copies) if self.copies else 0)) * sizeof(hc_extent))
            extents = <hc_extent *>PyByteArray_AS_STRING(storage)
        claim.n = hc_arguments_extents(&self.given, &self.set.place, extents)
        if self.copies:
            for target, _ in self.copies:
                extents[claim.n] = memory_of(target, True)
                claim.n += 1
        claim.extents, claim.operation, claim.handle = extents, self.given.operation, h
        if make_claim(self.set.loop, &claim, "a request"):
            self.refuse_shared(&claim)
        return 0

    cdef inline int check_memory(self, bint waits) except -1:
        """Refuse memory that a request in flight uses, if this call does not record its memory."""
        if self.copied and not nothing_in_flight(self.set.loop):
            self.check_copied()
        if waits and not nothing_in_flight(self.set.loop):
            self.claim(NULL)
        return 0

    cdef int check_copied(self) except -1:
        """Refuse strided inputs that a request in flight writes. Their values are copied, so they are not recorded."""
        cdef hc_extent extent
        cdef hc_claim claim
        claim.extents, claim.n, claim.operation, claim.handle = &extent, 1, self.given.operation, NULL
        for array in self.copied:
            extent = memory_of(array, False)
            if make_claim(self.set.loop, &claim, "a request"):
                self.refuse_shared(&claim)
        return 0

    cdef int refuse_shared(self, const hc_claim *claim) except -1:
        cdef const hc_extent *extent = &claim.extents[claim.at]
        cdef const hc_operand *i
        is_input = not extent.writes
        if extent.array >= 0:
            i = &self.given.operands[2 * extent.array]
            is_input = is_input or i.data == i[1].data
        cdef const hc_words *words = self.said()
        argument = (words.x if is_input else words.out).decode()
        if self.given.is_group and extent.array >= 0:
            argument = f"{argument} of {words.array.decode()} {extent.array}"
        raise shared_with(argument, claim, words)
