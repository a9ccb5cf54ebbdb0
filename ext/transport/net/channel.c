/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.c - the frame of the algorithms: converts the type before and after, and runs the rounds.
 *
 * Sums are formed in the accumulation type, divided there for a mean, and rounded at the end, or before the result is
 * sent. So all members hold equal bits, whatever the algorithm.
 */
#include "transport/net/channel.h"

#include <stdlib.h>
#include <string.h>

void hc__channel_init(hc__channel *channel, const hc__team *team, const hc__net_model *model, int32_t tag) {
    memset(channel, 0, sizeof *channel);
    channel->team = team;
    channel->model = *model;
    channel->tag = tag;
    channel->bundle.net = team->net;
    channel->bundle.whole = team->arithmetic->whole_messages;
}

/* ---- memory and arithmetic --------------------------------------------------------------------------- */

static void *take(const hc__team *t, int64_t bytes) {
    return t->arithmetic->ops->alloc(t->arithmetic, (size_t)bytes);
}

static void give(const hc__team *t, void *memory) {
    if (memory)
        t->arithmetic->ops->release(t->arithmetic, memory);
}

/* The algorithms do not see a failure of the arithmetic; the frame checks after every round. */
static void note_issued(hc__channel *channel, int status) {
    channel->failed = status < 0 ? status : channel->failed;
    channel->awaits = channel->team->arithmetic->issued;
}

static void convert(hc__channel *channel, void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    hc_arithmetic *arithmetic = channel->team->arithmetic;
    note_issued(channel, arithmetic->ops->convert(arithmetic, to, to_dtype, from, from_dtype, n));
}

hc__reduction hc__reduction_of(const hc__channel *channel, int last) {
    return last || channel->reduction.reduction != HC_AVERAGE ? channel->reduction : (hc__reduction){HC_SUM, 1.0};
}

void hc__add_up(hc__channel *channel, void *to, const void *const *from, int n_from, int64_t n, hc__reduction r) {
    hc_arithmetic *arithmetic = channel->team->arithmetic;
    note_issued(channel,
                arithmetic->ops->reduce(arithmetic, to, from, n_from, channel->kind, r.reduction, n, r.divisor));
}

/* HC_DONE: the arithmetic has ended, so a round's messages may be sent, and may be received into its operands. */
static int settle(hc__channel *channel) {
    if (!channel->bundle.held)
        return HC_DONE;
    int status = channel->team->arithmetic->ops->ended(channel->team->arithmetic, channel->awaits);
    if (status != HC_DONE)
        return status;
    status = hc__bundle_release(&channel->bundle);
    return status < 0 ? status : HC_DONE;
}

static int reserve(const hc__team *t, void **at, int64_t *room, int64_t bytes) {
    if (bytes <= *room)
        return HC_OK;
    give(t, *at);
    *at = take(t, bytes);
    *room = *at ? bytes : 0;
    return *at ? HC_OK : HC_NO_MEMORY;
}

/* A partial sum may overflow a type that holds the mean. A member that has all values can repair that (keeps_range). If
 * partial sums are sent, each stage divides them, or the members divide their values by a power of two first, and the
 * sum by the remaining factor. float16 cannot overflow in float32. */
static int overflows(const hc__channel *channel) {
    const hc__team *t = channel->team;
    int in_two = t->n == 2 || !channel->form.partial; /* only the members' values are sent */
    if (channel->reduction.reduction != HC_AVERAGE || channel->dtype < HC_FLOAT16 || channel->form.divides)
        return 0;
    return channel->dtype == HC_FLOAT16 ? channel->form.partial && channel->kind == HC_FLOAT16
                                        : !(in_two && t->arithmetic->keeps_range);
}

static void make_room(hc__channel *channel) {
    const hc__team *t = channel->team;
    if (!overflows(channel))
        return;
    double power = 1.0, all = channel->reduction.divisor;
    const void *work = channel->work;
    while (power < t->n)
        power *= 2.0;
    channel->reduction.divisor = power;
    hc__add_up(channel, channel->work, &work, 1, channel->count, channel->reduction);
    channel->reduction.divisor = all / power;
}

int hc__rounds_start(hc__channel *channel, hc__round_fn *round, void *data, int64_t count, int dtype, int kind,
                     hc__reduction reduction, int64_t scratch) {
    const hc__team *t = channel->team;
    channel->rounds.call = round;
    channel->data = data;
    channel->count = count;
    channel->dtype = (uint8_t)dtype;
    channel->kind = (uint8_t)kind;
    channel->reduction = reduction;
    channel->rounds.next = 0;
    channel->failed = HC_OK;
    channel->rounds.running = t->n > 1 && count > 0;
    if (!channel->rounds.running)
        return HC_OK;

    int64_t size = (int64_t)hc_dtype_size(kind);
    int status = reserve(t, &channel->memory.scratch, &channel->memory.scratch_room, scratch * size);
    if (status == HC_OK && channel->kind != dtype)
        status = reserve(t, &channel->memory.work, &channel->memory.work_room, count * size);
    if (status < 0)
        return status;
    channel->scratch = channel->memory.scratch;
    channel->work = channel->kind == dtype ? data : channel->memory.work;
    if (channel->kind != dtype)
        convert(channel, channel->work, channel->kind, data, dtype, count);
    make_room(channel);
    return HC_OK;
}

/* Rounds the result to the type of the data. */
static void deliver(hc__channel *channel) {
    int64_t at = channel->form.scatters ? channel->bounds[channel->team->me] : 0;
    int64_t n = channel->form.scatters ? channel->bounds[channel->team->me + 1] - at : channel->count;
    convert(channel, (char *)channel->data + at * (int64_t)hc_dtype_size(channel->dtype), channel->dtype,
            channel->work + at * (int64_t)hc_dtype_size(channel->kind), channel->kind, n);
}

int hc__channel_test(hc__channel *channel) {
    int moved = 0;
    while (channel->rounds.running) {
        int status = settle(channel);
        if (status == HC_DONE)
            status = hc__bundle_test(&channel->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        moved = 1;
        channel->bundle.held = 1;
        status = channel->rounds.call(channel, channel->rounds.next++);
        if (status == HC_DONE && channel->kind != channel->dtype)
            deliver(channel);
        if (status < 0 || channel->failed < 0)
            return status < 0 ? status : channel->failed;
        channel->rounds.running = status != HC_DONE;
    }
    return HC_DONE;
}

void hc__channel_abandon(hc__channel *channel) {
    hc__bundle_cancel(&channel->bundle);
    channel->rounds.running = 0;
}

void hc__channel_free(hc__channel *channel) {
    hc__bundle_free(&channel->bundle);
    hc_free(channel->bounds);
    channel->bounds = NULL;
    if (channel->bundle.stuck)
        return; /* the library may still read or write them, so they are not reused */
    give(channel->team, channel->memory.work);
    give(channel->team, channel->memory.scratch);
    channel->memory.work = channel->memory.scratch = NULL;
    channel->memory.work_room = channel->memory.scratch_room = 0;
}

/* ---- for all algorithms ------------------------------------------------------------------------------ */

int64_t hc__part_of(const hc__channel *channel, int32_t i) {
    return channel->form.scatters ? channel->bounds[i] : hc__even_part(channel->count, channel->team->n, i);
}

int hc__send_part(hc__channel *channel, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(channel->kind);
    return hc__bundle_send(&channel->bundle, channel->team->peers[member], channel->tag, channel->work + at * size,
                           n * size);
}

int hc__receive_part(hc__channel *channel, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(channel->kind);
    return hc__bundle_receive(&channel->bundle, channel->team->peers[member], channel->tag, channel->work + at * size,
                              n * size);
}

int hc__receive_scratch(hc__channel *channel, int32_t member, int64_t at, int64_t n) {
    int64_t size = (int64_t)hc_dtype_size(channel->kind);
    return hc__bundle_receive(&channel->bundle, channel->team->peers[member], channel->tag,
                              channel->scratch + at * size, n * size);
}

void hc__combine(hc__channel *channel, int64_t at, int64_t n, int first, int last) {
    if (n == 0)
        return;
    char *mine = channel->work + at * (int64_t)hc_dtype_size(channel->kind);
    const void *from[2] = {first ? channel->scratch : mine, first ? mine : channel->scratch};
    hc__add_up(channel, mine, from, 2, n, hc__reduction_of(channel, last));
}
