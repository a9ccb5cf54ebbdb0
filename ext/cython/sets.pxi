# SPDX-License-Identifier: Apache-2.0
# sets.pxi - a process set: arguments in, requests out.

cdef bytes exception_in_flight():
    """The type and the first line of the exception that ends this rank, for the others; b"" if it ends in order.

    A first line that ends with a colon says nothing without the others, as in errors of torch and TensorFlow.
    """
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if error is None or isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code):
        return b""
    said = str(error).strip()
    first = "".join(said.splitlines()[:1]).rstrip()
    if first.endswith(":"):
        first = " ".join(said.split())
    return f"{type(error).__name__}{': ' if first else ''}{first}".encode("utf-8", "replace")[:150]


@cython.final
cdef class Set:
    """A process set on a member; each World has a process set."""
    cdef readonly Loop loop
    cdef readonly int number, generation, rank, size
    cdef hc_place place
    cdef int32_t *ranks  # World rank of each member
    cdef hc_members where
    cdef readonly tuple members
    cdef readonly dict turns  # by operation, a lock for the threads that make sets of this one
    cdef readonly bint closed
    cdef hc_order *order      # of the calls without a name
    cdef bint shortens        # unnamed calls try the shortcut
    cdef bint tried           # a shortcut of the present call was off
    cdef bint in_shortcut     # a thread reads the set's memory
    cdef list interrupted     # Handles of unnamed calls whose wait a signal has ended; None: there are none
    cdef void *reserve        # memory for a result of a shortcut; NULL: not yet, or it is used
    cdef uint64_t waited     # largest position in the log of calls that the program has waited for

    def __init__(self, Loop loop, int number, int generation, tuple members, Segment segment=None):
        """Make the set on this rank, after its members have agreed on its number.

        :param generation: higher than that of any set of this number that a member was in
        :param members: World rank of each set rank
        :param segment: of the set of all ranks, made for it; None: the set gets a slice. Then a failure breaks the
            World, because the other members do not learn of it otherwise
        """
        self.loop = loop
        self.number = number
        self.generation = generation
        self.members = members
        self.turns = {}
        self.rank = members.index(loop.rank)
        self.size = len(members)
        self.place = hc_place(number, self.rank, self.size)
        try:
            self.join_loop(segment, generation)
        except BaseException as error:
            if segment is None:
                self.fail(error)
            raise

    # ---- making and ending -----------------------------------------------------------------------

    cdef int join_loop(self, Segment segment, int generation) except -1:
        cdef hc_job *job = &self.loop.job
        cdef hc_set_draft draft
        self.ranks = copy_ranks(self.members)
        check(hc_members_find(job, self.ranks, self.size, &self.where), "the process set could not be made")
        cdef int status = hc_set_draft_make(job, &self.where, self.number, generation,
                                            NULL if segment is None else &segment.c, &draft)
        try:
            check(status, "the process set could not be made" + (f": {draft.why.decode()}" if draft.why[0] else ""))
            check(hc_set_add(job, &draft), "the process set could not be made")
        finally:
            hc_set_draft_free(&draft)
        self.order = &job.orders[self.number]
        self.shortens = (draft.shortcut is not NULL or self.size == 1) and not self.loop.settings.debug
        return 0

    cdef int fail(self, error) except -1:
        cdef bytes why = str(error).encode("utf-8", "replace")
        cdef const char *text = why
        cdef hc_job *job = &self.loop.job
        cdef uint32_t number = self.number
        cdef int status = HC_SHUT_DOWN if isinstance(error, errors.ShutDownError) else HC_NO_MEMORY
        if self.loop.c is NULL or self.loop.forked:
            return 0
        with nogil:
            hc_sets_fail(job, number, status, text)
        return 0

    def __dealloc__(self):
        hc_members_free(&self.where)
        free(self.ranks)
        hc_result_free(self.reserve)

    def stop(self, double timeout):
        """End the set's log on all its members. Returns whether that happened within `timeout` seconds."""
        cdef hc_handle *h
        cdef double left, limit = time.monotonic() + timeout
        cdef bint done = False
        if self.loop.closed or self.loop.forked:
            return True
        self.close_gate()
        end_sharing(self.loop, self.number)
        cdef bytes why = exception_in_flight()
        h = hc_handle_new(HC_EV_STOP, self.number, 0, 0, why, len(why) + 1 if why else 0, 0)
        if h is NULL:
            raise errors.OutOfMemoryError("no memory for a request")
        hc_loop_submit(self.loop.c, h, 1)
        try:
            while not done:
                PyErr_CheckSignals()  # an exception: the set may be stopped again
                left = max(0.0, limit - time.monotonic())
                done = self.loop.drive(&h, 1, nanoseconds(left) if left * 1e9 < SLICE else SLICE)
                if left == 0.0:
                    break
        finally:
            hc_handle_release(h)
        self.closed = True
        return done

    def capsule(self):
        """Return a capsule of the set for libhpccoll.so: see hpccoll.capsule."""
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        return share_with_c(self)

    def remove(self):
        """Remove the set, after stop(), and free its number."""
        cdef hc_job *job = &self.loop.job
        cdef uint32_t number = self.number
        cdef int status
        self.shortens = False
        while self.in_shortcut:
            time.sleep(0.0001)
        self.loop.active += 1
        with nogil:
            status = hc_set_remove(job, number)
        self.loop.active -= 1
        check(status, "the process set could not be removed")

    # ---- the gate --------------------------------------------------------------------------------

    def open_gate(self, bint is_world=False):
        """Let compiled programs find the set; a second call changes nothing.

        :param is_world: it is the set of init()'s World, whose number is constant
        :returns: its number for them, see gate/gate.h
        """
        cdef hc_gate_place place
        cdef uint64_t number = 0
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        place.loop, place.set, place.generation = self.loop.c, self.number, self.generation
        place.rank, place.size, place.members = self.rank, self.size, self.ranks
        cdef int status = hc_gate_open(&place, is_world, &number)
        check(status, "the gate could not be opened")
        return number

    cdef void close_gate(self):
        cdef hc_loop *c = self.loop.c
        cdef int64_t number = self.number if self.number else -1  # the World's end closes all its sets
        with nogil:
            hc_gate_close(c, number)

    # ---- preemption, knobs -----------------------------------------------------------------------

    def preempt(self):
        """Ask all members to stop after the same step; one call on any member is enough. Never blocks."""
        ask_to_stop(self)

    def preempted(self):
        """Whether a member has asked before an operation that this program has waited for, or that one of its compiled
        programs has made: the same answer on all members that have waited for the same operations."""
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        return bool(hc_loop_preempted(self.loop.c, self.number, self.waited))

    def tune(self, uint64_t fusion_threshold, uint64_t raise_bytes, double raise_window):
        """Change these knobs on all members after the same entry of the log that commits a request. Call it on the
        first rank of the set. Never blocks."""
        change_knobs(self, fusion_threshold, raise_bytes, raise_window)

    cdef void note_waited(self, const hc_handle *h) noexcept:
        self.waited = max(self.waited, hc_handle_position(h))

    # ---- names -----------------------------------------------------------------------------------

    cdef hc_handle *new_request(self, const hc_arguments *given, object name, bint *unnamed) except NULL:
        """Make a request under a name; None: under the set's next number, which the caller may take back."""
        cdef char next_name[HC_ORDER_NAME]
        cdef const char *text = next_name
        cdef Py_ssize_t length = 0
        unnamed[0] = name is None
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        if name is None:
            self.finish_interrupted()
            length = hc_order_begin(self.order, next_name)
            if length < 0:
                raise errors.InvalidArgumentError(HC_ORDER_REFUSAL.decode())
        else:
            text = read_name(name, &length)
        cdef hc_handle *h = hc_arguments_request(given, &self.place, text, length)
        if h is NULL:
            if unnamed[0]:
                hc_order_take_back(self.order)
            raise errors.OutOfMemoryError(f"{text[:length].decode()!r}: no memory for a request; nothing was sent")
        if unnamed[0]:
            h.request.order = hc_order_count(self.order)
        return h

    cdef int note_interrupted(self, Handle handle) except -1:
        self.interrupted = self.interrupted or []
        if handle not in self.interrupted:
            self.interrupted.append(handle)
        return 0

    cdef inline int finish_interrupted(self) except -1:
        """Wait for unnamed calls that a signal has interrupted: other ranks have waited for them before the next one,
        so only now this rank knows its number. Call it before `order` numbers a call."""
        cdef Handle handle
        while self.interrupted is not None:
            handle = self.interrupted[0]
            handle.block(None, None)
            handle.leave_order()
        return 0

    cdef int refuse(self) except -1:
        return self.loop.refuse()

    cdef Handle hold(self, hc_handle *h, object inputs):
        """Make the Handle of a request. `inputs`: the arrays that must live until it is done."""
        cdef Handle handle = Handle.__new__(Handle)
        if h.request.memory == HC_MEMORY_CUDA:
            self.order_on_device(h, handle, inputs)
        handle.c = h
        handle.inputs = inputs
        handle.set = self
        return handle

    cdef Handle submit(self, hc_handle *h, bint unnamed, bint waits, object inputs):
        cdef Handle handle = self.hold(h, inputs)
        handle.unnamed = unnamed
        self.enqueue(h, unnamed, waits)
        return handle

    cdef inline int enqueue(self, hc_handle *h, bint unnamed, bint waits) except -1:
        if self.loop.notes_sites:  # for the trace: the line of the program that makes the call
            h.site = strdup(call_site().encode("utf-8", "replace")[:HC_TRACE_SITE - 1])
        if not (unnamed and waits and self.size == 1 and hc_loop_run_alone(self.loop.c, h)):
            hc_loop_submit(self.loop.c, h, waits)
        return 0

    cdef int order_on_device(self, hc_handle *h, Handle handle, object inputs) except -1:
        """Order the request after the work in the streams of its arrays."""
        try:
            handle.call = self.loop.devices.get().call([buffer for buffer in inputs if buffer is not None])
        except BaseException:
            hc_handle_release(h)
            raise
        h.ready, h.finished = <void *><size_t>handle.call.ready, <void *><size_t>handle.call.finished
        return 0

    cdef int print_device(self) except -1:
        """Print on rank 0 how arrays in device memory are moved, and again after a change."""
        if self.loop.printed_devices is None or self.closed or self.loop.closed:
            return 0
        facts = self.loop.devices.get().facts(self.number)
        if facts and facts not in self.loop.printed_devices:  # messages need no choice
            self.loop.printed_devices.add(facts)
            say(f"hpccoll: arrays in device memory: {facts}")
        return 0

    # ---- the operations --------------------------------------------------------------------------

    def collective(self, str operation, x, name, out, bint waits, op=None, root=None, splits=None, prescale=1.0,
                   postscale=1.0, compression=None, bint last=False, str type_name=None, int words=HC_WORDS_OWN):
        """Begin an operation with the arguments of its method in collectives.py, and return its Handle.

        :param operation: its name in OPERATIONS; arguments that it does not have are ignored
        :param waits: the caller waits for it next
        :param last: this rank makes no later request; a later request of a rank ends the World
        :param type_name: the type of the bytes of x, equal on all ranks
        :param words: whose names errors have. HOROVOD_WORDS: those of a front end, which puts the called function
            before the text; if this rank refuses an unnamed call, it tells the other ranks, with tell_refusal()
        """
        cdef uint64_t known = failures_known
        try:
            return self.begin(operation, x, name, out, waits, op, root, splits, prescale, postscale, compression, last,
                              type_name, words)
        except Exception as error:
            if words == HC_WORDS_OWN and name is None and failures_known == known:
                announce_refusal(self, operation, name, error)
            raise

    def tell_refusal(self, str operation, name, error, int requests=1):
        """Tell the other ranks, which make a call, that this rank refuses it. Never blocks.

        :param name: of the request; None: this rank's next unnamed call
        :param requests: the number of requests that the other ranks have in flight together
        """
        announce_refusals(self, operation, name, error, requests)

    cdef object begin(self, str operation, x, name, out, bint waits, op, root, splits, prescale, postscale,
                      compression, bint last, str type_name, int words):
        cdef Call call = Call.__new__(Call)
        cdef hc_operand two[2]
        call.set, call.name, call.words = self, name, words
        call.read_options(operation, op, root, prescale, postscale, compression)
        if not call.has(HC_OP_NO_TENSORS):
            call.read_arrays(x, out, splits, two)
        if type_name is not None:
            two[0].type = type_of(type_name)
        if call.own is not None:
            return begin_user(call, name, out, waits)
        call.given.is_last = last
        call.check()
        return call.start(name, out, waits)

    cdef object shortcut(self, str operation, x, out, op, root, splits, prescale, postscale):
        """take_shortcut() for an operation of this name."""
        cdef uint64_t known = failures_known
        try:
            return take_shortcut(self, CODES[operation], x, out, op, root, splits, prescale, postscale)
        except Exception as error:
            if failures_known == known:
                announce_refusal(self, operation, None, error)
            raise

    def blocking(self, str operation, x, name, out, op=None, root=None, prescale=1.0, postscale=1.0,
                 compression=None):
        """Do an operation and return its result; the arguments are those of collective()."""
        if name is None and self.shortens and compression is None:
            result = self.shortcut(operation, x, out, op, root, None, prescale, postscale)
            if result is not AGREE:
                return result
        return self.collective(
            operation, x, name, out, True, op, root, None, prescale, postscale, compression).wait()

    def blocking_rows(self, str operation, x, name, out, root=None, splits=None):
        """The same for an operation that moves rows."""
        if name is None and self.shortens:
            result = self.shortcut(operation, x, out, None, root, splits, 1.0, 1.0)
            if result is not AGREE:
                return result
        return self.collective(operation, x, name, out, True, None, root, splits).wait()

    def send(self, x, peer, tag=0, bint waits=False, bint library=False, str type_name=None, uint32_t follows=0):
        """See p2p.send. `library`: the message never meets a receive of the program. `type_name`: of collective().

        :param follows: of a message that follows from an earlier one: twice the Handle.number of that one where its
            receiver sends now, and one more where its sender does; 0: it follows none
        """
        cdef hc_operand i
        array = read_message(self.loop, x, &i)
        if type_name is not None:
            i.type = type_of(type_name)
        return self.submit_p2p(False, peer, tag, &i, waits, array, context_of(library, follows), 0)

    def recv(self, x, peer, tag=0, bint waits=False, bint exact=False, bint library=False, uint32_t follows=0):
        """See p2p.recv. `peer` -1: any rank; the handle then has the sender. `exact`: a shorter message is an error.

        :param follows: as for send()
        """
        cdef hc_operand o
        cdef list copies = None
        target = x
        if not read_plain(x, &o, True) or o.memory:
            copies = []
            target = read_receiver(self.loop, x, &o, copies)
            exact = exact or (o.memory and len(copies) > 0)
        cdef Handle handle = self.submit_p2p(
            True, peer, tag, &o, waits, target, context_of(library, follows), HC_P2P_EXACT if exact else 0)
        handle.copies = copies
        return handle

    def send_now(self, x, peer, tag):
        """See p2p.send."""
        send_now(self, x, peer, tag)

    def recv_now(self, x, peer, tag):
        """See p2p.recv. Returns the sender of the message, its tag and its bytes, as sendrecv() does."""
        return receive_now(self, x, peer, tag)

    def sendrecv(self, x, dest, sendtag, out, source, recvtag):
        """See p2p.sendrecv. Nothing is posted if an argument is wrong."""
        return send_and_receive(self, x, dest, sendtag, out, source, recvtag)

    def exchange(self, list faces):
        """Send arrays to other ranks and receive theirs, all at once. The messages never match the program's.

        :param faces: for each (peer, tag of what is sent, tag of what is received, array to send, array to fill)
        """
        exchange_faces(self, faces)

    def recv_bytes(self, peer, str type_name, tag=0, bint waits=False):
        """Receive a message of this type and of any size: wait() returns its bytes (1-d uint8)."""
        cdef hc_operand o = no_array(type_of(type_name))
        return self.submit_p2p(True, peer, tag, &o, waits, None, HC_P2P_USER, HC_P2P_ALLOCATES)

    def probe(self, peer, tag, bint now):
        """See p2p.probe and, if `now`, p2p.iprobe; the handle's peer, tag and nbytes describe the message."""
        cdef hc_operand o = no_array(NULL)
        return self.submit_p2p(
            True, peer, tag, &o, True, None, HC_P2P_USER, HC_P2P_PROBE | (HC_P2P_PROBE_NOW if now else 0))

    cdef Handle submit_p2p(self, bint receives, object peer, object tag, const hc_operand *o, bint waits, object array,
                           uint32_t context, int flags):
        cdef bint library = context == HC_P2P_LIBRARY
        if not library and waits:
            claim_message(self, receives, "x", o, NULL)
        cdef hc_handle *h = self.new_message(receives, peer, tag, o, context, flags)
        if not library and not waits:
            claim_message(self, receives, "x", o, h)
        return self.submit(h, False, waits, (array,) if o.memory else array)

    cdef hc_handle *new_message(self, bint receives, object peer, object tag, const hc_operand *o, uint32_t context,
                                int flags) except NULL:
        cdef hc_p2p_op op
        if self.closed or self.loop.closed or self.loop.forked:
            self.refuse()
        check_p2p(receives, peer, tag, self.size)
        op.receives = receives
        op.peer = self.members[peer] if peer >= 0 else peer
        op.context = context
        op.flags = flags
        op.tag = 0
        if tag == ANY_TAG:
            op.flags |= HC_P2P_ANY_TAG
        else:
            op.tag = tag
        op.data, op.bytes, op.received, op.serial = o.data, o.nbytes, 0, 0
        hc_p2p_name_type(&op, o.dtype, o.type)
        cdef hc_handle *h = hc_handle_of_p2p(self.number, &op, o.memory)
        if h is NULL:
            raise errors.OutOfMemoryError("no memory for a message; nothing was sent")
        return h

    cdef object rank_in(self, int32_t peer):
        """The rank in the set of a rank of the World; negative values stay the same."""
        if peer < 0 or (peer < self.size and <object>self.members[peer] == peer):
            return peer
        return self.members.index(peer)

    cpdef int check_root(self, object root) except -1:
        """Raise InvalidArgumentError unless `root` is a rank of the World."""
        if not PyIndex_Check(root) or not 0 <= root < self.size:
            raise errors.InvalidArgumentError(f"root is {root!r}: the World has ranks 0 to {self.size - 1}")
        return 0

    # ---- plans -----------------------------------------------------------------------------------

    def plan(self, str operation, x, out, str name, op=None, root=None, splits=None, prescale=1.0, postscale=1.0,
             compression=None):
        """Read and check the arguments of a persistent operation, as far as this rank can; plans.py goes on."""
        cdef Plan plan
        kind, is_barrier = operation, operation == "barrier"
        if is_barrier:
            x = out = np.zeros(1, np.uint8)
            operation, op = "allreduce", Reduction.MAX
        plan = new_plan(self, kind, name, x, out)
        plan.is_barrier = is_barrier
        plan.options = (operation, op, root, splits, prescale, postscale, compression)
        in_place = out is x and plan.fills is None and not TRAITS[CODES[operation]] & HC_OP_RESULT_ALLOCATED
        plan.read(plan.x if in_place else out)
        return plan

    def plan_message(self, bint receives, x, peer, tag, str name, bint library=False):
        """Make the plan of a send or a receive, without another rank. `library`: as for send()."""
        return new_message_plan(self, receives, x, peer, tag, name, library)


gate = PyCapsule_New(<void *>&hc_the_gate, HC_GATE_CAPSULE, NULL)  # for the kernels of frameworks
