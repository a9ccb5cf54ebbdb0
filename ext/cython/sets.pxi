# SPDX-License-Identifier: Apache-2.0
# sets.pxi - a process set: arguments in, requests out.

cdef str UNNAMED = "unnamed call "


@cython.final
cdef class Set:
    """A process set as its member sees it; each World has one."""
    cdef readonly Loop loop
    cdef readonly int number, rank, size
    cdef readonly tuple members
    cdef readonly bint closed
    cdef unsigned long unnamed_thread
    cdef int unnamed_open, unnamed_next
    cdef uint64_t waited     # largest position in the log of what the program has waited for

    def __init__(self, Loop loop, int number, int generation, tuple members, Segment segment):
        """Make the set on this rank, after its other members were told its number.

        :param generation: higher than that of any set of this number that a member was in
        :param members: World rank of each set rank
        :param segment: made for the set's members on this node
        """
        self.loop = loop
        self.number = number
        self.members = members
        self.rank = members.index(loop.rank)
        self.size = len(members)
        self.join_loop(segment, generation)

    # ---- making and ending -----------------------------------------------------------------------

    cdef int join_loop(self, Segment segment, int generation) except -1:
        cdef int32_t *members = copy_ranks(self.members)
        numbers = {}  # nodes in order of first appearance
        cdef int32_t *nodes = copy_ranks(
            [numbers.setdefault(self.loop.node_of[m], len(numbers)) for m in self.members])
        cdef hc_set_config place
        cdef hc_set_parts parts
        cdef hc_node *node
        cdef hc_child *children = <hc_child *>malloc((2 * self.loop.settings.fanout + 2) * sizeof(hc_child))
        cdef hc_tree_index *index = hc_tree_index_new(members, nodes, self.size, self.loop.settings.fanout)
        try:
            if index is NULL or children is NULL:
                raise MemoryError
            memset(&place, 0, sizeof(place))
            place.set = self.number
            place.generation = generation
            place.children = children
            hc_tree_place(index, self.rank, &place, children, 2 * self.loop.settings.fanout + 2)
            node = new_node(self.loop, self.members, segment)
            memset(&parts, 0, sizeof(parts))
            parts.place = &place
            try:
                new_planes(self, members, nodes, node, &parts)
                self.add(&parts)
            except BaseException:
                free_planes(&parts)
                raise
        finally:
            hc_tree_index_free(index)
            free(members)
            free(nodes)
            free(children)
        return 0

    cdef int add(self, const hc_set_parts *parts) except -1:
        cdef hc_handle *h = hc_handle_new(HC_EV_ADD_SET, self.number, 0, 0, NULL, 0, 0)
        if h is NULL:
            raise MemoryError
        h.parts = parts
        return check(self.run(h), "the process set could not be made")

    cdef int run(self, hc_handle *h) except? -1000:
        """A command to the loop itself, which no other rank delays."""
        hc_loop_submit(self.loop.c, h, 1)
        while not self.loop.drive(&h, 1, SLICE):
            pass
        cdef int status = h.status
        hc_handle_release(h)
        return status

    def stop(self, double timeout):
        """End the set's log on all its members. Returns whether that happened within `timeout` seconds."""
        cdef hc_handle *h
        if self.loop.closed or self.loop.forked:
            return True
        h = hc_handle_new(HC_EV_STOP, self.number, 0, 0, NULL, 0, 0)
        if h is NULL:
            raise MemoryError
        hc_loop_submit(self.loop.c, h, 1)
        done = self.loop.drive(&h, 1, nanoseconds(timeout))
        hc_handle_release(h)
        self.closed = True
        return done

    def remove(self):
        """Forget the set, after stop(); its number is free again."""
        cdef hc_handle *h = hc_handle_new(HC_EV_REMOVE_SET, self.number, 0, 0, NULL, 0, 0)
        if h is NULL:
            raise MemoryError
        check(self.run(h))

    # ---- preemption ------------------------------------------------------------------------------

    def preempt(self):
        """Ask all members to stop after the same step; once is enough, by any of them. Never blocks."""
        cdef hc_handle *h
        if self.closed or self.loop.closed or self.loop.forked:
            return
        h = hc_handle_new(HC_EV_PREEMPT, self.number, 0, 0, NULL, 0, 0)
        if h is NULL:
            raise MemoryError
        hc_loop_submit(self.loop.c, h, 0)
        hc_handle_release(h)

    def preempted(self):
        """Whether a member has asked, as far as the operations tell that this program has waited for: the same answer
        on all members that have waited for the same operations."""
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        cdef uint64_t position = hc_loop_preempted(self.loop.c, self.number)
        return position != 0 and position <= self.waited

    cdef void note_waited(self, const hc_handle *h) noexcept:
        """Positions of what was agreed count; what was refused here alone has none."""
        agreed = h.status == HC_OK or h.status == HC_MISMATCH or h.status == HC_ROOT_JOINED
        if agreed and h.position > self.waited:
            self.waited = h.position

    # ---- names -----------------------------------------------------------------------------------

    cdef hc_handle *new_handle(self, int kind, object name, uint32_t ntensors, uint32_t ndims, uint32_t nrows,
                               bint *unnamed) except NULL:
        cdef const char *text
        cdef Py_ssize_t length = 0
        unnamed[0] = name is None
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        if name is None:
            name = self.next_name()
        elif not isinstance(name, str) or name.startswith(UNNAMED):
            raise errors.InvalidArgumentError(
                f"name is {name!r}: a name is a string that does not begin with {UNNAMED!r}")
        try:
            text = PyUnicode_AsUTF8AndSize(name, &length)
        except UnicodeEncodeError as error:
            raise errors.InvalidArgumentError(f"name is {name!r}, which UTF-8 cannot say: {error.reason}") from None
        if length == 0 or length > HC_MAX_NAME:
            raise errors.InvalidArgumentError(
                f"name is {name[:64]!r}{'...' * (length > 64)}, {length} bytes: a name has 1 to {HC_MAX_NAME}")
        cdef hc_handle *h = hc_handle_new(kind, self.number, ntensors, ndims, text, length, nrows)
        if h is NULL:
            raise MemoryError
        return h

    cdef int refuse(self) except -1:
        if self.loop.forked:
            raise errors.ForkedError("this process was forked after hpccoll.init(); the World is its parent's")
        raise errors.ShutDownError("the World has been shut down")

    cdef str next_name(self):
        """Unnamed calls match by their order: the name follows from the program's order alone."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.unnamed_open and self.unnamed_thread != me:
            raise errors.InvalidArgumentError(
                "an unnamed call from another thread is in flight; calls from several threads must be named")
        self.unnamed_thread = me
        return UNNAMED + str(self.unnamed_next)

    cdef int unnamed_waited(self) except -1:
        self.unnamed_open -= 1
        if self.unnamed_open == 0:
            self.unnamed_next = 0
        return 0

    cdef Handle submit(self, hc_handle *h, bint unnamed, bint waits, object inputs):
        """`inputs`: the arrays that must live until it is done."""
        cdef Handle handle = Handle.__new__(Handle)
        if h.request.memory == HC_MEMORY_CUDA:
            self.order_on_device(h, handle, inputs)
        handle.c = h
        handle.inputs = inputs
        handle.set = self
        handle.operation = h.request.operation
        handle.unnamed = unnamed
        if unnamed:
            self.unnamed_open += 1
            self.unnamed_next += 1
        hc_loop_submit(self.loop.c, h, waits)
        return handle

    cdef int order_on_device(self, hc_handle *h, Handle handle, object inputs) except -1:
        """Put the request in order with the streams that its arrays come from."""
        try:
            handle.call = self.loop.devices.get().call([buffer for buffer in inputs if buffer is not None])
        except BaseException:
            hc_handle_release(h)
            raise
        h.ready, h.finished = <void *><size_t>handle.call.ready, <void *><size_t>handle.call.finished
        return 0

    cdef int say_device(self) except -1:
        """Rank 0 says how arrays in device memory are moved, and again when that changes. No choice is silent."""
        if self.loop.said_device is None or self.closed or self.loop.closed:
            return 0
        facts = self.loop.devices.get().facts(self.number)
        if facts and facts not in self.loop.said_device:  # messages alone need no choice
            self.loop.said_device.add(facts)
            print(f"hpccoll: arrays in device memory: {facts}", file=sys.stderr, flush=True)
        return 0

    # ---- the operations --------------------------------------------------------------------------

    def allreduce(self, x, op, name, out, prescale, postscale, compression, bint waits):
        """See collectives.allreduce. Returns a Handle; `waits`: the caller goes on to wait for it."""
        cdef double before = factor_of(prescale, "prescale"), after = factor_of(postscale, "postscale")
        if type(x) is list or type(x) is tuple:
            return self.allreduce_group(x, op, name, out, before, after, compression, waits)
        cdef Operand i, o
        cdef list restores = [], copies = []
        cdef bint unnamed
        cdef int reduction = reduction_of(op)
        array = read_input(self.loop, x, &i, restores)
        cdef int wire = wire_of(compression, i.dtype)
        check_reduction(reduction, i.dtype, before, after)
        if out is None:
            target = new_output(self.loop, array, NULL, &o)
        elif out is x and result_of(array) is x and (array is not x or read_plain(x, &o, True)):
            target = array
            if array is not x:
                o = i
        else:
            target = read_output(self.loop, out, &i, &o, copies)
            check_overlap(&i, &o)
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 1, i.ndim, 0, &unnamed)
        h.request.operation = HC_ALLREDUCE
        h.request.reduction = reduction
        h.request.wire = wire
        h.request.prescale = before
        h.request.postscale = after
        put_tensor(h, 0, h.dims, &i, &o, 1)
        cdef Handle handle = self.submit(h, unnamed, waits, (array, target))
        handle.result = result_of(target) if out is None else out
        if copies:
            handle.copies = copies
        if out is None and restores[0] is not None:
            handle.restores = restores
        return handle

    cdef Handle allreduce_group(self, x, op, name, out, double prescale, double postscale, compression, bint waits):
        cdef Py_ssize_t n = len(x), at
        cdef int reduction = reduction_of(op), wire = HC_WIRE_SAME, ndims = 0
        cdef bint unnamed
        cdef list restores = [], copies = [], inputs = [], results = [], targets = []
        cdef int64_t *dims
        if n == 0:
            raise errors.InvalidArgumentError("a group has at least one array")
        if out is not None and (type(out) not in (list, tuple) or len(out) != n):
            raise errors.InvalidArgumentError(f"out of a group of {n} arrays is a list of {n} arrays")
        cdef Operand *operands = <Operand *>malloc(2 * n * sizeof(Operand))
        if operands is NULL:
            raise MemoryError
        try:
            for at in range(n):
                inputs.append(read_input(self.loop, x[at], &operands[2 * at], restores))
                wire = merge_wire(wire, wire_of(compression, operands[2 * at].dtype), at)
                check_reduction(reduction, operands[2 * at].dtype, prescale, postscale)
                if operands[2 * at].memory != operands[0].memory:
                    raise errors.InvalidArgumentError(
                        f"a group lies in one memory: array 0 in {MEMORIES[operands[0].memory]} memory, array {at} in "
                        f"{MEMORIES[operands[2 * at].memory]} memory")
                ndims += operands[2 * at].ndim
                if out is None:
                    target = new_output(self.loop, inputs[at], NULL, &operands[2 * at + 1])
                    results.append(result_of(target))
                else:
                    target = read_output(self.loop, out[at], &operands[2 * at], &operands[2 * at + 1], copies)
                    results.append(out[at])
                    restores[at] = None
                targets.append(target)
            if out is not None:
                check_group(operands, n)
            h = self.new_handle(HC_EV_ENQUEUE, name, <uint32_t>n, ndims, 0, &unnamed)
            h.request.operation = HC_ALLREDUCE
            h.request.reduction = reduction
            h.request.wire = wire
            h.request.flags = HC_REQUEST_GROUP
            h.request.prescale = prescale
            h.request.postscale = postscale
            dims = h.dims
            for at in range(n):
                dims = put_tensor(h, at, dims, &operands[2 * at], &operands[2 * at + 1], 1)
        finally:
            free(operands)
        cdef Handle handle = self.submit(h, unnamed, waits, inputs + targets)
        handle.group = True
        handle.result = results
        handle.copies = copies
        handle.restores = restores
        return handle

    def broadcast(self, x, root, name, out, bint waits):
        """See collectives.broadcast."""
        cdef Operand i, o
        cdef list restores = [], copies = []
        cdef bint unnamed
        self.check_root(root)
        array = read_input(self.loop, x, &i, restores)
        if out is None:
            target = new_output(self.loop, array, NULL, &o)
        elif out is x and result_of(array) is x and (array is not x or read_plain(x, &o, True)):
            target = array
            if array is not x:
                o = i
        else:
            target = read_output(self.loop, out, &i, &o, copies)
            check_overlap(&i, &o)
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 1, i.ndim, 0, &unnamed)
        h.request.operation = HC_BROADCAST
        h.request.root = root
        put_tensor(h, 0, h.dims, &i, &o, 1)
        cdef Handle handle = self.submit(h, unnamed, waits, (array, target))
        handle.result = result_of(target) if out is None else out
        handle.copies = copies
        handle.restores = restores if out is None else None
        return handle

    def reducescatter(self, x, op, name, out, prescale, postscale, bint waits):
        """See collectives.reducescatter."""
        cdef double before = factor_of(prescale, "prescale"), after = factor_of(postscale, "postscale")
        cdef Operand i, share, o
        cdef list restores = [], copies = []
        cdef bint unnamed
        cdef int reduction = reduction_of(op)
        array = read_input(self.loop, x, &i, restores)
        if i.ndim == 0:
            raise errors.InvalidArgumentError("reducescatter needs at least one dimension, x has none")
        check_reduction(reduction, i.dtype, before, after)
        share = i
        share.dims[0] = i.dims[0] // self.size + (1 if self.rank < i.dims[0] % self.size else 0)
        if out is None:
            target = new_output(self.loop, array, &share, &o)
        else:
            target = read_output(self.loop, out, &share, &o, copies)
            check_overlap(&i, &o)
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 1, i.ndim, 0, &unnamed)
        h.request.operation = HC_REDUCESCATTER
        h.request.reduction = reduction
        h.request.prescale = before
        h.request.postscale = after
        put_tensor(h, 0, h.dims, &i, &o, row_of(&i))
        cdef Handle handle = self.submit(h, unnamed, waits, (array, target))
        handle.result = result_of(target) if out is None else out
        handle.copies = copies
        handle.restores = restores if out is None else None
        return handle

    def allgather(self, x, name, out, bint waits):
        """See collectives.allgather."""
        cdef Operand i, o
        cdef list restores = [], copies = []
        cdef bint unnamed
        array = read_input(self.loop, x, &i, restores)
        target = None if out is None or not i.memory else self.read_gathered(out, &i, &o, copies)
        if i.ndim == 0:
            i.ndim, i.dims[0] = 1, 1
            if type(array) is ndarray:
                array = array.reshape(1)
                restores = [None]
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 1, i.ndim, self.size, &unnamed)
        h.request.operation = HC_ALLGATHER
        put_tensor(h, 0, h.dims, &i, NULL, row_of(&i))
        h.pieces[0].recv_rows = h.rows
        return self.submit_gather(h, unnamed, waits, array, restores, out, target, &o, copies)

    cdef object read_gathered(self, object out, const Operand *i, Operand *o, list copies):
        """Describe the caller's `out` in device memory, whose rows are only known when they have come."""
        target = read_target(self.loop, out, o, copies)
        if o.memory != i.memory or o.dtype != i.dtype:
            raise errors.InvalidArgumentError(
                f"out is {DTYPES[o.dtype]} in {MEMORIES[o.memory]} memory, x {DTYPES[i.dtype]} in {MEMORIES[i.memory]} "
                "memory")
        return target

    cdef Handle submit_gather(self, hc_handle *h, bint unnamed, bint waits, object array, list restores, object out,
                              object target, const Operand *o, list copies):
        """`target`: `out` in device memory, where it is filled; in host memory it is copied to (handles.pxi)."""
        if target is not None:
            h.pieces[0].out, h.pieces[0].out_capacity = o.data, o.nbytes
        cdef Handle handle = self.submit(h, unnamed, waits, (array, target) if h.request.memory else None)
        handle.inputs = array
        handle.result = target
        handle.copies = copies
        handle.out = out
        handle.restores = restores
        return handle

    def alltoall(self, x, splits, name, out, bint waits):
        """See collectives.alltoall."""
        cdef Operand i, o
        cdef list restores = [], copies = []
        cdef bint unnamed
        cdef int r
        array = read_input(self.loop, x, &i, restores)
        target = None if out is None or not i.memory else self.read_gathered(out, &i, &o, copies)
        if i.ndim == 0:
            raise errors.InvalidArgumentError("alltoall needs at least one dimension, x has none")
        splits = check_splits(splits, i.dims[0], self.size)
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 1, i.ndim, 2 * self.size, &unnamed)
        h.request.operation = HC_ALLTOALL
        put_tensor(h, 0, h.dims, &i, NULL, row_of(&i))
        for r in range(self.size):
            h.rows[r] = splits[r]
        h.pieces[0].send_rows = h.rows
        h.pieces[0].recv_rows = h.rows + self.size
        return self.submit_gather(h, unnamed, waits, array, restores, out, target, &o, copies)

    def barrier(self, name, bint waits, bint last=False):
        """See collectives.barrier. `last`: this rank asks for nothing after it; whoever still does ends the World."""
        cdef bint unnamed
        cdef hc_handle *h = self.new_handle(HC_EV_ENQUEUE, name, 0, 0, 0, &unnamed)
        h.request.operation = HC_BARRIER
        h.request.flags = HC_REQUEST_LAST if last else 0
        return self.submit(h, unnamed, waits, None)

    def join(self, bint waits):
        """See collectives.join."""
        cdef bint unnamed
        cdef hc_handle *h = self.new_handle(HC_EV_JOIN, "join", 0, 0, 0, &unnamed)
        h.request.operation = HC_JOIN
        return self.submit(h, False, waits, None)

    def send(self, x, peer, tag=0, bint waits=False):
        """See collectives.send."""
        cdef Operand i
        array = read_input(self.loop, x, &i, [])
        return self.submit_p2p(False, peer, tag, &i, waits, array)

    def recv(self, x, peer, tag=0, bint waits=False):
        """See collectives.recv. `peer` -1: any rank; the handle's `peer` then says which it was."""
        cdef Operand o
        cdef list copies = []
        target = read_target(self.loop, x, &o, copies, "x")
        if type(target) is Buffer and o.memory:
            self.loop.check_device(<Buffer>target)
        cdef Handle handle = self.submit_p2p(True, peer, tag, &o, waits, target)
        handle.copies = copies
        return handle

    cdef Handle submit_p2p(self, bint receives, object peer, object tag, const Operand *o, bint waits, object array):
        cdef hc_p2p_op op
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        check_p2p(receives, peer, tag, self.size)
        op.receives = receives
        op.peer = HC_ANY_PEER if peer == HC_ANY_PEER else self.members[peer]
        op.tag = tag
        op.data, op.bytes = o.data, o.nbytes
        cdef hc_handle *h = hc_handle_of_p2p(self.number, &op, o.memory)
        if h is NULL:
            raise MemoryError
        return self.submit(h, False, waits, (array,) if o.memory else array)

    cpdef int check_root(self, object root) except -1:
        """Raise InvalidArgumentError unless `root` is a rank of the World."""
        if not PyIndex_Check(root) or not 0 <= root < self.size:
            raise errors.InvalidArgumentError(f"root is {root!r}: the World has ranks 0 to {self.size - 1}")
        return 0
