# SPDX-License-Identifier: Apache-2.0
"""C declarations for _core: the tables of hc.h, the parts of shm.h and the loop."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from exchange cimport HC_EXCHANGE_WHY, hc_exchange
from net cimport HC_NET_VERSION, hc_net, hc_net_box, net_capsule


cdef extern from "core/wire.h" nogil:
    enum: HC__WIRE_VERSION

cdef extern from "core/hc.h" nogil:
    enum: HC_DTYPE_COUNT, HC_OPERATION_COUNT, HC_REDUCTION_COUNT, HC_WIRE_SAME
    enum: HC_MAX_NAME, HC_MAX_SETS, HC_MAX_DIMS, HC_MAX_TYPE
    # generated: codes (make bindings)
    enum: HC_BOOL, HC_UINT8, HC_INT8, HC_UINT16, HC_INT16, HC_UINT32, HC_INT32, HC_UINT64, HC_INT64, HC_FLOAT16
    enum: HC_BFLOAT16, HC_FLOAT32, HC_FLOAT64, HC_COMPLEX64, HC_COMPLEX128
    enum: HC_AVERAGE, HC_SUM, HC_ADASUM, HC_MIN, HC_MAX, HC_PRODUCT, HC_BAND, HC_BOR, HC_BXOR, HC_LAND, HC_LOR, HC_LXOR
    enum: HC_OK, HC_MISMATCH, HC_DUPLICATE_NAME, HC_SHUT_DOWN, HC_ROOT_JOINED, HC_PEER_LOST, HC_STALLED, HC_TRANSPORT
    enum: HC_INVALID, HC_NO_MEMORY, HC_BAD_MESSAGE, HC_FORKED, HC_BROKEN, HC_UNSUPPORTED, HC_RESULT_SIZE
    enum: HC_OP_ELEMENTWISE, HC_OP_FUSES, HC_OP_NARROWS, HC_OP_REDUCES, HC_OP_RESULT_ALLOCATED, HC_OP_ROWS_DIFFER
    enum: HC_OP_ROOTED, HC_OP_COUNTS, HC_OP_NO_TENSORS, HC_OP_ONLY_EVENT, HC_OP_TO_ROOT, HC_OP_PREFIX, HC_OP_EXCLUSIVE
    # end of generated
    enum: HC_MEMORY_HOST, HC_MEMORY_CUDA
    enum: HC_EV_ADD_SET, HC_EV_REMOVE_SET, HC_EV_ENQUEUE, HC_EV_JOIN, HC_EV_STOP, HC_EV_PREEMPT, HC_EV_TUNE

    size_t hc_dtype_size(int)
    const char *hc_dtype_name(int)
    const char *hc_operation_name(int)
    int hc_operation_has(int, int)
    const char *hc_reduction_name(int)
    const char *hc_status_name(int)
    const char *hc_status_text(int)
    const char *hc_status_exception(int)

    ctypedef struct hc_tensor:
        uint8_t dtype, ndim, type_len
        const int64_t *dims
        const char *type
    ctypedef struct hc_request:
        uint64_t ticket
        uint64_t order
        const char *name
        uint32_t name_len
        uint8_t operation, reduction, memory, wire, flags
        int32_t root
        double prescale, postscale
        uint32_t ntensors
        const char *why

    ctypedef struct hc_processes:
        const char *const *hosts
        const int32_t *host_of
        const int32_t *pids
    ctypedef struct hc_tuning:
        uint64_t fusion_threshold, raise_bytes, raise_window
    ctypedef struct hc_engine_config:
        int32_t rank, size
        const hc_processes *processes
    ctypedef struct hc_counters:
        uint64_t messages_up, messages_down, bytes_up, bytes_down
        uint64_t entries, batches, cached_commits, first_commits, mismatches, evictions, conflicts


cdef extern from "transport/transport.h" nogil:
    ctypedef struct hc_piece:
        const void *data "in"
        void *out
        int64_t count, row, rows
        uint8_t out_owned
        int8_t status
        int64_t out_capacity
        int64_t out_rows
        char *why
        const int64_t *send_rows
        int64_t *recv_rows
    ctypedef struct hc_batch
    int64_t hc_share(int64_t, int32_t, int32_t)
    void *hc_result_new(size_t)
    void hc_result_free(void *)
    int hc_reduction_defined(int, int)
    const char *hc_kernels_name()
    int hc_kernels_select(const char *)
    ctypedef struct hc_node
    ctypedef struct hc_data
    enum: HC_PLANE_TEXT
    ctypedef struct hc_hierarchy_config:
        uint32_t set
        int32_t set_rank, set_size
        const int32_t *members
        const int32_t *node_of
        int64_t chunk_most
        double alpha, beta
        const char *algorithm
    enum: HC_PLANE_VERSION
    ctypedef struct hc_plane_parts:
        int version
        hc_hierarchy_config place


cdef extern from "transport/p2p/p2p.h" nogil:
    enum: HC_ANY_PEER, HC_NO_PEER, HC_P2P_PROBE, HC_P2P_PROBE_NOW, HC_P2P_ANY_TAG, HC_P2P_EXACT, HC_P2P_ALLOCATES
    enum: HC_P2P_USER, HC_P2P_LIBRARY, HC_P2P_FOLLOWS
    ctypedef struct hc_p2p
    ctypedef struct hc_p2p_op:
        uint8_t receives, flags
        uint32_t context, set, tag, serial
        int32_t peer
        void *data
        uint64_t bytes, received
    void hc_p2p_name_type(hc_p2p_op *, int, const char *)


cdef extern from "transport/shm/shm.h" nogil:
    ctypedef struct hc_segment:
        void *base
        size_t bytes
        int fd
    ctypedef struct hc_node_control
    int hc_segment_create(hc_segment *, const char *, size_t, char *, size_t)
    int hc_segment_private(hc_segment *, size_t)
    void hc_segment_close(hc_segment *)
    void hc_segment_close_file(hc_segment *)
    size_t hc_node_control_bytes(int32_t)
    size_t hc_shm_bytes(int32_t)
    ctypedef struct hc_slices
    void hc_slices_free(hc_slices *)


cdef extern from "transport/shm/cores.h" nogil:
    uint32_t hc_cores_quota(const char *, const char *, uint64_t *)

cdef extern from "transport/net/vote.h" nogil:
    enum: HC_VOTE_NODES, HC_VOTE_BYTES, HC_SHORTCUT_BYTES, HC_SHORTCUT_MOST, HC_SHORTCUT_OPEN, HC_SHORTCUT_TAKEN
    enum: HC_SHORTCUT_LARGE
    ctypedef struct hc_shortcut
    size_t hc_shortcut_bytes(int32_t)


cdef extern from "transport/net/local.h" nogil:
    int hc_local_net_new(int32_t, hc_net **)


cdef extern from "cython/ndarray.h" nogil:
    ctypedef struct hc__ndarray:
        char *data
        int nd
        Py_ssize_t *dimensions
    int hc__ndarray_dtype(const hc__ndarray *, int)


cdef extern from "loop/trace.h" nogil:
    enum: HC_TRACE_VERSION, HC_TRACE_SITE, HC_TRACE_KEPT
    void hc_trace_stacks(int)
    void hc_trace_no_stacks()
    const char *HC_TRACE_MAGIC
    const char *HC_TRACE_MEMFD
    ctypedef struct hc_trace_record:
        uint64_t time, bytes, ticket, batch
        int32_t peer
        int16_t status
        uint8_t kind, operation
        uint32_t set, count, tag
        int32_t root
        uint8_t dtype, ndim, reduction, memory
        uint32_t plan
        int64_t dims[4]
        char name[64]


cdef extern from "loop/loop.h" nogil:
    enum: HC_SEND, HC_RECEIVE, HC_HANDLE_COUNTED, HC_HANDLE_PLAN, HC_HANDLE_VOTED
    ctypedef struct hc_set_parts:
        hc_data *host
        const hc_node *node
        int32_t lead
    ctypedef struct hc_plan
    ctypedef struct hc_handle:
        uint8_t kind
        uint32_t set
        hc_request request
        hc_tensor *tensors
        int64_t *dims
        hc_piece *pieces
        int64_t *rows
        const hc_set_parts *parts
        hc_p2p_op *op
        void *ready
        void *finished
        char *site
        int status
        char *text
        int64_t value
        uint64_t position
    hc_handle *hc_handle_new(int, uint32_t, uint32_t, uint32_t, const char *, size_t, uint32_t)
    hc_handle *hc_handle_of_p2p(uint32_t, const hc_p2p_op *, int)
    void hc_handle_release(hc_handle *)
    int hc_handle_done(hc_handle *)

    ctypedef struct hc_loop
    ctypedef struct hc_loop_config:
        hc_engine_config engine
        uint8_t background, one_thread, heartbeat
        int32_t machine_size
    void hc_loop_describe_waiting(hc_loop *, char *, size_t)
    void hc_loop_describe_stores(hc_loop *, char *, size_t)
    void hc_loop_free(hc_loop *)
    void hc_loop_forked(hc_loop *)
    void hc_loop_drive_mpi(void (*)() noexcept)
    void hc_loop_submit(hc_loop *, hc_handle *, int)
    int hc_loop_run_alone(hc_loop *, hc_handle *)
    void hc_loop_refuse(hc_loop *, uint32_t, const hc_request *)
    ctypedef struct hc_shortcut_call:
        void *out
        uint8_t is_large
    int hc_loop_shortcut(hc_loop *, uint32_t, hc_shortcut *, const hc_shortcut_call *)
    ctypedef struct hc_votes
    int hc_loop_vote(hc_loop *, uint32_t, hc_votes *, hc_shortcut_call *, uint64_t)
    ctypedef struct hc_counting:
        hc_shortcut *shortcut
        hc_votes *votes
        int32_t rank, size
    int hc_loop_count(hc_loop *, const hc_counting *, hc_handle *, uint64_t)
    int hc_loop_count_wait(hc_loop *, const hc_counting *, hc_handle *, uint64_t)
    int hc_loop_vote_wait(hc_loop *, hc_votes *, uint64_t)
    const char *hc_loop_vote_text(const hc_votes *)
    int hc_loop_shortcut_wait(hc_loop *, hc_shortcut *, const hc_shortcut_call *)
    int64_t hc_loop_shortcut_rows(const hc_shortcut *, const hc_shortcut_call *, int64_t *)
    void hc_loop_shortcut_end(hc_loop *, const hc_shortcut *, const hc_shortcut_call *)
    int hc_loop_wait(hc_loop *, hc_handle **, size_t, uint64_t)
    void hc_loop_progress(hc_loop *)
    int hc_loop_pending(hc_loop *)
    int hc_loop_broken(hc_loop *)
    const char *hc_loop_broken_text(const hc_loop *)
    int hc_loop_has_lost(hc_loop *, int rank)
    void hc_loop_process_ended(hc_loop *, const char *, int)
    void hc_loop_last_report(hc_loop *, char *, size_t)
    int hc_loop_preempted(hc_loop *, uint32_t, uint64_t)
    uint64_t hc_handle_position(const hc_handle *)
    ctypedef struct hc_loop_tuning:
        hc_tuning now
        uint64_t changes, at
    void hc_loop_get_tuning(hc_loop *, hc_loop_tuning *)
    ctypedef struct hc_lap:
        uint64_t begun, ended, nbytes "bytes"
    ctypedef struct hc_laps:
        uint64_t next
        char name[64]
    size_t hc_loop_read_laps(hc_loop *, hc_laps *, hc_lap *, size_t)

    hc_plan *hc_plan_new(hc_loop *, hc_handle *, int32_t)
    ctypedef struct hc_plan_agreed:
        uint8_t operation, is_barrier
        int32_t root, rank, size
        const int32_t *node_of
    int64_t hc_plan_rows_from(const hc_plan_agreed *, int32_t, int32_t)
    int64_t hc_plan_rows_of(const hc_plan_agreed *, int32_t)
    size_t hc_plan_segment_bytes(const hc_plan_agreed *)
    void hc_plan_free(hc_plan *)
    int hc_plan_start(hc_plan *, int)
    int hc_plan_test(hc_plan *)
    int hc_plan_poll(hc_plan *)
    int hc_plan_wait(hc_plan *, uint64_t)

    ctypedef struct hc_notice
    hc_notice *hc_notice_new(uint64_t, const char *, uint64_t, const char *)
    void hc_notice_free(hc_notice *)

    ctypedef struct hc_loop_stats:
        hc_counters engine
        uint64_t control_messages_local, control_bytes_local, control_messages_net, control_bytes_net
        uint64_t packed_bytes, reduced_bytes, spread_bytes
        uint64_t net_sent_bytes, net_sent_messages, net_received_bytes
        uint64_t requests, shortcuts, counted, batches, cached_batches, fused_requests, payload_bytes
        uint64_t plan_starts, p2p_ops, p2p_bytes
        uint64_t waited_ns, in_flight_ns, wakes, sleeps
    void hc_loop_get_stats(hc_loop *, hc_loop_stats *)

    size_t hc_loop_trace_read(hc_loop *, uint64_t *, hc_trace_record *, size_t)
    int hc_loop_trace_at_signal(hc_loop *)
    int hc_loop_trace_write(hc_loop *, const char *)


cdef extern from "world/user_reduction.h" nogil:
    ctypedef struct hc_user_reduction


cdef extern from "world/order.h" nogil:
    enum: HC_ORDER_NAME
    const char *HC_ORDER_PREFIX
    const char *HC_ORDER_REFUSAL
    ctypedef struct hc_order:
        hc_shortcut *shortcut
        hc_votes *votes
    int hc_order_begin(hc_order *, char *)
    void hc_order_take_back(hc_order *)
    int hc_order_hold(hc_order *)
    void hc_order_end(hc_order *)
    int hc_order_refuse(hc_order *, char *)
    void hc_order_note(hc_order *, const hc_handle *)
    int hc_order_may_shorten(hc_order *, int)
    uint64_t hc_order_count(const hc_order *)


cdef extern from "world/arguments.h" nogil:
    enum: HC_WHY
    ctypedef struct hc_operand:
        char *data
        int64_t count
        int64_t nbytes "bytes"
        int dtype, ndim, memory
        const char *type
        int64_t dims[64]
    ctypedef struct hc_arguments:
        uint8_t operation, reduction, wire, is_group, is_last, is_fresh, words
        int32_t root
        double prescale, postscale
        uint32_t n
        hc_operand *operands
        const int64_t *splits
        int64_t nsplits
        const hc_user_reduction *user
    ctypedef struct hc_place:
        uint32_t set
        int32_t rank, size
    hc_arguments hc_arguments_of(uint8_t)
    bint hc_arguments_has(const hc_arguments *, int)
    bint hc_arguments_gives(const hc_arguments *, const hc_place *)
    bint hc_arguments_gets(const hc_arguments *, const hc_place *)
    bint hc_arguments_by_rows(const hc_arguments *)
    void hc_operand_clear(hc_operand *)
    int64_t hc_operand_row(const hc_operand *)
    int hc_arguments_one_memory(const hc_arguments *, const hc_place *, char *)
    int hc_arguments_check(hc_arguments *, const hc_place *, char *)
    hc_handle *hc_arguments_request(const hc_arguments *, const hc_place *, const char *, size_t)
    size_t hc_arguments_extents(const hc_arguments *, const hc_place *, hc_extent *)
    bint hc_arguments_shortcut(const hc_arguments *, const hc_place *, const hc_order *, hc_shortcut_call *)


cdef extern from "world/user_reduction.h" nogil:
    ctypedef struct hc_sample:
        const char *data
        int64_t nbytes "bytes"
    ctypedef void (*hc_function "hc_user_function")() noexcept
    ctypedef struct hc_user_reduction:
        int (*fold)(const hc_user_reduction *, const void *, void *, int64_t, int) noexcept
        int (*neutral)(const hc_user_reduction *, void *, int64_t, int) noexcept
        int (*check)(const hc_user_reduction *, const hc_sample *, int) noexcept
        hc_function function
        void *of
        int64_t item, block
        char name[64]
    enum hc_folding_form: HC_FOLDING_WAITS, HC_FOLDING_ASYNC, HC_FOLDING_PLAN
    ctypedef struct hc_folding_step:
        hc_arguments arguments
        hc_operand two[2]
    ctypedef struct hc_folding
    int hc_folding_new(const hc_arguments *, const hc_place *, hc_folding_form, const void *, size_t, hc_folding **)
    void hc_folding_free(hc_folding *)
    int hc_folding_next(hc_folding *, hc_folding_step *)
    int hc_folding_take(hc_folding *, char *, const int64_t *, char *)
    int hc_folding_leaves(const hc_folding *)
    int hc_folding_is_last(const hc_folding *)
    int hc_folding_found(const hc_folding *)
    void hc_folding_plan(hc_folding *, hc_folding_step *)
    int hc_folding_take_start(hc_folding *, char *)


cdef extern from "world/segments.h" nogil:
    int hc_node_control_segment(const hc_job *, const hc_exchange *, hc_segment *, char *)
    int hc_members_segment(const hc_job *, const hc_exchange *, const char *, const int32_t *, int32_t, size_t,
                           hc_segment *, char *)


cdef extern from "world/plan_agreement.h" nogil:
    ctypedef struct hc_plans_used:
        uint32_t generation
    int hc_plans_between_nodes(const hc_plans_used *)
    ctypedef struct hc_plan_proposal:
        const hc_arguments *given
        const hc_arguments *whole
        const hc_place *place
        const int32_t *node_of
        const hc_plans_used *used
    ctypedef struct hc_plan_terms:
        hc_plan_agreed agreed
        int number
        uint32_t generation
        void *memory
    int hc_plan_agree(const hc_plan_proposal *, const hc_exchange *, hc_plan_terms *, char *)
    void hc_plan_refuse(const hc_exchange *, uint8_t, int, const char *)


cdef extern from "world/in_flight.h" nogil:
    enum: HC_IN_FLIGHT_WORDS
    ctypedef struct hc_extent:
        const char *begin
        const char *end
        int writes, array
    ctypedef struct hc_in_flight:
        pass
    ctypedef struct hc_claim:
        const hc_extent *extents
        size_t n, at
        int operation
        hc_handle *handle
        char its[HC_IN_FLIGHT_WORDS]
    ctypedef struct hc_plan_memories:
        pass
    int hc_in_flight_claim(hc_in_flight *, hc_claim *)
    void hc_in_flight_free(hc_in_flight *)
    int hc_in_flight_any(hc_in_flight *)
    int hc_in_flight_none(hc_in_flight *, hc_loop *, int (*pending)(hc_loop *) noexcept nogil)


cdef extern from "world/node_order.h" nogil:
    ctypedef struct hc_node_place:
        int32_t position, group


cdef extern from "world/plane_maker.h" nogil:
    ctypedef struct hc_plane_source:
        int (*plane)(void *, const hc_plane_parts *, hc_data **, char *) noexcept nogil
        void (*begun)(void *) noexcept nogil
        void (*ended)(void *, uint32_t) noexcept nogil
        void *of


cdef extern from "world/job.h" nogil:
    ctypedef struct hc_job:
        hc_loop *loop
        hc_net *net
        hc_node_control *node_control
        int32_t *node_of
        hc_node_place *places
        int32_t rank, size, local_rank, local_size, fanout
        hc_hierarchy_config hierarchy
        const hc_plane_source *devices
        char nonce[17]
        hc_in_flight in_flight
        hc_plan_memories plans
        hc_slices *slices
        hc_order *orders
    void hc_job_init(hc_job *)
    void hc_job_end_users(hc_job *)
    hc_plans_used hc_job_used(hc_job *)
    void hc_job_note_generation(hc_job *, uint32_t)
    void hc_job_give_set_number_back(hc_job *, int)
    void hc_job_take_plan_number(hc_job *, int)
    void hc_job_give_plan_number_back(hc_job *, int)
    ctypedef struct hc_members:
        const int32_t *ranks
        int32_t size, own
        int32_t *nodes
        int32_t *locals_ "locals"
        int32_t nlocals, own_local
    int hc_members_find(const hc_job *, const int32_t *, int32_t, hc_members *)
    void hc_members_free(hc_members *)
    ctypedef struct hc_set_draft:
        hc_shortcut *shortcut
        char why[HC_WHY]
    int hc_set_draft_make(hc_job *, const hc_members *, uint32_t, uint32_t, hc_segment *, hc_set_draft *)
    int hc_set_add(hc_job *, hc_set_draft *)
    int hc_set_remove(hc_job *, uint32_t)
    void hc_set_draft_free(hc_set_draft *)
    int hc_plan_build(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *, hc_segment *, hc_plan **)


cdef extern from "world/machines.h" nogil:
    enum: HC_MACHINE_BYTES
    void hc_machine_name(char *)
    int32_t hc_machines_to_nodes(const int32_t *, int32_t, const char *, int32_t *, char *)


cdef extern from "world/start.h" nogil:
    ctypedef struct hc_loop_words:
        const char *wire
        const char *stores
        const char *wait
        const char *trace_dir
        const char *job
    int hc_processes_copy(const hc_processes *, int32_t, int32_t, hc_processes *)
    void hc_job_find_locals(hc_job *)
    int hc_job_make_loop(hc_job *, const hc_loop_words *, hc_segment *, hc_loop_config *, char *)
