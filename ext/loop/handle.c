/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.c - finishes handles: stores the result of a request and wakes its waiter.
 *
 * Waiters that do not drive sleep on one futex per loop, not one per handle: it also signals that the driver's place is
 * free, and a sleeper must notice both.
 */
#include "loop/handle.h"
#include "loop/state.h"
#include "loop/trace_ring.h"

#include "core/fnv.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One allocation: the handle, its pieces, tensors, dims, rows and name. Other ranks wait for a refusal, so it may take
 * memory of the reserve. */
hc_handle *hc_handle_new(int kind, uint32_t set, uint32_t ntensors, uint32_t ndims, const char *name, size_t name_len,
                         uint32_t nrows) {
    size_t pieces = sizeof(hc_handle), tensors = pieces + ntensors * sizeof(hc_piece),
           dims = tensors + ntensors * sizeof(hc_tensor), rows = dims + ndims * sizeof(int64_t),
           text = rows + nrows * sizeof(int64_t);
    char *memory = kind == HC_EV_REFUSE ? hc_malloc(text + name_len) : malloc(text + name_len);
    if (!memory)
        return NULL;
    memset(memory, 0, tensors);
    hc_handle *handle = (hc_handle *)(void *)memory;
    handle->kind = (uint8_t)kind;
    handle->set = set;
    handle->pieces = (hc_piece *)(void *)(memory + pieces);
    handle->tensors = (hc_tensor *)(void *)(memory + tensors);
    handle->dims = (int64_t *)(void *)(memory + dims);
    handle->rows = nrows ? (int64_t *)(void *)(memory + rows) : NULL;
    handle->value = -1;
    if (name_len)
        memcpy(memory + text, name, name_len);
    handle->request = (hc_request){
        .ticket = (uint64_t)(uintptr_t)handle,
        .name = memory + text,
        .name_len = (uint32_t)name_len,
        .reduction = HC_SUM,
        .wire = HC_WIRE_SAME,
        .root = -1,
        .prescale = 1.0,
        .postscale = 1.0,
        .ntensors = ntensors,
        .tensors = handle->tensors,
    };
    atomic_init(&handle->waited_since, 0);
    atomic_init(&handle->refs, 1);
    atomic_init(&handle->done, 0);
    return handle;
}

void hc_handle_release(hc_handle *handle) {
    if (!handle || atomic_fetch_sub_explicit(&handle->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < handle->request.ntensors; i++) {
        hc_piece *piece = &handle->pieces[i];
        if (piece->out_owned && handle->request.memory == HC_MEMORY_HOST)
            hc_result_free(piece->out);
        hc_free(piece->why);
    }
    if (handle->op && handle->op->flags & HC_P2P_ALLOCATES)
        free(handle->op->data);
    free(handle->op);
    free(handle->staging);
    hc_free(handle->text);
    free(handle->site);
    free(handle->sums);
    hc_free(handle);
}

/* The driver is in its iteration, and the function may do anything. So another thread calls it, or the driver after it
 * has left its place. The loop's reference moves with it. */
static void leave_to_caller(hc_loop *loop, hc_handle *handle) {
    hc__completion *completion = &loop->completion;
    hc_handle *top = atomic_load_explicit(&completion->done, memory_order_relaxed);
    do {
        handle->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&completion->done, &top, handle, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (top || completion->by_driver)
        return;
    atomic_fetch_add_explicit(&completion->call, 1, memory_order_seq_cst);
    hc__futex_wake(&completion->call);
}

uint64_t hc_handle_position(const hc_handle *handle) {
    int agreed = handle->status == HC_OK || handle->status == HC_MISMATCH || handle->status == HC_ROOT_JOINED;
    return agreed ? handle->position : 0;
}

/* The waiter may release its reference as soon as it sees `done`: after that store the handle is read only under the
 * loop's reference. */
void hc__handle_finish(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    if (handle->modified && status == HC_OK) {
        status = HC_INVALID;
        text = "an input was changed while the library owned it (HPCCOLL_DEBUG)";
    }
    handle->status = status;
    if (status != HC_OK && text)
        handle->text = hc_strdup(text);
    hc__trace_handle(loop, HC_TRACE_COMPLETE, handle, handle->position);
    atomic_fetch_sub_explicit(&loop->handles.pending, 1, memory_order_relaxed);
    atomic_store_explicit(&handle->done, 1, memory_order_seq_cst);
    hc__wake_waiters(loop);
    if (handle->on_done)
        leave_to_caller(loop, handle);
    else
        hc_handle_release(handle);
}

/* Lists of handles in flight, which need no memory. */
void hc__handle_link(hc_handle **list, hc_handle *handle) {
    handle->next = *list;
    handle->link = list;
    if (handle->next)
        handle->next->link = &handle->next;
    *list = handle;
}

void hc__handle_unlink(hc_handle *handle) {
    *handle->link = handle->next;
    if (handle->next)
        handle->next->link = handle->link;
}

hc_handle *hc__handles_in_order(hc_handle *newest) {
    hc_handle *oldest = NULL;
    while (newest) {
        hc_handle *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/* Pairs with the sleeper in hc_loop_wait(): the sleeper counts itself, then reads `done` and `driving`; here they were
 * written before the count is read. All are sequentially consistent, so one of the two sees the other. */
void hc__wake_waiters(hc_loop *loop) {
    if (!atomic_load_explicit(&loop->place.sleepers, memory_order_seq_cst))
        return;
    atomic_fetch_add_explicit(&loop->place.epoch, 1, memory_order_seq_cst);
    hc__futex_wake(&loop->place.epoch);
}

void hc__futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec limit = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

void hc__futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- debug: was an input changed while it was in flight? ------------------------------------------- */

static uint64_t sum_piece(const hc_handle *handle, uint32_t i) {
    const hc_piece *piece = &handle->pieces[i];
    return piece->in && handle->request.memory == HC_MEMORY_HOST
               ? hc_fnv(piece->in, (size_t)piece->count * hc_dtype_size(handle->tensors[i].dtype))
               : 0;
}

void hc__checksum(hc_handle *handle) {
    handle->sums = malloc((handle->request.ntensors + 1) * sizeof *handle->sums);
    for (uint32_t i = 0; handle->sums && i < handle->request.ntensors; i++)
        handle->sums[i] = sum_piece(handle, i);
}

void hc__checksum_verify(hc_handle *handle) {
    for (uint32_t i = 0; handle->sums && i < handle->request.ntensors; i++)
        if (handle->sums[i] != sum_piece(handle, i))
            handle->modified = 1;
}
