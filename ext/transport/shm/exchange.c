/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c - streams of bytes, and shares of a sum, in rounds through the slots.
 *
 * In a round a rank packs bytes for the others into its slot (mark packed), and copies the bytes that it needs from
 * their slots (mark reduced: it has finished reading). It packs a slot again when every rank's `reduced` has reached
 * the round that the slot held before. The rounds of exchanges that follow each other count on, so a rank that reads
 * nothing packs for the next exchanges while the others read.
 */
#include "transport/shm/exchange.h"

#include "transport/shm/layout.h"
#include "transport/shm/pieces.h"
#include "transport/shm/shm_state.h"

#include <string.h>

/* The slots take more than a reader's second-level cache, about 1 MiB: a line that this cache still holds is written at
 * a third of the rate. */
#define SLOT_BYTES ((size_t)256 << 10)
#define SLOTS ((size_t)4)
#define SHORT_BYTES ((size_t)64 << 10) /* of a stream that has one round */
#define SHORT_SLOTS ((size_t)24)

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static uint64_t sequence_of(const hc__shm *shm, int64_t round) {
    return shm->sequence + (uint64_t)round + 1;
}

/* The rounds of all exchanges in one cut take the slots in turn. */
static uint8_t *slot_of(const hc__shm *shm, int32_t rank, int64_t round) {
    return hc__shm_slot(shm, rank, (int64_t)(shm->sequence + (uint64_t)round));
}

/* ---- rounds -------------------------------------------------------------------------------------- */

typedef struct round_ops {
    void (*pack)(hc__shm *, int64_t round);
    int (*take)(hc__shm *, int64_t round, int *moved); /* 1: all taken; 0: some rank is late */
} round_ops;

/* Cuts the slots for streams of at most `longest` bytes. The first round in a new cut, or after another operation,
 * waits until the ranks have read everything before it. */
static int rounds_cut(hc__shm *shm, int64_t longest) {
    hc__rounds *rounds = &shm->rounds;
    int is_short = longest <= (int64_t)SHORT_BYTES;
    int64_t wanted = (int64_t)(is_short ? SHORT_BYTES : SLOT_BYTES);
    size_t bytes = (size_t)least(wanted, hc_node_chunk_bytes(shm->base.local_size)), stride = hc_node_stride(bytes);
    size_t most = is_short ? SHORT_SLOTS : SLOTS, fit = HC_NODE_SLOTS * shm->places.chunk / stride;
    if (rounds->ended != shm->sequence || shm->chunks.slot_stride != stride)
        rounds->since = shm->sequence;
    return hc__cut_regions(shm, bytes, 0, (int)(fit < most ? fit : most));
}

static void rounds_begin(hc__shm *shm, int64_t count) {
    hc__rounds *rounds = &shm->rounds;
    rounds->count = count;
    shm->base.turns += count;
    rounds->packed = rounds->taken = 0;
    rounds->next = 0;
}

static int pack_next(hc__shm *shm, const round_ops *ops) {
    hc__rounds *rounds = &shm->rounds;
    int64_t round = rounds->packed;
    if (round >= rounds->count || round >= rounds->taken + shm->chunks.slots)
        return 0;
    uint64_t next = sequence_of(shm, round), slots = (uint64_t)shm->chunks.slots;
    uint64_t before = next > rounds->since + slots ? next - slots : rounds->since;
    if (!hc__marks_reached(shm, &rounds->freed, 0, 1, HC__REDUCED, before))
        return 0;
    ops->pack(shm, round);
    rounds->packed++;
    hc__mark_set(shm, HC__PACKED, sequence_of(shm, round));
    return 1;
}

static int rounds_go_on(hc__shm *shm, const round_ops *ops) {
    hc__rounds *rounds = &shm->rounds;
    int moved = pack_next(shm, ops);
    if (rounds->taken < rounds->packed && ops->take(shm, rounds->taken, &moved)) {
        moved = 1;
        rounds->next = 0;
        rounds->taken++;
        hc__mark_set(shm, HC__REDUCED, shm->sequence + (uint64_t)rounds->taken);
    }
    if (rounds->taken < rounds->count)
        return moved ? HC_MOVED : HC_IDLE;
    shm->sequence += (uint64_t)rounds->count;
    rounds->ended = shm->sequence;
    rounds->count = 0;
    return HC_DONE;
}

/* ---- exchange ------------------------------------------------------------------------------------ */

/* The bytes of rank q's stream in a round. Streams start at different places, so that in an alltoall the bytes for one
 * rank do not all come in the same round. */
static hc__range passing(const hc__shm *shm, int32_t q, int64_t round) {
    int64_t length = shm->rounds.lengths[q], step = (int64_t)shm->chunks.slot_stride;
    int64_t steps = (length + step - 1) / step;
    if (round >= steps)
        return (hc__range){0, 0};
    int64_t at = (round + q * steps / shm->base.local_size) % steps * step;
    return (hc__range){at, least(at + step, length)};
}

/* Where byte `at` of this rank's stream is, and how many of the following bytes, up to `end`, lie behind it. */
static const uint8_t *own_bytes(const hc__rounds *rounds, int64_t at, int64_t end, size_t *n) {
    const hc_stream_part *part = rounds->parts;
    int64_t wanted = end - at;
    for (; at >= part->bytes; part++)
        at -= part->bytes;
    *n = (size_t)least(wanted, part->bytes - at);
    return (const uint8_t *)part->data + at;
}

static void exchange_pack(hc__shm *shm, int64_t round) {
    hc__range range = passing(shm, shm->base.local_rank, round);
    uint8_t *slot = slot_of(shm, shm->base.local_rank, round);
    size_t n;
    if (shm->base.local_size == 1)
        return;
    for (int64_t at = range.from; at < range.to; at += (int64_t)n) {
        const uint8_t *from = own_bytes(&shm->rounds, at, range.to, &n);
        hc__shm_show(shm, slot + (at - range.from), from, n);
    }
    shm->base.packed_bytes += (uint64_t)(range.to - range.from);
}

/* What this rank itself reads of its stream. */
static void take_own(const hc__shm *shm, int64_t from, int64_t to, uint8_t *out) {
    size_t n;
    for (int64_t at = from; at < to; at += (int64_t)n, out += n) {
        const uint8_t *mine = own_bytes(&shm->rounds, at, to, &n);
        if (mine != out)
            hc_node_copy_result(&shm->base, out, mine, n);
    }
}

static int exchange_take(hc__shm *shm, int64_t round, int *moved) {
    hc__rounds *rounds = &shm->rounds;
    int32_t size = shm->base.local_size, me = shm->base.local_rank;
    for (; rounds->next < size; rounds->next++) {
        int32_t q = (me + rounds->next) % size;
        const hc_stream_read *read = &rounds->reads[q];
        hc__range passes = passing(shm, q, round);
        int64_t from = most(passes.from, read->offset), to = least(passes.to, read->offset + read->bytes);
        if (read->out == NULL || from >= to)
            continue;
        uint8_t *out = (uint8_t *)read->out + (from - read->offset);
        size_t bytes = (size_t)(to - from);
        if (q == me) {
            take_own(shm, from, to, out);
            continue;
        }
        if (!hc__mark_reached(shm, q, HC__PACKED, sequence_of(shm, round)))
            return 0;
        hc_node_copy_result(&shm->base, out, slot_of(shm, q, round) + (from - passes.from), bytes);
        shm->base.spread_bytes += bytes;
        *moved = 1;
    }
    return 1;
}

static const round_ops exchange_ops = {exchange_pack, exchange_take};

/* ---- the direct stage ---------------------------------------------------------------------------- */

static void direct_pack(hc__shm *shm, int64_t round) {
    hc__direct_show(shm, slot_of(shm, shm->base.local_rank, round), shm->rounds.parts, shm->rounds.nparts);
}

/* 1: this rank has read all that it needs. */
static int read_all(hc__shm *shm, int64_t round, int *moved) {
    hc__rounds *rounds = &shm->rounds;
    int32_t size = shm->base.local_size, me = shm->base.local_rank;
    for (; rounds->next < size; rounds->next++) {
        int32_t q = (me + rounds->next) % size;
        const hc_stream_read *read = &rounds->reads[q];
        if (read->out == NULL || read->bytes == 0)
            continue;
        if (q == me) {
            take_own(shm, read->offset, read->offset + read->bytes, read->out);
            continue;
        }
        if (!hc__mark_reached(shm, q, HC__PACKED, sequence_of(shm, round)))
            return 0;
        *moved = 1;
        if (!hc__direct_read(shm, &rounds->direct, slot_of(shm, q, round), read))
            return 0;
    }
    return 1;
}

static int direct_take(hc__shm *shm, int64_t round, int *moved) {
    hc__rounds *rounds = &shm->rounds;
    if (!rounds->direct.has_read) {
        if (!read_all(shm, round, moved))
            return 0;
        hc__direct_tell(shm, &rounds->direct, slot_of(shm, shm->base.local_rank, round), sequence_of(shm, round));
        *moved = 1;
    }
    if (!hc__direct_have_all_read(shm, &rounds->direct, sequence_of(shm, round)))
        return 0;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        rounds->direct.is_failed |= hc__direct_has_failed(slot_of(shm, q, round));
    return 1;
}

static const round_ops direct_ops = {direct_pack, direct_take};

static int direct_begin(hc__shm *shm) {
    int status = rounds_cut(shm, HC__DIRECT_SLOT);
    hc__direct_begin(&shm->rounds.direct);
    shm->rounds.is_direct = 1;
    if (status == HC_OK)
        rounds_begin(shm, 1);
    return status;
}

/* ---- start to end -------------------------------------------------------------------------------- */

static int64_t length_of(const hc_stream_part *parts, int32_t n) {
    int64_t length = 0;
    for (int32_t i = 0; i < n; i++)
        length += parts[i].bytes;
    return length;
}

static int64_t longest_of(const hc__shm *shm, const int64_t *lengths) {
    int64_t longest = 0;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        longest = most(longest, lengths[q]);
    return longest;
}

/* Whether the exchange has a direct stage; the ranks of a node have the same answer. Not if some ranks give much more
 * than others: those that read little would sleep until the others have read. */
static int is_direct(const hc__shm *shm, const int64_t *lengths, int64_t longest, int32_t readers) {
    if (readers != 1 || !hc__direct_suits(shm->base.local_size, longest))
        return 0;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        if (lengths[q] < longest / 2)
            return 0;
    return 1;
}

static int slots_begin(hc__shm *shm, int64_t longest) {
    int status = rounds_cut(shm, longest);
    shm->rounds.is_direct = 0;
    if (status == HC_OK)
        rounds_begin(shm, (longest + (int64_t)shm->chunks.slot_stride - 1) / (int64_t)shm->chunks.slot_stride);
    return status;
}

int hc__shm_exchange(hc_node *node, const hc_stream_part *parts, int32_t n, const hc_stream_read *reads,
                     const int64_t *lengths, int32_t readers) {
    hc__shm *shm = hc__shm_of(node);
    hc__rounds *rounds = &shm->rounds;
    rounds->parts = parts;
    rounds->nparts = n;
    rounds->reads = reads;
    rounds->lengths = lengths;
    if (rounds->count == 0) {
        if (length_of(parts, n) != lengths[node->local_rank])
            return HC_INVALID;
        int64_t longest = longest_of(shm, lengths);
        if (longest == 0)
            return HC_DONE;
        int status = is_direct(shm, lengths, longest, readers) ? direct_begin(shm) : slots_begin(shm, longest);
        if (status != HC_OK)
            return status;
    }
    if (!rounds->is_direct)
        return rounds_go_on(shm, &exchange_ops);
    int status = rounds_go_on(shm, &direct_ops);
    if (status != HC_DONE || !rounds->direct.is_failed)
        return status;
    status = slots_begin(shm, longest_of(shm, lengths));
    return status == HC_OK ? HC_MOVED : status;
}

void hc__shm_exchange_abandon(hc_node *node) {
    hc__shm *shm = hc__shm_of(node);
    if (shm->rounds.count && shm->rounds.is_direct)
        hc__node_control_withdraw(shm->node_control);
}

/* ---- scatter ------------------------------------------------------------------------------------- */

/* A slot holds `chunk` elements for each rank. */
static hc__range passing_to(const hc__shm *shm, int32_t q, int64_t round) {
    int64_t from = shm->rounds.bounds[q] + round * shm->chunks.scattered, end = shm->rounds.bounds[q + 1];
    return (hc__range){least(from, end), least(from + shm->chunks.scattered, end)};
}

static void scatter_pack(hc__shm *shm, int64_t round) {
    uint8_t *slot = slot_of(shm, shm->base.local_rank, round);
    for (int32_t q = 0; q < shm->base.local_size; q++)
        if (q != shm->base.local_rank)
            hc__pack(shm, passing_to(shm, q, round), slot + (size_t)(q * shm->chunks.scattered) * shm->open.size);
}

static int scatter_take(hc__shm *shm, int64_t round, int *moved) {
    (void)moved;
    hc__range mine = passing_to(shm, shm->base.local_rank, round);
    if (mine.from == mine.to)
        return 1;
    if (!hc__marks_reached(shm, &shm->rounds.arrived, 0, 1, HC__PACKED, sequence_of(shm, round)))
        return 0;
    size_t place = (size_t)(shm->base.local_rank * shm->chunks.scattered) * shm->open.size;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        shm->operands.inputs[q] = slot_of(shm, q, round) + place;
    hc__reduce(shm, mine, NULL, HC__TO_OUT);
    return 1;
}

static const round_ops scatter_ops = {scatter_pack, scatter_take};

static int scatter_begin(hc__shm *shm, const hc_batch *batch, const int64_t *bounds) {
    int32_t size = shm->base.local_size;
    int status = hc__take_batch(shm, batch, batch->dtype);
    if (status != HC_OK)
        return status;
    if (shm->open.starts[batch->npieces] < bounds[size])
        return HC_INVALID;
    status = rounds_cut(shm, INT64_MAX);
    if (status != HC_OK)
        return status;
    shm->chunks.scattered = (int64_t)(shm->chunks.slot_stride / (size_t)size / 64 * 64 / shm->open.size);
    shm->open.out_from = bounds[shm->base.local_rank];
    int64_t longest = 0;
    for (int32_t q = 0; q < size; q++)
        longest = most(longest, bounds[q + 1] - bounds[q]);
    rounds_begin(shm, (longest + shm->chunks.scattered - 1) / shm->chunks.scattered);
    return HC_OK;
}

int hc__shm_scatter(hc_node *node, const hc_batch *batch, const int64_t *bounds) {
    hc__shm *shm = hc__shm_of(node);
    shm->rounds.bounds = bounds;
    if (shm->rounds.count == 0) {
        int status = scatter_begin(shm, batch, bounds);
        if (status != HC_OK)
            return status;
        if (shm->rounds.count == 0)
            return HC_DONE;
    }
    return rounds_go_on(shm, &scatter_ops);
}
