# SPDX-License-Identifier: Apache-2.0
# halos.pxi - grids of ranks, and halo exchanges on them (world/grid.h, world/halo.h).

cdef extern from "world/grid.h" nogil:
    ctypedef struct hc_grid:
        int32_t ndim
        int32_t *dims
        uint8_t *wraps
    int hc_dims_create(int64_t, int32_t, int64_t *)
    void hc_grid_coords(const hc_grid *, int32_t, int32_t *)
    int32_t hc_grid_rank(const hc_grid *, const int64_t *)
    void hc_grid_shift(const hc_grid *, int32_t, int32_t, int64_t, int32_t *)

cdef extern from "world/halo.h" nogil:
    ctypedef struct hc_halo:
        pass
    ctypedef struct hc_halo_given:
        const hc_grid *grid
        char *data
        size_t element
        int dtype
        const char *type
        int32_t ndim, nwidths
        int64_t *shape
        int64_t *strides
        int64_t *widths
        int corners
        uint32_t number
        const char *said
    ctypedef struct hc_halo_place:
        hc_job *job
        const int32_t *members
        hc_place own
    int hc_halo_alone(const hc_halo_place *, const hc_halo_given *, hc_halo **, char *)
    size_t hc_halo_packed(const hc_halo *)
    int hc_halo_start(hc_halo *, int)
    int hc_halo_poll(hc_halo *)
    int hc_halo_test(hc_halo *)
    int hc_halo_wait(hc_halo *, uint64_t)
    int hc_halo_status(const hc_halo *, const char **)
    void hc_halo_free(hc_halo *)

cdef extern from "world/halo.h":
    int hc_halo_new(const hc_halo_place *, const hc_halo_given *, const hc_exchange *, int, hc_halo **,
                    hc_plan_memory **, char *)

DEF LARGE = 65536  # bytes whose copies are made without the GIL


def dims_create(size, list given):
    """Replace the zeros in `given` so that the product of all is `size`; None: the others do not divide it."""
    cdef int64_t dims[HC_MAX_DIMS]
    cdef int32_t ndim = min(len(given), HC_MAX_DIMS + 1), d
    try:
        for d in range(min(ndim, <int32_t>HC_MAX_DIMS)):
            dims[d] = given[d]
        if not hc_dims_create(size, ndim, dims):
            return None
    except OverflowError:
        return None
    return tuple([dims[d] for d in range(ndim)])


@cython.final
cdef class Grid:
    """Ranks on a grid, in row-major order."""
    cdef hc_grid c

    def __init__(self, dims, periods):
        """Describe it; there are at most HC_MAX_DIMS dimensions."""
        self.c.ndim = len(dims)
        for d, (n, wraps) in enumerate(zip(dims, periods, strict=True)):
            self.c.dims[d], self.c.wraps[d] = n, wraps

    def coords(self, int32_t rank):
        """Give the coordinates of a rank."""
        cdef int32_t coords[HC_MAX_DIMS]
        hc_grid_coords(&self.c, rank, coords)
        return tuple([coords[d] for d in range(self.c.ndim)])

    def rank(self, coords):
        """Give the rank at coordinates; PROC_NULL: they lie beyond an end of the grid."""
        cdef int64_t at[HC_MAX_DIMS]
        for d in range(self.c.ndim):
            at[d] = coords[d]
        return hc_grid_rank(&self.c, at)

    def shift(self, int32_t rank, int32_t dimension, int64_t displacement):
        """Give the ranks that a shift receives from and sends to."""
        cdef int32_t peers[2]
        hc_grid_shift(&self.c, rank, dimension, displacement, peers)
        return peers[0], peers[1]


@cython.final
cdef class Halo:
    """A plan of a halo exchange: `halo()` runs it, or `halo.start()`, work that needs no halo, `halo.wait()`.

    Faces between ranks of one node are exchanged in shared memory of their own, others by messages that are plans
    (`send_init`, `recv_init`), so that a start allocates nothing.
    """
    cdef object __weakref__
    cdef hc_halo *c
    cdef hc_plan_memory *memory  # NULL: of a blocking exchange
    cdef Set set
    cdef object array  # its memory must live until the library has finished with it
    cdef bint active   # it was started, and is not over
    cdef bint large    # it copies many bytes

    def __init__(self):
        raise TypeError("a Halo is what Cart.halo_exchange_init returns")

    def start(self):
        """Begin to send and receive. Until `wait()` the sides may not be written, and the halo not be used.

        The first stage only: the others begin in `wait()`. A background thread, if there is one, moves the messages.

        :raises InvalidArgumentError: it is started already; it was freed; or another plan was started and is not over,
            and one of the two writes memory that they share
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        self.begin(False)

    def wait(self):
        """Wait until the halo is filled, which is done here for all stages but the first.

        :raises InvalidArgumentError: it was not started
        :raises ResultSizeError: the neighbour's side has another size
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        if not self.active:
            raise errors.InvalidArgumentError("a halo exchange was not started: call start() before wait()")
        self.end()

    def __call__(self):
        """Do both, without waking the background thread.

        :raises HpccollError: as `start` and `wait`
        """
        self.begin(True)
        self.end()

    def free(self):
        """Give the memory back. The end of a `with` block does so, too, as does the end of the Cart.

        :raises InvalidArgumentError: it is started
        """
        if self.active and self.c is not NULL:
            raise errors.InvalidArgumentError("a halo exchange is under way: call wait() before free()")
        self.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.active:
            self.release()

    def __del__(self):
        if self.c is NULL or self.set.loop.forked:
            return
        if self.active and not hc_halo_test(self.c):
            self.set.loop.started_plans.append(self)
            self.end_memory()  # nothing else would
        else:
            self.release()

    cdef int begin(self, bint waits) except -1:
        cdef const hc_plan_memory *other = NULL
        cdef int status
        if self.active and self.c is not NULL:
            raise errors.InvalidArgumentError(
                "a halo exchange was started twice: call wait() before the next start()")
        if self.c is NULL or self.set.closed or self.set.loop.closed:
            if self.set.closed or self.set.loop.closed or self.set.loop.forked:
                self.set.refuse()
            raise errors.InvalidArgumentError("a halo exchange was freed: make another plan")
        if self.memory is not NULL:
            other = hc_plan_memory_start(&self.set.loop.job.plans, self.memory)
        if other is not NULL:
            words = (<bytes>other.words).decode("utf-8", "replace")
            raise errors.InvalidArgumentError(
                f"a halo exchange shares memory with {words}, which was started and is not over: wait for that one "
                "first")
        if self.large:
            with nogil:
                status = hc_halo_start(self.c, waits)
        else:
            status = hc_halo_start(self.c, waits)
        if status < 0:
            self.end_memory()
            self.fail()
        self.active = True
        return 0

    cdef int end(self) except -1:
        cdef const char *text
        if self.large or self.c is NULL or not hc_halo_poll(self.c):
            self.block()
        self.active = False
        self.end_memory()
        if hc_halo_status(self.c, &text) < 0:
            self.fail()
        return 0

    cdef int block(self) except -1:
        cdef Loop loop = self.set.loop
        cdef hc_halo *c = self.c
        cdef int over = False
        while not over:
            if self.c is NULL or loop.closed:
                self.active = False
                self.set.refuse()
            loop.active += 1
            with nogil:
                over = hc_halo_wait(c, SLICE)
            loop.active -= 1
            PyErr_CheckSignals()
        return 0

    cdef int fail(self) except -1:
        cdef const char *text
        cdef int status = hc_halo_status(self.c, &text)
        self.set.loop.note_raised(status)
        raise error_of(status, text.decode("utf-8", "replace"))

    cdef inline void end_memory(self) noexcept:
        if self.memory is not NULL:
            hc_plan_memory_end(self.memory)

    cdef int release(self) except -1:
        cdef Loop loop = self.set.loop
        if self.c is NULL or loop.forked:
            return 0
        hc_halo_free(self.c)
        hc_plan_memory_free(&loop.job.plans, self.memory)
        self.c, self.memory, self.array = NULL, NULL, None  # a wait for a start that runs says why it has ended
        loop.plans.discard(self)
        return 0


cdef dict halo_types = {}  # by dtype: its code and the address of its text, or 0


cdef int read_halo(hc_halo_given *given, Set own, Grid grid, array, tuple widths, bint corners) except -1:
    """Describe an array and its halo."""
    cdef hc_operand o
    cdef int d
    dtype = array.dtype
    found = halo_types.get(dtype)
    if found is None:
        read_input(own.loop, empty((0,), dtype), &o, [])
        found = halo_types[dtype] = (o.dtype, <size_t>o.type)
    given.grid, given.corners = &grid.c, corners
    given.dtype, given.type = found[0], <const char *><size_t>found[1]
    given.data = <char *><size_t>array.__array_interface__["data"][0]
    given.element, given.ndim, given.nwidths = dtype.itemsize, array.ndim, len(widths)
    for d, (n, stride) in enumerate(zip(array.shape, array.strides)):
        given.shape[d], given.strides[d] = n, stride
    for d, width in enumerate(widths[:HC_MAX_DIMS]):
        given.widths[d] = max(-1, min(width, 1 << 62))
    return 0


cdef Halo new_halo(Set own, object array):
    cdef Halo halo = Halo.__new__(Halo)
    halo.set, halo.array = own, array
    return halo


cdef hc_halo_place place_of(Set own):
    cdef hc_halo_place place
    place.job, place.members, place.own = &own.loop.job, own.ranks, own.place
    return place


def halo_plan(Set own, Grid grid, array, tuple widths, bint corners, uint32_t number, str said, bint refused):
    """Make the plan of a halo exchange with all ranks of the set.

    :param array: a NumPy array that can be written
    :param number: of the exchange in its set
    :param said: the text that must be the same on all ranks
    :param refused: this rank refuses its arguments, for the reason `said`
    :returns: the Halo; None: all ranks refuse their arguments for this reason
    :raises MismatchError: something differs, on all ranks alike
    :raises InvalidArgumentError: the array has no such halo, on any rank
    """
    cdef Halo halo = new_halo(own, array)
    cdef hc_halo_place place = place_of(own)
    cdef Exchange exchange = exchange_in(own)
    cdef hc_exchange c = exchange.c()
    cdef hc_halo_given given
    cdef char why[HC_WHY]
    cdef bytes text = said.encode("utf-8", "replace")
    memset(&given, 0, sizeof(given))
    if not refused:
        read_halo(&given, own, grid, array, widths, corners)
    given.number, given.said = number, text
    cdef int status = hc_halo_new(&place, &given, &c, HC_INVALID if refused else HC_OK, &halo.c, &halo.memory, why)
    if exchange.error is not None:
        raise exchange.error
    if refused and status == HC_INVALID:
        return None
    if status < 0:
        raise error_of(status, (<bytes>why).decode("utf-8", "replace"))
    halo.large = hc_halo_packed(halo.c) > LARGE
    own.loop.plans.add(halo)
    return halo


def halo_exchange(Set own, Grid grid, array, tuple widths, bint corners, uint32_t number):
    """Do a halo exchange; the arguments are those of halo_plan(), and not compared before."""
    cdef Halo halo = new_halo(own, array)
    cdef hc_halo_place place = place_of(own)
    cdef hc_halo_given given
    cdef char why[HC_WHY]
    if own.closed or own.loop.closed or own.loop.forked:
        own.refuse()
    memset(&given, 0, sizeof(given))
    read_halo(&given, own, grid, array, widths, corners)
    given.number = number
    cdef int status = hc_halo_alone(&place, &given, &halo.c, why)
    if status < 0:
        raise error_of(status, (<bytes>why).decode("utf-8", "replace"))
    halo.large = hc_halo_packed(halo.c) > LARGE
    halo.begin(True)
    halo.end()
    halo.release()
