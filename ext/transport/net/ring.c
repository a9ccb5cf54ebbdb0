/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c - allreduce around a ring: n - 1 rounds of reduce-scatter, n - 1 of allgather.
 *
 * It sends the minimum of bytes, 2(n - 1)/n of the data (Patarasuk and Yuan, 2009), and only to the neighbour, but has
 * 2(n - 1) latencies. A reduce-scatter is the first half, shifted by one part, so that a member adds its own part last.
 */
#include "transport/net/algorithms.h"

static void part(const hc__channel *channel, int32_t i, int64_t *at, int64_t *n) {
    int32_t members = channel->team->n;
    i = ((i % members) + members) % members;
    *at = hc__part_of(channel, i);
    *n = hc__part_of(channel, i + 1) - *at;
}

int hc__round_ring(hc__channel *channel, int32_t round) {
    const hc__team *t = channel->team;
    int32_t right = (t->me + 1) % t->n, left = (t->me + t->n - 1) % t->n;
    int32_t gathering = round - (t->n - 1);         /* >= 0: in the allgather */
    int32_t first = t->me - channel->form.scatters; /* the part sent first */
    int64_t at, n;

    if (round > 0 && gathering <= 0) { /* add the data of the last round, left's sum first */
        part(channel, first - round, &at, &n);
        hc__combine(channel, at, n, 1, gathering == 0);
    }
    if (gathering == (channel->form.scatters ? 0 : t->n - 1))
        return HC_DONE;
    part(channel, first - round, &at, &n); /* just summed, or (allgather) just received */
    int status = hc__send_part(channel, right, at, n);
    if (status < 0)
        return status;
    part(channel, first - round - 1, &at, &n);
    status = gathering < 0 ? hc__receive_scratch(channel, left, 0, n) : hc__receive_part(channel, left, at, n);
    return status < 0 ? status : HC_MOVED;
}
