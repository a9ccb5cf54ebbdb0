# SPDX-License-Identifier: Apache-2.0
# operands.pxi - reads addresses, dtypes and shapes of arrays.
#
# A plain contiguous NumPy array is read here (0.1 us), and so is a Buffer. hpccoll.arrays and, for device memory,
# hpccoll.device_arrays convert all other objects, by their protocols.
# Only the address is kept. The handle holds the array object, and NumPy does not resize an array with references.

cdef object ndarray = np.ndarray
cdef object empty_like = np.empty_like
cdef object empty = np.empty
cdef char NOWHERE[64]  # an address for arrays without elements: NULL would mean "has joined"


@cython.final
@cython.freelist(64)
cdef class Buffer:
    """Contiguous memory of a framework: an operand that needs no conversion, for adapters (hpccoll.torch).

    An allgather or alltoall of a Buffer in host memory returns bytes (1-d uint8) unless `out` is another Buffer.
    """
    cdef hc_operand o
    cdef readonly object owner
    cdef readonly object library    # device memory: its device_arrays.Library
    cdef readonly object stream     # device memory: its work comes first; None: usable at once
    cdef readonly int device
    cdef bint read_only

    def __init__(self, size_t address, int dtype, shape, owner):
        """
        :param address: of the first element; may be written to if the Buffer is used as `out`
        :param dtype: index in DTYPES
        :param shape: elements in each dimension
        :param owner: keeps the memory alive
        """
        cdef int64_t n
        if dtype < 0 or dtype >= HC_DTYPE_COUNT or len(shape) > HC_MAX_DIMS:
            raise errors.InvalidArgumentError(f"no Buffer of dtype {dtype} and {len(shape)} dimensions")
        self.o.dtype = dtype
        self.o.ndim = 0
        self.o.count = 1
        for n in shape:
            self.o.dims[self.o.ndim] = n
            self.o.ndim += 1
            self.o.count *= n
        self.o.nbytes = self.o.count * <int64_t>hc_dtype_size(dtype)
        self.o.data = <char *>address if self.o.nbytes else NOWHERE
        self.owner = owner

    def at(self, size_t address, owner):
        """Host memory of the same dtype and shape elsewhere."""
        cdef Buffer other = Buffer.__new__(Buffer)
        other.o = self.o
        other.o.data = <char *>address if self.o.nbytes else NOWHERE
        other.owner = owner
        return other

    def of(self, str type_name):
        """Set a text that ranks compare in addition to dtype and shape. Returns the Buffer."""
        self.o.type = type_of(type_name)
        return self

    @staticmethod
    def lent(lent, shape=None):
        """Make a Buffer of a device_arrays.Lent; `shape`: replaces its shape."""
        cdef Buffer self = Buffer(lent.address, lent.dtype, lent.shape if shape is None else shape, lent.array)
        self.o.memory = HC_MEMORY_CUDA
        self.library, self.stream, self.device = lent.library, lent.stream, lent.device
        self.read_only = lent.read_only
        return self


cdef inline int dtype_of(const char *form) noexcept:
    """PEP 3118 format of a NumPy array to a dtype code; -1: no code."""
    cdef char c = form[0]
    if c == b'Z':
        if form[1] == b'f' and form[2] == 0:
            return HC_COMPLEX64
        return HC_COMPLEX128 if form[1] == b'd' and form[2] == 0 else -1
    if c == 0 or form[1] != 0:
        return -1
    if c == b'f':
        return HC_FLOAT32
    if c == b'd':
        return HC_FLOAT64
    if c == b'e':
        return HC_FLOAT16
    if c == b'i':
        return HC_INT32
    if c == b'l' or c == b'q':
        return HC_INT64
    if c == b'B':
        return HC_UINT8
    if c == b'b':
        return HC_INT8
    if c == b'?':
        return HC_BOOL
    if c == b'I':
        return HC_UINT32
    if c == b'L' or c == b'Q':
        return HC_UINT64
    if c == b'h':
        return HC_INT16
    if c == b'H':
        return HC_UINT16
    return -1


cdef bint reads_ndarrays = False


cdef inline int read_ndarray(const hc__ndarray *x, hc_operand *o, bint writable) noexcept:
    """read_plain() of a NumPy array, without the buffer protocol."""
    cdef int d, dtype = hc__ndarray_dtype(x, writable)
    cdef int64_t count = 1
    if dtype < 0:
        return 0
    for d in range(x.nd):
        o.dims[d] = x.dimensions[d]
        count *= o.dims[d]
    o.ndim, o.count = x.nd, count
    o.nbytes = count * <int64_t>hc_dtype_size(dtype)
    o.data = x.data if o.nbytes else NOWHERE
    o.dtype, o.memory, o.type = dtype, HC_MEMORY_HOST, NULL
    return 1


cdef inline int read_plain(object x, hc_operand *o, bint writable) except -1:
    """1: x is a plain contiguous array or a Buffer, `o` describes it; 0: it is something else."""
    cdef Py_buffer view
    cdef int d, dtype
    if type(x) is Buffer:
        o[0] = (<Buffer>x).o
        return 1
    if type(x) is not ndarray:
        return 0
    if reads_ndarrays:
        return read_ndarray(<const hc__ndarray *>x, o, writable)
    try:
        PyObject_GetBuffer(x, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0))
    except (BufferError, ValueError):  # strided, read-only, or a dtype without a format
        return 0
    dtype = dtype_of(view.format)
    if dtype >= 0:
        o.data = <char *>view.buf if view.len else NOWHERE
        o.dtype, o.memory, o.type = dtype, HC_MEMORY_HOST, NULL
        o.nbytes = view.len
        o.count = view.len // view.itemsize
        o.ndim = view.ndim
        for d in range(view.ndim):
            o.dims[d] = view.shape[d]
    PyBuffer_Release(&view)
    return dtype >= 0


cdef bint check_ndarrays() except -1:
    """Whether read_ndarray() and the buffer protocol agree."""
    cdef hc_operand a, b
    cdef int d, reads
    whole = np.zeros((2, 3))
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    arrays_of_all = [np.zeros((2, 3), kind) for kind in "?bBhHiIlLqQefdFD"]
    for x in (*arrays_of_all, whole[:, 1], whole[1], np.zeros(()), whole[:0], frozen, np.zeros(2, ">f8"),
              np.zeros(2, "f8,i4"), np.zeros(2, "g"), np.zeros(9, "u1")[1:].view("f8")):
        for writable in (False, True):
            reads = read_plain(x, &a, writable)
            if reads != read_ndarray(<const hc__ndarray *>x, &b, writable):
                return False
            if reads and not (same_shape(&a, &b) and a.data == b.data and a.nbytes == b.nbytes and a.count == b.count):
                return False
    return True


cdef int read_slowly(object x, hc_operand *o, bint writable) except -1:
    """Describe a contiguous array of any dtype. Elements without a code become bytes in one more dimension."""
    cdef hc_operand flat
    cdef bint has_code = arrays.has_code(x.dtype)
    o.dtype = arrays.dtype_code(x.dtype) if has_code else HC_UINT8
    if not read_plain(arrays.flat_bytes(x), &flat, writable):
        raise errors.InvalidArgumentError("out is read-only" if writable else "an array could not be read")
    o.data, o.memory, o.type = flat.data, HC_MEMORY_HOST, NULL
    o.nbytes = flat.nbytes
    o.count = x.size
    o.ndim = x.ndim
    for d, n in enumerate(x.shape):
        o.dims[d] = n
    if not has_code:
        make_bytes(o, x.itemsize)
        o.type = type_of(x.dtype)
    return 0


cdef dict type_texts = {}  # never freed: requests point into it


cdef const char *type_of(object what) except NULL:
    """The text of a dtype, or the bytes of a text, which ranks compare."""
    cdef bytes text = type_texts.get(what)
    if text is None:
        text = type_texts[what] = arrays.type_name(what, HC_MAX_TYPE)
    return text


cdef int make_bytes(hc_operand *o, Py_ssize_t itemsize) except -1:
    """Describe elements without a code as bytes, in a last dimension; an array without dimensions has one row."""
    if o.ndim == HC_MAX_DIMS:
        raise errors.UnsupportedError(f"an array of {HC_MAX_DIMS} dimensions whose elements move as bytes")
    if o.ndim == 0:
        o.ndim, o.dims[0] = 1, 1
    o.dims[o.ndim] = itemsize
    o.ndim += 1
    o.count *= itemsize
    return 0


cdef inline object result_of(object array):
    """The caller's object of an array that was read or made here."""
    return (<Buffer>array).owner if type(array) is Buffer else array


cdef Buffer read_device(Loop loop, object x, hc_operand *o):
    """Describe an array in device memory; None: it is not in device memory."""
    library = None if library_of is None else library_of(x)
    if library is None:
        return None
    cdef Buffer buffer = loop.describe(library, x)
    o[0] = buffer.o
    return buffer


cdef inline object read_input(Loop loop, object x, hc_operand *o, list restores):
    """Describe an input; return the array to hold. Adds a function to `restores` that converts a result to its type."""
    if read_plain(x, o, False):
        restores.append(None)
        if o.memory:
            loop.check_device(<Buffer>x)
        return x
    restore = None
    if type(x) is not ndarray:
        buffer = read_device(loop, x, o)
        if buffer is not None:
            restores.append(None)
            return buffer
        x, restore = arrays.adopt(x)
    restores.append(restore)
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    if not read_plain(x, o, False):
        read_slowly(x, o, False)
    return x


cdef object no_memory(Loop loop, str what, object nbytes):
    """The error of an allocation that has failed before anything was sent."""
    return errors.OutOfMemoryError(
        f"no memory on rank {loop.rank} (host {platform.node()}, pid {os.getpid()}) for {what} of {nbytes} bytes; "
        "nothing was sent, and the World goes on")


cdef inline object read_message(Loop loop, object x, hc_operand *o):
    """read_input() for a message, which has no result to convert."""
    if read_plain(x, o, False) and not o.memory:
        return x
    try:
        array = read_input(loop, x, o, [])
    except MemoryError:
        raise no_memory(loop, "a contiguous copy of x", x.nbytes) from None
    drop_type(x, o)
    return array


cdef int drop_type(object x, hc_operand *o) except -1:
    """Let objects without a dtype (bytes, bytearray, mmap) match messages of every type."""
    if o.dtype == HC_UINT8 and o.type is NULL and type(x) is not Buffer and not hasattr(x, "dtype"):
        o.type = b""
    return 0


cdef inline int same_shape(const hc_operand *a, const hc_operand *b) noexcept:
    cdef int d
    if a.ndim != b.ndim or a.dtype != b.dtype:
        return 0
    for d in range(a.ndim):
        if a.dims[d] != b.dims[d]:
            return 0
    return 1


cdef object new_output(Loop loop, object like, const hc_operand *shape, hc_operand *o):
    """Make an array with the dtype of `like` and the shape in `shape`; describe it in `o`."""
    if type(like) is Buffer:
        return new_on_device(loop, <Buffer>like, shape if shape != NULL else &(<Buffer>like).o, o)
    if shape == NULL:
        out = empty_like(like)
    else:  # the last dimension of elements that move as bytes is those
        out = empty(tuple([shape.dims[d] for d in range(shape.ndim - (shape.type is not NULL))]), like.dtype)
    if not read_plain(out, o, True):
        read_slowly(out, o, True)
    return out


cdef object new_on_device(Loop loop, Buffer like, const hc_operand *shape, hc_operand *o):
    """Make an array of the library of `like`, or a DeviceArray."""
    if like.library is None:
        raise errors.InvalidArgumentError("a Buffer needs an out")
    cdef Buffer buffer
    cdef size_t nbytes = hc_dtype_size(like.o.dtype)
    cdef int d
    result = like.library.empty(like.owner, shape_of(shape))
    if result is not None:
        return read_device(loop, result, o)
    for d in range(shape.ndim):
        nbytes *= shape.dims[d]
    memory = loop.devices.get().new_memory(nbytes)
    result = device_array_of(memory, like.o.dtype, shape_of(shape))
    buffer = Buffer(result.address, like.o.dtype, result.shape, result)
    buffer.o.memory, buffer.library, buffer.device = HC_MEMORY_CUDA, like.library, result.device
    o[0] = buffer.o
    return buffer


cdef object read_target(Loop loop, object out, hc_operand *o, list copies, str argument="out"):
    """Describe an output. If it is strided, describe a contiguous stand-in and add (out, stand-in) to `copies`."""
    if read_plain(out, o, True):
        return out
    if type(out) is not ndarray:
        buffer = read_device(loop, out, o)
        if buffer is not None:
            if buffer.read_only:
                raise errors.InvalidArgumentError(f"{argument} ({arrays.name_of(out)}) is read-only")
            if buffer.library.copies and buffer.owner is not out:
                copies.append((out, buffer.owner))
            return buffer
    target = arrays.adopt_out(out, argument)
    if not target.flags.c_contiguous:
        return read_stand_in(loop, target, o, copies, argument)
    if not read_plain(target, o, True):
        read_slowly(target, o, True)
    return target


cdef tuple extent_of(object array):
    """The first address of an array in host memory, and the address after its last byte; else (0, 0)."""
    if type(array) is not ndarray:
        return 0, 0
    begin = end = array.__array_interface__["data"][0]
    for n, stride in zip(array.shape, array.strides, strict=True):
        if n == 0:
            return begin, begin
        begin += min((n - 1) * stride, 0)
        end += max((n - 1) * stride, 0)
    return begin, end + array.itemsize


cdef hc_extent memory_of(object array, bint writes) except *:
    """The same of an array that a call reads or writes, and that is not among its operands."""
    cdef hc_extent extent
    cdef size_t begin, end
    begin, end = extent_of(array)
    extent.begin, extent.end, extent.writes, extent.array = <const char *>begin, <const char *>end, writes, -1
    return extent


cdef object read_stand_in(Loop loop, object target, hc_operand *o, list copies, str argument="out"):
    """Make and describe a contiguous stand-in, which is copied into `target` at the end."""
    try:
        stand_in = empty(target.shape, target.dtype)
    except MemoryError:
        raise no_memory(loop, f"a contiguous copy of {argument}", target.nbytes) from None
    copies.append((target, stand_in))
    if not read_plain(stand_in, o, True):
        read_slowly(stand_in, o, True)
    return stand_in


cdef object read_output(Loop loop, object out, const hc_operand *wanted, hc_operand *o, list copies):
    """Describe the caller's `out`, which must be like `wanted`. See read_target."""
    cdef object target = read_target(loop, out, o, copies)
    check_kind(o, wanted)
    if not same_shape(o, wanted):
        raise errors.ResultSizeError(f"out has shape {shape_of(o)}, the result has {shape_of(wanted)}")
    return target


cdef int check_kind(const hc_operand *o, const hc_operand *wanted) except -1:
    if o.dtype != wanted.dtype or not same_type(o, wanted):
        raise errors.InvalidArgumentError(
            f"out has dtype {dtype_name(o)}, the result has {dtype_name(wanted)}")
    return 0


cdef inline bint same_type(const hc_operand *a, const hc_operand *b) noexcept:
    return a.type == b.type or (a.type is not NULL and b.type is not NULL and strcmp(a.type, b.type) == 0)


cdef str dtype_name(const hc_operand *o):
    return DTYPES[o.dtype] if o.type is NULL else o.type.decode()


cdef inline bint overlap(const hc_operand *a, const hc_operand *b) noexcept:
    return a.nbytes and b.nbytes and a.data < b.data + b.nbytes and b.data < a.data + a.nbytes


cdef tuple shape_of(const hc_operand *o):
    return tuple([o.dims[d] for d in range(o.ndim)])


@cython.final
cdef class ResultMemory:
    """Memory that the data plane has allocated for a result; freed with the last array that uses it."""
    cdef void *data
    cdef Py_ssize_t nbytes

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.nbytes, 0, flags)

    def __dealloc__(self):
        hc_result_free(self.data)


cdef object take_result(hc_piece *piece, object dtype, tuple shape):
    """The piece's result as an array that owns its memory."""
    cdef Py_ssize_t nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    if not piece.out_owned or nbytes == 0:
        return empty(shape, dtype)
    cdef ResultMemory memory = ResultMemory.__new__(ResultMemory)
    memory.data = piece.out
    memory.nbytes = nbytes
    piece.out_owned = 0
    piece.out = NULL
    return ndarray(shape, dtype, memory)


reads_ndarrays = check_ndarrays()
