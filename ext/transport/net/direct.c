/* SPDX-License-Identifier: Apache-2.0
 *
 * direct.c - allreduce in one or two rounds: all members send their contributions, the owner of a part sums them.
 *
 * Members send only contributions and results, no partial sums. So float16 is sent as float16, and the sum is still
 * formed in float32 with one rounding. And every element is added in the order of the members, whatever the length, so
 * the bits do not depend on fusion ("deterministic").
 *
 *     parts   round 0: part q of my contribution to member q.  round 1: my part, summed, to all (not in a
 *             reduce-scatter)
 *     whole   round 0: all of my contribution to all (short messages, and two members)
 */
#include "transport/net/algorithms.h"

#include <stdlib.h>

#define SUM_ON_STACK 64

int hc__sum_in_order(hc__channel *a, int64_t at, int64_t n, int64_t stride) {
    const hc__team *t = a->team;
    int64_t size = (int64_t)hc_dtype_size(a->kind);
    const void *on_stack[SUM_ON_STACK];
    const void **from = t->n <= SUM_ON_STACK ? on_stack : hc_malloc((size_t)t->n * sizeof *from);
    if (!from)
        return HC_NO_MEMORY;
    char *mine = a->work + at * size;
    for (int32_t q = 0, slot = 0; q < t->n; q++)
        from[q] = q == t->me ? mine : a->scratch + stride * size * slot++;
    hc__add_up(a, mine, from, t->n, n, 1);
    if (from != on_stack)
        hc_free(from);
    return HC_MOVED;
}

static int exchange_whole(hc__channel *a) {
    const hc__team *t = a->team;
    int status = HC_OK;
    for (int32_t q = 0, slot = 0; q < t->n && status >= 0; q++)
        if (q != t->me)
            status = hc__receive_scratch(a, q, a->count * slot++, a->count);
    for (int32_t s = 1; s < t->n && status >= 0; s++)
        status = hc__send_part(a, (t->me + s) % t->n, 0, a->count);
    return status < 0 ? status : HC_MOVED;
}

static int scatter_parts(hc__channel *a) {
    const hc__team *t = a->team;
    int64_t own = hc__part_of(a, t->me), n = hc__part_of(a, t->me + 1) - own;
    int status = HC_OK;
    for (int32_t q = 0, slot = 0; q < t->n && status >= 0; q++)
        if (q != t->me)
            status = hc__receive_scratch(a, q, n * slot++, n);
    for (int32_t s = 1; s < t->n && status >= 0; s++) {
        int32_t q = (t->me + s) % t->n; /* not all to member 0 first */
        int64_t at = hc__part_of(a, q);
        status = hc__send_part(a, q, at, hc__part_of(a, q + 1) - at);
    }
    return status < 0 ? status : HC_MOVED;
}

static int gather_parts(hc__channel *a) {
    const hc__team *t = a->team;
    int64_t own = hc__part_of(a, t->me), n = hc__part_of(a, t->me + 1) - own;
    int status = HC_OK;
    for (int32_t s = 1; s < t->n && status >= 0; s++) {
        int32_t q = (t->me + t->n - s) % t->n;
        int64_t at = hc__part_of(a, q);
        status = hc__receive_part(a, q, at, hc__part_of(a, q + 1) - at);
    }
    for (int32_t s = 1; s < t->n && status >= 0; s++)
        status = hc__send_part(a, (t->me + s) % t->n, own, n);
    return status < 0 ? status : HC_MOVED;
}

int hc__round_direct(hc__channel *a, int32_t round) {
    const hc__team *t = a->team;
    if (round == 0)
        return a->whole ? exchange_whole(a) : scatter_parts(a);
    if (round == 2)
        return HC_DONE;
    int64_t own = a->whole ? 0 : hc__part_of(a, t->me);
    int64_t n = a->whole ? a->count : hc__part_of(a, t->me + 1) - own;
    int status = n > 0 ? hc__sum_in_order(a, own, n, n) : HC_MOVED;
    if (status < 0)
        return status;
    return a->whole || a->scatters ? HC_DONE : gather_parts(a);
}
