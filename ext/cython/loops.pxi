# SPDX-License-Identifier: Apache-2.0
# loops.pxi - the parts of a World: segments, nets, and the loop with its engine.

def local_nets(int n):
    """Nets for `n` ranks that are threads of this process, as capsules "hpccoll.net"."""
    cdef hc_net **nets = <hc_net **>calloc(n, sizeof(hc_net *))
    check(hc_local_net_new(n, nets), "local nets could not be made")
    capsules = [net_capsule(nets[i]) for i in range(n)]
    free(nets)
    return capsules


cdef int32_t *copy_ranks(object ranks) except NULL:
    cdef int32_t *c = <int32_t *>malloc((len(ranks) + 1) * sizeof(int32_t))
    if c is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    cdef list listed = list(ranks)  # the loop over a list calls no method
    cdef Py_ssize_t i
    for i in range(len(listed)):
        c[i] = listed[i]
    return c


cdef bytes int32_bytes(object numbers, int size):
    """The memory of a C array with a number per rank, of which `numbers` is a sequence; None: all are 0.

    A typed memoryview would do the same, and make this module a quarter larger.
    """
    if numbers is None:
        return bytes(size * sizeof(int32_t))
    if len(numbers) != size:
        raise ValueError(f"{len(numbers)} numbers for {size} ranks")
    return np.asarray(numbers, np.int32).tobytes()


def machine_name():
    """Name this host, its boot and its /dev/shm, of which containers on one host may have several."""
    cdef char name[HC_MACHINE_BYTES]
    hc_machine_name(name)
    return os.fsdecode(name)


def nodes_of_machines(object machine_of, int size, str nodes):
    """The node of each rank, numbered by first appearance: one per machine, or as many as the knob `nodes` asks for.

    :param machine_of: the number of the machine of each rank; None: there is one machine
    :raises StartError: the knob does not fit a machine's ranks
    """
    cdef char why[HC_WHY]
    cdef bytes machines = int32_bytes(machine_of, size)
    cdef bytearray found = bytearray(len(machines))
    cdef int status = hc_machines_to_nodes(<const int32_t *>PyBytes_AS_STRING(machines), size, nodes.encode(),
                                           <int32_t *>PyByteArray_AS_STRING(found), why)
    if status < 0:
        raise errors.StartError(f"the World was not made: {why.decode()}")
    return tuple(np.frombuffer(found, np.int32).tolist())


@cython.final
cdef class Loop:
    """The engine of a rank, its loop, and the parts of its node."""
    cdef hc_loop *c
    cdef hc_job job           # process sets and plans are made of it
    cdef bytes algorithm      # between nodes; `job` borrows its text
    cdef object segment, net_capsule
    cdef hc_processes processes
    cdef list orphans        # handles that were dropped in flight
    cdef list shared         # (set, capsule) of Worlds that C code uses
    cdef list started_plans  # plans that were dropped after a start
    cdef readonly object plans  # plans that are not freed
    cdef Py_ssize_t many_orphans
    cdef int lost_errors     # warnings of errors that nobody has waited for
    cdef int active           # threads inside drive()
    cdef readonly bint closed, forked, background
    cdef public bint told    # an error of a broken World has reached the program
    cdef public bint watched  # a timeline is being written: every call needs records
    cdef readonly tuple node_of
    cdef readonly int rank, size, local_rank, local_size
    cdef bint notes_sites
    cdef object settings
    cdef Devices devices
    cdef set printed_devices      # texts that rank 0 has printed on device memory; None: print nothing

    def __init__(self, int rank, tuple node_of, object net, object settings, *,
                 list hosts, object host_of, object pids,
                 int device_number=-1, nccl_files=(), bint shares_device=False, tuple gpu_aware=("no", (), ""),
                 str world=""):
        """
        :param rank: of the World
        :param node_of: node of each rank of the World
        :param net: capsule "hpccoll.net", or None when one node holds all ranks
        :param settings: a Config
        :param hosts: the hosts of the World
        :param host_of: index in `hosts` of each rank; None: there is one host
        :param pids: of each rank
        :param device_number: of the GPU of this rank; -1: the GPU of the first array in device memory
        :param nccl_files: files where Python packages may have NCCL
        :param shares_device: the user intends several ranks on one GPU
        :param world: a text that is unique to the World
        :param gpu_aware: whether MPI may get GPU memory ("yes", "no", "auto"), of which devices, the reason for none
        """
        self.devices = Devices(settings=settings, rank=rank, number=device_number, nccl_files=nccl_files,
                               shares_device=shares_device, gpu_aware=gpu_aware)
        self.printed_devices = set() if rank == 0 and settings.verbose else None
        self.orphans, self.shared = [], []
        self.plans, self.started_plans = weakref.WeakSet(), []
        self.rank = rank
        self.size = len(node_of)
        self.node_of = node_of
        self.settings = settings
        self.describe_job(world.encode())
        self.notes_sites = settings.debug
        self.net_capsule = net
        if net is not None:
            self.job.net = unbox(net, rank, self.size)
        self.note_processes(hosts, host_of, pids)

    cdef int note_processes(self, list hosts, object host_of, object pids) except -1:
        cdef list names = [host.encode("utf-8", "replace") for host in hosts]
        cdef bytes of = int32_bytes(host_of, self.size)
        cdef bytes numbers = int32_bytes(pids, self.size)
        cdef const char **texts = texts_of(names)
        cdef hc_processes lent = hc_processes(
            texts, <const int32_t *>PyBytes_AS_STRING(of), <const int32_t *>PyBytes_AS_STRING(numbers))
        cdef int status = hc_processes_copy(&lent, len(names), self.size, &self.processes)
        free(texts)
        return check(status, "no memory for the processes of the ranks")

    cdef int describe_job(self, bytes nonce) except -1:
        self.algorithm = self.settings.algorithm.encode()
        hc_job_init(&self.job)
        self.job.node_of = copy_ranks(self.node_of)
        self.job.rank, self.job.size, self.job.fanout = self.rank, self.size, self.settings.fanout
        hc_job_find_locals(&self.job)
        self.local_rank, self.local_size = self.job.local_rank, self.job.local_size
        fill_knobs(hc__hierarchy_knobs, &self.job.hierarchy, self.settings)
        self.job.hierarchy.algorithm = self.algorithm
        self.job.devices = &self.devices.source
        strncpy(self.job.nonce, nonce, sizeof(self.job.nonce) - 1)
        return 0

    def begin(self, Segment segment, *, bint background, bint one_thread, bint heartbeat, str job="",
              int machine_size=0):
        """Make the loop itself, once.

        :param segment: the node's node control segment, mapped by all its ranks
        :param job: its number, from the scheduler; "": not known
        :param machine_size: ranks on this machine, which may have several nodes; 0: as many as on this node
        """
        cdef bytes wire = self.settings.wire.encode()
        cdef bytes stores = self.settings.stores.encode()
        cdef bytes wait = self.settings.wait.encode()
        cdef bytes trace_dir = os.fsencode(self.settings.trace_dir)
        cdef bytes number = os.fsencode(job)
        cdef hc_loop_words words = hc_loop_words(wire, stores, wait, trace_dir, number)
        cdef hc_loop_config config
        cdef char why[HC_WHY]
        memset(&config, 0, sizeof(config))
        fill_knobs(hc__engine_knobs, &config.engine, self.settings)
        fill_knobs(hc__loop_knobs, &config, self.settings)
        config.engine.processes = &self.processes
        config.background, config.one_thread, config.heartbeat = background, one_thread, heartbeat
        config.machine_size = machine_size
        self.background, self.segment = background, segment
        cdef int status = hc_job_make_loop(&self.job, &words, &segment.c, &config, why)
        check(status, os.fsdecode(why) or "no loop")
        self.c = self.job.loop
        if hc_loop_trace_at_signal(self.c):
            trace_stacks()

    cdef int refuse(self) except -1:
        """Raise the error of a call that comes after close(), or in a forked process."""
        if self.forked:
            raise errors.ForkedError("this process was forked after hpccoll.init(); the World is its parent's")
        raise errors.ShutDownError("the World has been shut down")

    def close(self):
        """Free everything. The World must be stopped, or abandoned."""
        cdef hc_loop *c = self.c
        cdef Handle one
        if self.closed:
            return
        self.closed = True
        end_sharing(self, -1)
        if self.forked:
            return  # the parent owns all of it
        while self.active:
            time.sleep(0)
        self.c = NULL
        if c is not NULL:
            with nogil:
                hc_gate_close(c, -1)
                hc_loop_free(c)
        hc_job_end_users(&self.job)
        if self.devices.accelerator is not None:
            self.let_go_of_device()
        for plan in [*self.plans, *self.started_plans]:
            (<Halo>plan).release() if type(plan) is Halo else (<Plan>plan).release()
        self.started_plans.clear()
        for one in self.orphans:
            one.warn_of_lost_error()
        self.orphans.clear()
        hc_in_flight_free(&self.job.in_flight)
        self.free_slices()
        self.net_capsule = self.segment = None

    def __dealloc__(self):
        if not self.forked:
            hc_in_flight_free(&self.job.in_flight)
        if self.c is not NULL and not self.forked:
            with nogil:  # the background thread may need it to end
                hc_gate_close(self.c, -1)
                hc_loop_free(self.c)
            hc_job_end_users(&self.job)
        if not self.forked:
            self.free_slices()
        free(<void *>self.processes.hosts)
        free(self.job.node_of)
        free(self.job.places)

    cdef void free_slices(self) noexcept:
        hc_slices_free(self.job.slices)
        self.job.slices = NULL

    def mark_forked(self):
        """Call it in the child of a fork: later calls fail, and the child frees none of the parent's objects."""
        if self.net_capsule is not None and not self.forked:
            Py_INCREF(self.net_capsule)
        self.forked = True
        if self.devices.accelerator is not None:
            self.devices.accelerator.mark_forked()
        if self.c is not NULL:
            hc_loop_forked(self.c)

    def waiting(self):
        """How a thread waits for other ranks here, and why: "spin (2 ranks on 2 cores)"."""
        cdef char text[128]
        hc_loop_describe_waiting(self.c, text, sizeof(text))
        return text.decode()

    def stores(self):
        """How this rank writes data that other ranks of its node read, and why: "stream (ranks on 2 L3s)"."""
        cdef char text[128]
        hc_loop_describe_stores(self.c, text, sizeof(text))
        return text.decode()

    def progress(self):
        """Make progress, unless another thread drives."""
        if self.closed or self.forked:
            return
        self.active += 1
        with nogil:
            hc_loop_progress(self.c)
        self.active -= 1

    def broken(self):
        """The status of a broken World, else 0."""
        return hc_loop_broken(self.c) if self.c is not NULL else 0

    def failure(self):
        """The exception of a broken World; else None."""
        cdef int status = self.broken()
        if not status:
            return None
        text = hc_loop_broken_text(self.c).decode(errors="replace")
        return error_of(status, text.removeprefix(f"{hc_status_text(HC_BROKEN).decode()}: "))

    def lost(self, int size):
        """The lost ranks below `size` that this rank knows, with the reasons; {} while the World is not broken."""
        text = str(self.failure() or "")
        first, _, why = text.partition(" was lost: ")
        found = [rank for rank in range(size if text else 0) if hc_loop_has_lost(self.c, rank)]
        return {rank: why if first.startswith(f"rank {rank} ") else "its connection has ended" for rank in found}

    def process_ended(self, str host, int pid):
        """Call it when the launcher reports a process that ended without shutdown(): if it is a rank, it is lost."""
        if self.c is not NULL and not self.forked:
            hc_loop_process_ended(self.c, host.encode(), pid)

    def last_report(self):
        """The newest report of an operation that has waited long, with the missing ranks; "" before the first."""
        cdef char text[1024]
        text[0] = 0
        if self.c is not NULL:
            hc_loop_last_report(self.c, text, sizeof(text))
        return text.decode("utf-8", "replace")

    cdef int note_raised(self, int status) except -1:
        """Call it before a handle's error is raised: notes whether the error tells the program of a broken World."""
        PyErr_CheckSignals()  # Ctrl-C ends other ranks too: its exception goes first, and would spoil a traceback
        self.told = self.told or issubclass(EXCEPTIONS[status], errors.RecoverableError)
        return 0

    cdef int nudge(self, bint op) except -1:
        """Make progress for a caller that tests, if no background thread drives or it is a message."""
        if op or not self.background:
            self.progress()
        return 0

    cdef bint drive(self, hc_handle **handles, size_t n, uint64_t ns) except -1:
        """hc_loop_wait() for at most `ns`. Returns whether all `n` handles are done."""
        cdef hc_loop *c = self.c
        cdef int done = True
        cdef size_t at
        if self.forked:
            raise error_of(HC_FORKED, "")
        if c is NULL:  # another thread is in hc_loop_free(), which ends them
            for at in range(n):
                done = done and hc_handle_done(handles[at])
            return done
        self.active += 1
        with nogil:
            done = hc_loop_wait(c, handles, n, ns)
        self.active -= 1
        return done

    cdef int adopt_orphan(self, Handle handle) except -1:
        self.orphans.append(handle)
        if len(self.orphans) > self.many_orphans:
            self.let_go_of_orphans()
        return 0

    cdef int let_go_of_orphans(self) except -1:
        """Free the handles that were dropped in flight and are done; warn of their errors."""
        cdef Handle one
        cdef list done = [], pending = []
        for one in self.orphans:
            (done if hc_handle_done(one.c) else pending).append(one)
        self.orphans, self.many_orphans = pending, 2 * len(pending) + 64
        for one in done:
            one.warn_of_lost_error()
            one.keep_arrays()
        return 0

    # ---- the device ------------------------------------------------------------------------------

    @property
    def device(self):
        """The GPU that the World uses on this rank; None before the first array in device memory."""
        return None if self.devices.accelerator is None else self.devices.accelerator.device

    def open_device(self):
        """Open the GPU that a knob names; UnsupportedError if that fails."""
        self.accelerator().open()

    cdef object accelerator(self):
        if self.forked:
            raise error_of(HC_FORKED, "")
        if self.closed:
            raise errors.ShutDownError("the World has been shut down")
        return self.devices.get()

    cdef Buffer describe(self, object library, object x):
        """Describe an array in device memory. The World's device is the first array's, unless a knob names it."""
        cdef Buffer buffer = Buffer.lent(self.accelerator().view(library, x))
        self.check_device(buffer)
        return buffer

    cdef int check_device(self, Buffer buffer) except -1:
        """Refuse an array on another device than the World's."""
        self.accelerator().check(buffer.device, <size_t>buffer.o.data, buffer.o.nbytes == 0,
                                 arrays.name_of(buffer.owner))
        return 0

    cdef int let_go_of_device(self) except -1:
        """Close the device after the last batch has run; first wait for results that are still being written."""
        cdef Handle one
        for one in self.orphans:
            one.keep_arrays()
        self.devices.accelerator.close()
        return 0

    def stats(self):
        """The counters of hc_loop_stats, as a flat dict."""
        cdef hc_loop_stats s
        if self.c is NULL:
            raise errors.ShutDownError("the World has been shut down")
        hc_loop_get_stats(self.c, &s)
        figures = dict(s)
        return figures.pop("engine") | figures  # `batches` of the loop counts also those that are in no log

    def write_trace(self, str ended):
        """Write the newest records into this rank's file. `ended`: the exception that ends the process, "" if none."""
        cdef bytes text = ended.encode("utf-8", "replace")
        if self.c is not NULL and not self.forked:
            hc_loop_trace_write(self.c, text)

    def tuning(self):
        """The World's knobs that may change while it runs, from this rank's log: a dict of the knobs, with `changes`
        (their number) and `at` (the time of the last change; ns of CLOCK_MONOTONIC)."""
        cdef hc_loop_tuning tuning
        if self.c is NULL:
            raise errors.ShutDownError("the World has been shut down")
        hc_loop_get_tuning(self.c, &tuning)
        return {"fusion_threshold": tuning.now.fusion_threshold, "raise_bytes": tuning.now.raise_bytes,
                "raise_window": tuning.now.raise_window * 1e-9, "changes": tuning.changes, "at": tuning.at}

    def trace(self, uint64_t first=0, size_t most=1 << 30):
        """Records of the trace from number `first` on, about `most` of them: (next, list of dicts).

        Records that were overwritten before this call are missing; then the list is shorter than next - first.
        """
        cdef hc_trace_record records[64]
        cdef size_t n, i
        if self.c is NULL:
            raise errors.ShutDownError("the World has been shut down")
        result = []
        while True:
            n = hc_loop_trace_read(self.c, &first, records, 64)
            for i in range(n):
                record = dict(records[i])
                record["kind"] = TRACE_KINDS[records[i].kind]
                record["operation"] = (OPERATIONS + P2P_OPERATIONS)[records[i].operation]
                record["name"] = (<bytes>records[i].name).decode("utf-8", "replace")
                result.append(record)
            if n < 64 or len(result) >= most:
                return first, result


def drive_mpi(progress):
    """Let callers that wait in any World make MPI progress. `progress`: of _mpi.progress()."""
    hc_loop_drive_mpi(<void (*)() noexcept nogil>PyCapsule_GetPointer(progress, "hpccoll.progress"))


cdef hc_net *unbox(object capsule, int rank, int size) except NULL:
    """The net in a capsule "hpccoll.net", which must be built for this version of the struct and be of this rank."""
    if not PyCapsule_IsValid(capsule, "hpccoll.net"):
        raise errors.StartError(f"the net is {capsule!r}, not a capsule 'hpccoll.net'")
    cdef hc_net_box *box = <hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")
    if box.version != HC_NET_VERSION:
        raise errors.StartError(
            f"the net was built for version {box.version} of hpccoll's nets, this hpccoll has version "
            f"{HC_NET_VERSION}: build it again with this hpccoll's headers")
    if box.net.rank != rank or box.net.size != size:
        raise errors.StartError(f"the net is that of rank {box.net.rank} of {box.net.size}, not {rank} of {size}")
    return box.net


cdef uint64_t nanoseconds(double seconds) noexcept:
    return <uint64_t>(seconds * 1e9 + 0.5)  # 0.00026 * 1e9 is below 260000
