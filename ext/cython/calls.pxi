# SPDX-License-Identifier: Apache-2.0
# calls.pxi - one operation on its way from Python arguments to a request.
#
# All operations take this path. What differs between them is asked of the operation's traits (core/hc.h).

cdef dict CODES = {sys.intern(name): code for code, name in enumerate(OPERATIONS)}  # interned: found by identity


cdef object shared_with(str argument, const hc_handle *other):
    """The error of an array that a request in flight has."""
    cdef char text[HC_IN_FLIGHT_WORDS]
    its = (<bytes>hc_in_flight_words(other, text)).decode("utf-8", "replace")
    return errors.InvalidArgumentError(
        f"{argument} shares memory with an array of {its}, which is in flight: wait for that one first")


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Call:
    """The arguments of one operation: read and checked before anything is sent."""
    cdef Set set
    cdef int operation, traits, reduction, wire, root, ndims
    cdef double prescale, postscale
    cdef bint is_group, has_input, has_result
    cdef Py_ssize_t n            # arrays
    cdef Operand *operands       # of array k: 2k its input, 2k + 1 its output
    cdef bytearray storage       # of a group's operands
    cdef object held             # what must live until the request is done, in the order of the operands
    cdef list restores, copies   # see Handle; None while there is nothing in them
    cdef list copied             # strided inputs, whose values have been copied already; None: there is none
    cdef object result           # what wait() returns, as far as it is known
    cdef object name

    cdef inline bint has(self, int trait) noexcept:
        return (self.traits & trait) != 0

    cdef int read_options(self, str operation, object op, object root, object prescale, object postscale) except -1:
        """What is said beside the arrays. 1: the reduction is the program's own."""
        self.operation = CODES[operation]
        self.traits = TRAITS[self.operation]
        self.has_input = self.has_result = True
        self.reduction = HC_SUM
        self.wire = HC_WIRE_SAME
        self.root = -1
        self.prescale = self.postscale = 1.0
        if self.has(HC_OP_REDUCES):
            self.reduction = reduction_of(op)
            if self.reduction == HC_REDUCTION_COUNT:
                return 1
            self.prescale, self.postscale = factor_of(prescale, "prescale"), factor_of(postscale, "postscale")
        if self.has(HC_OP_ROOTED):
            self.set.check_root(root)
            self.root = root
            if self.root != self.set.rank:
                self.has_result = not self.has(HC_OP_TO_ROOT)
                self.has_input = not self.has(HC_OP_COUNTS)
        return 0

    # ---- arrays ----------------------------------------------------------------------------------

    cdef int read_arrays(self, object x, object out, object compression, Operand *two) except -1:
        """All arrays of the call, into operands: `two`, which live as long as the call, unless it is a group."""
        if (type(x) is list or type(x) is tuple) and self.has(HC_OP_FUSES):
            return self.read_group(x, out, compression)
        self.n, self.operands = 1, two
        self.result = self.read_array(0, x, out, compression)
        return 0

    cdef int read_group(self, object x, object out, object compression) except -1:
        cdef Py_ssize_t at
        self.n = len(x)
        if self.n == 0:
            raise errors.InvalidArgumentError("a group has at least one array")
        if not self.has_result:
            out = None
        if out is not None and (type(out) not in (list, tuple) or len(out) != self.n):
            raise errors.InvalidArgumentError(f"out of a group of {self.n} arrays is a list of {self.n} arrays")
        self.is_group = True
        self.held = []
        self.storage = PyByteArray_FromStringAndSize(NULL, 2 * self.n * sizeof(Operand))
        self.operands = <Operand *>PyByteArray_AS_STRING(self.storage)
        self.result = [
            self.read_array(at, x[at], None if out is None else out[at], compression) for at in range(self.n)]
        if out is not None:
            check_group(self.operands, self.n)
            if self.copies:
                check_strided(self.targets())
        return 0

    cdef list targets(self):
        """The caller's outs of a group, without what stands for those that are not contiguous."""
        cdef dict stands_for = {id(stand_in): target for target, stand_in in self.copies}
        return [stands_for.get(id(used), used) for used in self.held[1::2]]

    cdef object read_array(self, Py_ssize_t at, object x, object out, object compression):
        """One array and where its result goes. Returns the result, as far as it is known."""
        cdef Operand *i = &self.operands[2 * at]
        array = self.read_source(at, x, out, i)
        if i.memory != self.operands[0].memory:
            raise errors.InvalidArgumentError(
                f"a group lies in one memory: array 0 in {MEMORIES[self.operands[0].memory]} memory, array {at} in "
                f"{MEMORIES[i.memory]} memory")
        if self.has(HC_OP_REDUCES):
            if i.dtype == HC_UINT8 and type(array) is ndarray and not arrays.has_code(array.dtype):
                raise arrays.refusal(array.dtype, OPERATIONS[self.operation])
            self.wire = merge_wire(self.wire, wire_of(compression, i.dtype), at)
            check_reduction(self.reduction, i.dtype, self.prescale, self.postscale)
        if i.ndim == 0 and not self.has(HC_OP_ELEMENTWISE) and self.operation_has_rows():
            array = self.make_row(at, array, i)
        self.ndims += i.ndim
        return self.read_result(at, x, out, array)

    cdef object read_source(self, Py_ssize_t at, object x, object out, Operand *i):
        """The input. A rank whose values are not asked for gives an array that only says dtype and shape."""
        if self.has_input:
            return self.read_one(at, x, i)
        if x is None:
            x = out
        if x is None:
            raise errors.InvalidArgumentError(
                f"{OPERATIONS[self.operation]}: a rank that is not the root gives out, or as x an array with the dtype "
                "and the row shape of the root's")
        array = self.read_one(at, x, i)
        i.count = i.nbytes = 0
        if i.ndim:
            i.dims[0] = 0
        return array

    cdef object read_one(self, Py_ssize_t at, object x, Operand *i):
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
                self.restores = [None] * self.n
            self.restores[at] = found[0]
        return array

    cdef inline void forget_restore(self, Py_ssize_t at):
        """The result is not of the input's making."""
        if self.restores is not None:
            self.restores[at] = None

    cdef inline void hold(self, object array, object target):
        if self.is_group:
            (<list>self.held).append(array)
            (<list>self.held).append(target)
        else:
            self.held = (array, target)

    cdef bint operation_has_rows(self) noexcept:
        """The first dimension means something: rows are cut, counted or concatenated."""
        return self.has(HC_OP_ROWS_DIFFER) or self.has(HC_OP_REDUCES)

    cdef object make_row(self, Py_ssize_t at, object array, Operand *i):
        """An array without dimensions counts as one row, where rows are not cut."""
        if self.has(HC_OP_COUNTS) or not self.has(HC_OP_ROWS_DIFFER):
            raise errors.InvalidArgumentError(
                f"{OPERATIONS[self.operation]} needs at least one dimension, x has none")
        i.ndim, i.dims[0] = 1, 1
        if type(array) is ndarray:
            self.forget_restore(at)
            return array.reshape(1)
        return array

    cdef object read_result(self, Py_ssize_t at, object x, object out, object array):
        """Where the result goes, which is held as well. Returns what the caller gets of it, None: not known yet."""
        cdef Operand *i = &self.operands[2 * at]
        cdef Operand *o = i + 1
        cdef Operand share
        cdef Operand *shape = i
        target = None
        o.data, o.nbytes = NULL, 0
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
                if not self.is_group:
                    check_overlap(i, o)
            self.hold(array, target)
            return out
        self.hold(array, target)
        return target

    cdef list all_copies(self):
        if self.copies is None:
            self.copies = []
        return self.copies

    cdef object read_allocated(self, object out, const Operand *i, Operand *o):
        """Describe the caller's `out`, but for its rows, which are checked when those of all ranks are known."""
        cdef Operand row = i[0]
        cdef int64_t row_bytes = row_of(i) * <int64_t>hc_dtype_size(i.dtype)
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
        return read_stand_in(target, o, self.all_copies())

    cdef object new_result(self, object like, Operand *shape, bint as_like, Operand *o):
        try:
            return new_output(self.set.loop, like, NULL if as_like else shape, o)
        except MemoryError as error:
            nbytes = hc_dtype_size(shape.dtype)
            for n in shape_of(shape):
                nbytes *= n
            raise self.no_memory(error, "its result", nbytes) from None

    cdef object no_memory(self, object error, str what, object nbytes):
        """The error of an allocation that failed before anything was sent."""
        if isinstance(error, errors.OutOfMemoryError):
            return error
        name = "" if self.name is None else f" {self.name!r}"
        return errors.OutOfMemoryError(
            f"{OPERATIONS[self.operation]}{name}: no memory on rank {self.set.rank} (host {platform.node()}, pid "
            f"{os.getpid()}) for {what} of {nbytes} bytes; nothing was sent, and the World goes on")

    # ---- the request -----------------------------------------------------------------------------

    cdef Handle start(self, object name, object splits, object out, bint waits, bint last):
        """Ask for the operation. Nothing can be wrong with it from here on but its name."""
        cdef bint unnamed = False
        if hc_in_flight_any(&self.set.loop.in_flight):
            self.check_in_flight(out is not None, waits)
        cdef hc_handle *h = self.request(name, splits, last, &unnamed)
        if not waits:
            self.note_in_flight(h, out is not None)
        cdef Handle handle = self.set.submit(h, unnamed, waits, self.held)
        handle.operation = self.operation
        handle.group, handle.has_result = self.is_group, self.has_result
        handle.out = out if self.has_result else None
        handle.result = self.result if self.has_result else None
        handle.restores = self.restores
        handle.copies = self.copies
        return handle

    cdef hc_handle *request(self, object name, object splits, bint last, bint *unnamed) except NULL:
        """Write the arguments into a request."""
        cdef uint32_t nrows = 0
        cdef hc_handle *h
        if self.has(HC_OP_ONLY_EVENT):
            h = self.set.new_handle(HC_EV_JOIN, OPERATIONS[self.operation], 0, 0, 0, unnamed)
        else:
            if not self.has_input:
                splits = None  # only the root's count
            elif self.has(HC_OP_COUNTS):
                splits = check_splits(splits, self.operands[0].dims[0], self.set.size, self.has(HC_OP_ROOTED))
            if self.has(HC_OP_RESULT_ALLOCATED):
                nrows = 2 * self.set.size
            h = self.set.new_handle(HC_EV_ENQUEUE, name, <uint32_t>self.n, self.ndims, nrows, unnamed)
        h.request.operation = self.operation
        h.request.root = self.root
        h.request.reduction = self.reduction
        h.request.wire = self.wire
        h.request.prescale, h.request.postscale = self.prescale, self.postscale
        h.request.flags = (HC_REQUEST_GROUP if self.is_group else 0) | (HC_REQUEST_LAST if last else 0)
        self.put_tensors(h)
        if nrows:
            self.put_rows(h, splits)
        return h

    cdef int check_in_flight(self, bint brought, bint waits) except -1:
        """Raise InvalidArgumentError if an out is used by a request in flight, or an input is the out of one.

        `brought`: the outs are the caller's.
        """
        cdef hc_in_flight *f = &self.set.loop.in_flight
        cdef const hc_handle *other
        cdef Py_ssize_t at
        cdef Operand *i
        if waits and self.set.loop.c is not NULL and not hc_loop_pending(self.set.loop.c):
            hc_in_flight_clear(f)  # the next blocking call finds it empty
            return 0
        for at in range(self.n):
            i = &self.operands[2 * at]
            other = hc_in_flight_other(f, i.data, i.nbytes, False, self.operation)
            if other is not NULL:
                self.refuse_shared(at, "x", other)
            if brought and i[1].data is not NULL:
                other = hc_in_flight_other(f, i[1].data, i[1].nbytes, True, self.operation)
                if other is not NULL:
                    self.refuse_shared(at, "out", other)
        if self.copied:
            self.check_spread(self.copied, "x", False)
        if self.copies:
            self.check_spread([target for target, _ in self.copies], "out", True)
        return 0

    cdef int check_spread(self, list spread, str argument, bint writes) except -1:
        """The same for arrays that a contiguous one stands for."""
        cdef const hc_handle *other
        cdef size_t begin, end
        for array in spread:
            begin, end = extent_of(array)
            other = hc_in_flight_other(
                &self.set.loop.in_flight, <const void *>begin, end - begin, writes, self.operation)
            if other is not NULL:
                self.refuse_shared(-1, argument, other)
        return 0

    cdef int refuse_shared(self, Py_ssize_t at, str argument, const hc_handle *other) except -1:
        raise shared_with(f"{argument} of array {at}" if self.is_group and at >= 0 else argument, other)

    cdef int note_in_flight(self, hc_handle *h, bint brought) except -1:
        """Until it is done, its memory is not to be had for another request."""
        cdef hc_in_flight *f = &self.set.loop.in_flight
        cdef int status = HC_OK
        cdef size_t begin, end
        cdef Py_ssize_t at
        cdef Operand *i
        for at in range(self.n):
            i = &self.operands[2 * at]
            if brought and i[1].data is not NULL:
                status |= hc_in_flight_add(f, i[1].data, i[1].nbytes, True, h)
            if i.data != i[1].data:
                status |= hc_in_flight_add(f, i.data, i.nbytes, False, h)
        if self.copies:
            for target, _ in self.copies:
                begin, end = extent_of(target)
                status |= hc_in_flight_add(f, <const void *>begin, end - begin, True, h)
        if status < 0:
            hc_handle_release(h)
            raise errors.OutOfMemoryError("no memory for a request; nothing was sent")
        return 0

    cdef void put_tensors(self, hc_handle *h) noexcept:
        cdef int64_t *dims = h.dims
        cdef Py_ssize_t at
        cdef Operand *i
        cdef bint flat = self.has(HC_OP_ELEMENTWISE)
        for at in range(self.n):
            i = &self.operands[2 * at]
            dims = put_tensor(h, at, dims, i, i + 1, 1 if flat else row_of(i))

    cdef void put_rows(self, hc_handle *h, object splits):
        """The rows for each rank, and room for the number of rows from each."""
        cdef int r
        if splits is not None:
            for r in range(self.set.size):
                h.rows[r] = splits[r]
            h.pieces[0].send_rows = h.rows
        if self.operands[1].data is not NULL:
            h.pieces[0].out_rows = self.operands[1].dims[0]
        if not (self.has(HC_OP_ROOTED) and self.has(HC_OP_COUNTS)):  # all rows come from the root
            h.pieces[0].recv_rows = h.rows + self.set.size
