/* SPDX-License-Identifier: Apache-2.0
 *
 * unnamed.c - numbers a World's unnamed calls, so that the ranks match them by their order.
 */
#include "api/api.h"

#include <stdio.h>
#include <string.h>

int hc__unnamed_begin(hpccoll_world *world, char name[HC__UNNAMED_BYTES]) {
    uintptr_t me = (uintptr_t)pthread_self();
    if (atomic_fetch_add(&world->unnamed_open, 1) && atomic_load(&world->unnamed_thread) != me) {
        atomic_fetch_sub(&world->unnamed_open, 1);
        return hc__error(HC_INVALID,
                         "an unnamed call from another thread is in flight; calls from several threads must be named");
    }
    atomic_store_explicit(&world->unnamed_thread, me, memory_order_relaxed);
    int number = atomic_load_explicit(&world->unnamed_next, memory_order_relaxed);
    atomic_store_explicit(&world->unnamed_next, number + 1, memory_order_relaxed);
    if (number < 10) { /* faster than printf */
        memcpy(name, HC__UNNAMED "0", sizeof HC__UNNAMED + 1);
        name[sizeof HC__UNNAMED - 1] = (char)('0' + number);
        return (int)sizeof HC__UNNAMED;
    }
    return snprintf(name, HC__UNNAMED_BYTES, HC__UNNAMED "%d", number);
}

void hc__unnamed_take_back(hpccoll_world *world) {
    atomic_fetch_sub(&world->unnamed_next, 1);
    atomic_fetch_sub(&world->unnamed_open, 1);
}

void hc__unnamed_over(hpccoll_world *world) {
    if (atomic_load_explicit(&world->unnamed_open, memory_order_relaxed) == 1)
        atomic_store_explicit(&world->unnamed_next, 0, memory_order_relaxed);
    atomic_fetch_sub(&world->unnamed_open, 1);
}
