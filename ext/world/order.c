/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c - numbers the calls without a name.
 */
#include "world/order.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

void hc_order_reset(hc_order *order, int32_t size, hc_shortcut *shortcut, hc_votes *votes) {
    atomic_store(&order->open, 0);
    atomic_store(&order->next, 0);
    atomic_store(&order->odd, 0);
    atomic_store(&order->count, 0);
    atomic_store(&order->failed, -1);
    atomic_store(&order->agree, 0);
    atomic_store(&order->many, 0);
    order->size = size;
    order->shortcut = shortcut;
    order->votes = votes;
}

int hc_order_hold(hc_order *order) {
    uintptr_t me = (uintptr_t)pthread_self();
    if (atomic_fetch_add(&order->open, 1) && atomic_load(&order->thread) != me) {
        atomic_fetch_sub(&order->open, 1);
        return -1;
    }
    atomic_store_explicit(&order->thread, me, memory_order_relaxed);
    return 0;
}

static int write_name(int number, char name[HC_ORDER_NAME]) {
    size_t length = sizeof HC_ORDER_PREFIX - 1;
    if (number >= 10)
        return snprintf(name, HC_ORDER_NAME, HC_ORDER_PREFIX "%d", number);
    memcpy(name, HC_ORDER_PREFIX, length); /* faster than printf, for a loop of blocking calls */
    name[length] = (char)('0' + number);
    name[length + 1] = 0;
    return (int)length + 1;
}

int hc_order_begin(hc_order *order, char name[HC_ORDER_NAME]) {
    if (hc_order_hold(order) < 0)
        return -1;
    int number = atomic_load_explicit(&order->next, memory_order_relaxed);
    atomic_store_explicit(&order->next, number + 1, memory_order_relaxed);
    atomic_store_explicit(&order->count, hc_order_count(order) + 1, memory_order_relaxed);
    return write_name(2 * number + atomic_load_explicit(&order->odd, memory_order_relaxed), name);
}

void hc_order_take_back(hc_order *order) {
    atomic_fetch_sub(&order->next, 1);
    atomic_fetch_sub(&order->count, 1);
    atomic_fetch_sub(&order->open, 1);
}

static void restart(hc_order *order, int odd) {
    atomic_store_explicit(&order->next, 0, memory_order_relaxed);
    atomic_store_explicit(&order->odd, odd, memory_order_relaxed);
    atomic_store_explicit(&order->failed, -1, memory_order_relaxed);
}

/* The numbers do not restart behind a failed call. A rank that has refused it waits for nothing, so it does not know
 * whether the others begin further calls before or after they wait for it. */
void hc_order_end(hc_order *order) {
    if (atomic_load_explicit(&order->open, memory_order_relaxed) == 1 &&
        atomic_load_explicit(&order->next, memory_order_relaxed) - 1 >
            atomic_load_explicit(&order->failed, memory_order_relaxed))
        restart(order, !atomic_load_explicit(&order->odd, memory_order_relaxed));
    atomic_fetch_sub(&order->open, 1);
}

static void note_failure(hc_order *order, int number) {
    if (number > atomic_load_explicit(&order->failed, memory_order_relaxed))
        atomic_store_explicit(&order->failed, number, memory_order_relaxed);
}

void hc_order_agree(hc_order *order) {
    if (order->shortcut)
        atomic_store_explicit(&order->agree, hc_order_count(order) + 1, memory_order_relaxed);
}

int hc_order_refuse(hc_order *order, char name[HC_ORDER_NAME]) {
    int length = hc_order_begin(order, name);
    if (length < 0)
        return length;
    note_failure(order, atomic_load_explicit(&order->next, memory_order_relaxed) - 1);
    hc_order_agree(order);
    hc_order_end(order);
    return length;
}

static int number_of(const hc_request *request) {
    int number = 0;
    for (size_t i = sizeof HC_ORDER_PREFIX - 1; i < request->name_len; i++)
        number = 10 * number + (request->name[i] - '0');
    return number;
}

/* Only the root of a scatter knows its bytes. The others expect as many as last time; if they are wrong, the ranks
 * agree in the engine. */
static void note_bytes(hc_order *order, const hc_handle *h) {
    if (!hc_operation_has(h->request.operation, HC_OP_COUNTS) || h->request.root < 0 || h->status < 0)
        return;
    const hc_piece *piece = &h->pieces[0];
    int64_t bytes = piece->out_rows * hc_piece_row_bytes(piece, h->tensors[0].dtype) * order->size;
    atomic_store_explicit(&order->many, bytes > (int64_t)hc_order_most(order), memory_order_relaxed);
}

void hc_order_note(hc_order *order, const hc_handle *h) {
    if (!hc_handle_position(h))
        return;
    int failed = h->status == HC_MISMATCH && hc_order_has(h);
    if (failed)
        note_failure(order, number_of(&h->request) / 2);
    if (h->kind == HC_EV_JOIN) { /* ranks that had joined know nothing of the calls meanwhile */
        if (!atomic_load_explicit(&order->open, memory_order_relaxed))
            restart(order, 0);
        else
            atomic_store_explicit(&order->odd, 1, memory_order_relaxed); /* when they begin anew, they are even */
    }
    if (!order->shortcut)
        return;
    if (h->request.order >= atomic_load_explicit(&order->agree, memory_order_relaxed))
        atomic_store_explicit(&order->agree, 0, memory_order_relaxed);
    if (failed)
        hc_order_agree(order); /* a rank that has refused the call numbers the next one differently */
    note_bytes(order, h);
    hc_shortcut_renumber(order->shortcut, h->position);
}
