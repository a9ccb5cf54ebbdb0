/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_direct.c - a step of an operation that only NCCL runs: tensors -> scratch memory -> a call -> tensors, launched
 * in one stream.
 */
#include "cuda/nccl/nccl_direct.h"

int hc__step_reserve(hc__step *s, int64_t bytes) {
    if (bytes <= s->bytes)
        return HC_OK;
    int64_t room = 2 * s->bytes > bytes ? 2 * s->bytes : bytes;
    int status = hc__nccl_grow(s->node, HC__ON_DEVICE, &s->scratch, room);
    s->bytes = status < 0 ? 0 : room;
    return status;
}

void hc__step_begin(hc__step *s) {
    s->stage = HC__CUTTING;
}

static int cut(hc__step *s, const hc__step_ops *ops) {
    s->in.n = s->out.n = 0;
    return ops->cut(s);
}

static int launch(hc__step *s, const hc__step_ops *ops) {
    hc__nccl_node *n = s->node;
    const hc__launch to = hc__nccl_launch(n);
    int status = hc__copies_pack(&s->in, &to, n->batch->dtype, s->scratch);
    if (status == HC_OK)
        hc__nccl_called(n, ops->call(s));
    return status;
}

int hc__step_move(hc__step *s, const hc__step_ops *ops) {
    hc__nccl_node *n = s->node;
    int status = s->stage == HC__CUTTING ? cut(s, ops) : HC_OK;
    if (status)
        return hc__nccl_again(n, status);
    if (s->stage <= HC__PACKING) {
        s->stage = HC__PACKING;
        status = launch(s, ops);
        if (status)
            return hc__nccl_again(n, status);
        s->stage = HC__CALLING;
    }
    if (s->stage == HC__CALLING) {
        status = hc__nccl_settle(n, ops->call_name);
        if (status != HC_DONE)
            return status;
        s->stage = HC__UNPACKING;
    }
    const hc__launch to = hc__nccl_launch(n);
    status = hc__copies_unpack(&s->out, &to, n->batch->dtype, s->scratch, n->batch->dtype, 1.0);
    if (status)
        return hc__nccl_again(n, status);
    s->stage = HC__CUTTING;
    return HC_DONE;
}

void hc__step_free(hc__step *s) {
    if (s->scratch)
        hc_device_result_free(s->node->device, s->scratch, s->node->work);
    hc__copies_free(&s->in);
    hc__copies_free(&s->out);
    s->scratch = NULL;
    s->bytes = 0;
}
