/* SPDX-License-Identifier: Apache-2.0
 *
 * alone.c - runs a call of a set of one rank in the calling thread, without agreement.
 *
 * If nothing else is in flight, and the set's log has no preemption that the caller must learn of, neither order nor
 * name matters. Then the call needs no inbox, engine and batch; all other calls use them.
 */
#include "loop/batch.h"
#include "loop/state.h"

#include <string.h>

#define MOST_BYTES ((size_t)16 << 10) /* the caller may hold Python's GIL, and a larger copy would hold up others */

static int is_alike(const hc_request *request) {
    if (request->operation == HC_BARRIER || request->operation == HC_BROADCAST)
        return 1;
    return hc_operation_has(request->operation, HC_OP_REDUCES) &&
           hc_operation_has(request->operation, HC_OP_ELEMENTWISE) &&
           !hc_operation_has(request->operation, HC_OP_EXCLUSIVE);
}

static int may_run(hc_loop *loop, const hc_handle *handle) {
    size_t bytes = 0;
    if (handle->kind != HC_EV_ENQUEUE || handle->request.memory != HC_MEMORY_HOST || !is_alike(&handle->request) ||
        handle->request.flags & HC_REQUEST_LAST || loop->config.debug)
        return 0;
    for (uint32_t i = 0; i < handle->request.ntensors; i++)
        bytes += (size_t)handle->pieces[i].count * hc_dtype_size(handle->tensors[i].dtype);
    return bytes <= MOST_BYTES && !atomic_load_explicit(&loop->handles.pending, memory_order_acquire) &&
           !atomic_load_explicit(&loop->sets.preempted[handle->set], memory_order_acquire) &&
           !atomic_load_explicit(&loop->failure.broken, memory_order_relaxed) &&
           !atomic_load_explicit(&loop->forked, memory_order_relaxed);
}

static void run_tensor(const hc_request *request, int dtype, const hc_piece *piece) {
    int reduction = request->reduction;
    if (!piece->out)
        return;
    if (!hc_operation_has(request->operation, HC_OP_REDUCES)) {
        if (piece->out != piece->in)
            memmove(piece->out, piece->in, (size_t)piece->count * hc_dtype_size(dtype));
        return;
    }
    double scale = hc__factor_of(request, dtype);
    if (piece->out != piece->in || scale != 1.0 || hc_reduction_is_logical(reduction))
        hc_host_reduce(piece->out, dtype, &piece->in, 1, dtype, reduction, piece->count, scale, 1.0);
}

int hc_loop_run_alone(hc_loop *loop, hc_handle *handle) {
    if (!may_run(loop, handle))
        return 0;
    for (uint32_t i = 0; i < handle->request.ntensors; i++)
        run_tensor(&handle->request, handle->tensors[i].dtype, &handle->pieces[i]);
    atomic_fetch_add_explicit(&loop->calls.alone, 1, memory_order_relaxed);
    atomic_store_explicit(&handle->done, 1, memory_order_release);
    return 1;
}
