/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_allreduce.c - an allreduce in chunks through the segment.
 *
 * Of a chunk each rank owns a share. It packs only the others' shares of its input into its slot and reads
 * its own from the tensors when it reduces; the sum goes to the result and, where it is final, straight to
 * the tensors too. So a byte of the input is read once, and what goes through the segment stays in the
 * caches.
 *
 * With rails (a network stage follows) the chunk is cut into rails first, and each rail into the shares of
 * the ranks q with q % rails = rail.
 */
#include "shm_node.h"

#define ALIGNMENT 64
#define SHARE_MIN 1024 /* bytes: below, fewer ranks reduce */

/* ---- who owns what ------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Part i of a range cut into equal parts of whole units. */
static hc__range cut(hc__range range, int64_t parts, int64_t i, int64_t unit) {
    int64_t units = (range.to - range.from + unit - 1) / unit;
    int64_t part = (units + parts - 1) / parts * unit;
    return (hc__range){least(range.from + i * part, range.to), least(range.from + (i + 1) * part, range.to)};
}

static hc__range chunk_range(const hc__shm *shm, int64_t chunk) {
    return (hc__range){chunk * shm->chunk, least((chunk + 1) * shm->chunk, shm->batch->count)};
}

static hc__range rail_range(const hc__shm *shm, int64_t chunk, int32_t rail) {
    if (shm->rails <= 1)
        return chunk_range(shm, chunk);
    return cut(chunk_range(shm, chunk), shm->rails, rail, ALIGNMENT / (int64_t)shm->result_size);
}

static hc__range share_range(const hc__shm *shm, int64_t chunk, int32_t rank) {
    int32_t rails = shm->rails > 0 ? shm->rails : 1, rail = rank % rails;
    int32_t owners = (shm->base.local_size - rail + rails - 1) / rails;
    hc__range range = rail_range(shm, chunk, rail);
    int64_t bytes = (range.to - range.from) * (int64_t)shm->size;
    int64_t unit = bytes < owners * SHARE_MIN ? SHARE_MIN : ALIGNMENT;
    return cut(range, owners, rank / rails, unit / (int64_t)shm->result_size);
}

static uint64_t sequence_of(const hc__shm *shm, int64_t chunk) {
    return shm->sequence + (uint64_t)chunk + 1;
}

/* Where an element of a chunk lies in a rank's slot of it, and in its result. */
static uint8_t *slot_at(const hc__shm *shm, int32_t rank, int64_t chunk, int64_t element) {
    return hc__slot(shm, rank, chunk) + (size_t)(element - chunk * shm->chunk) * shm->size;
}

static uint8_t *result_at(const hc__shm *shm, int64_t chunk, int64_t element) {
    return hc__result(shm, chunk) + (size_t)(element - chunk * shm->chunk) * shm->result_size;
}

static int is_alone(const hc__shm *shm) {
    return shm->base.local_size == 1;
}

/* ---- open, close --------------------------------------------------------------------------------- */

/* Large enough that marks cost little, small enough that what is in flight stays in the cache of a core. */
static int64_t choose_chunk(const hc__shm *shm) {
    int64_t bytes = least((int64_t)256 << 10, hc_node_chunk_bytes(shm->base.local_size));
    return bytes / (int64_t)shm->size;
}

int hc__shm_open(hc_node *node, const hc_batch *batch, int rails, int64_t chunk_elements, int64_t *nchunks) {
    hc__shm *shm = hc__shm_of(node);
    if (rails < 0 || rails > node->local_size || chunk_elements < 0 || (rails > 0 && chunk_elements == 0))
        return HC_INVALID;
    int status = hc__take_batch(shm, batch, rails > 0 ? batch->wire_dtype : batch->dtype);
    if (status != HC_OK)
        return status;
    shm->rails = rails;
    shm->is_small = rails == 0 && !is_alone(shm) &&
                    (size_t)batch->count <= hc__small_limit(node->local_size) / shm->size;
    shm->chunk = chunk_elements > 0 ? chunk_elements : choose_chunk(shm);
    if (shm->is_small)
        shm->chunk = batch->count > 0 ? batch->count : 1;
    status = hc__cut_regions(shm, (size_t)least(shm->chunk, batch->count) * shm->size,
                             rails > 0 ? HC__DEPTH_WITH_NET : HC__DEPTH_IN_NODE);
    if (status != HC_OK)
        return status;
    shm->nchunks = (batch->count + shm->chunk - 1) / shm->chunk;
    shm->npacked = shm->nreduced = shm->nspread = 0;
    shm->my_share_done = 0;
    shm->spread_next = 0;
    *nchunks = shm->nchunks;
    return HC_OK;
}

int hc__shm_depth(hc_node *node) {
    return hc__shm_of(node)->depth;
}

int hc__shm_close(hc_node *node) {
    hc__shm *shm = hc__shm_of(node);
    if (shm->nspread != shm->nchunks)
        return HC_INVALID;
    if (!shm->is_small)
        shm->sequence += (uint64_t)shm->nchunks;
    shm->batch = NULL;
    return HC_OK;
}

/* ---- reduce -------------------------------------------------------------------------------------- */

/* Packs the next chunk, if its slot is free: rules (1) and (2) of shm_node.h. */
static int pack_next(hc__shm *shm) {
    int64_t chunk = shm->npacked;
    if (chunk >= shm->nchunks || chunk >= shm->nspread + shm->depth)
        return 0;
    if (!hc__marks_reached(shm, &shm->freed, 0, 1, HC__REDUCED, shm->sequence))
        return 0;
    hc__range all = chunk_range(shm, chunk), mine = share_range(shm, chunk, shm->base.local_rank);
    int32_t me = shm->base.local_rank;
    hc__pack(shm, (hc__range){all.from, mine.from}, slot_at(shm, me, chunk, all.from));
    hc__pack(shm, (hc__range){mine.to, all.to}, slot_at(shm, me, chunk, mine.to));
    shm->npacked++;
    hc__mark_set(shm, HC__PACKED, sequence_of(shm, chunk));
    return 1;
}

static void reduce_share(hc__shm *shm, int64_t chunk) {
    hc__range mine = share_range(shm, chunk, shm->base.local_rank);
    for (int32_t q = 0; q < shm->base.local_size; q++)
        shm->inputs[q] = slot_at(shm, q, chunk, mine.from);
    int targets = shm->rails > 0 ? HC__TO_RESULT : HC__TO_RESULT | HC__TO_OUT;
    hc__reduce(shm, mine, result_at(shm, chunk, mine.from), targets);
    hc__mark_set(shm, HC__REDUCED, sequence_of(shm, chunk));
}

/* Where a node of one rank makes its result, if it need not be in the segment: NULL, else. */
static uint8_t *place_in_tensor(const hc__shm *shm, int64_t chunk) {
    hc__range range = chunk_range(shm, chunk);
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    hc__spans_next(&spans, &span);
    return shm->result_dtype != shm->batch->dtype || span.n < range.to - range.from ? NULL : span.out;
}

static int reduce_alone(hc__shm *shm, int64_t chunk) {
    uint8_t *to = place_in_tensor(shm, chunk);
    if (to == NULL && shm->rails > 0) /* the net needs it in one piece */
        to = hc__result(shm, chunk);
    hc__reduce_alone(shm, chunk_range(shm, chunk), to);
    hc__mark_set(shm, HC__REDUCED, sequence_of(shm, chunk));
    shm->nreduced++;
    return HC_DONE;
}

int hc__shm_reduce(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    int32_t me = node->local_rank;
    if (chunk != shm->nreduced || chunk >= shm->nchunks)
        return HC_INVALID;
    if (chunk >= shm->nspread + shm->depth)
        return HC_IDLE;
    if (is_alone(shm))
        return reduce_alone(shm, chunk);
    int moved = 0;
    if (shm->is_small) {
        moved = hc__small_reduce(shm);
        if (moved == HC_DONE)
            shm->nreduced++;
        return moved;
    }
    if (shm->npacked == chunk) {
        moved = pack_next(shm);
        if (!moved)
            return HC_IDLE;
    }
    if (!shm->my_share_done) {
        /* While the others are not there yet, the next chunk can be packed. */
        if (!hc__marks_reached(shm, &shm->arrived, 0, 1, HC__PACKED, sequence_of(shm, chunk)))
            return moved || pack_next(shm) ? HC_MOVED : HC_IDLE;
        reduce_share(shm, chunk);
        shm->my_share_done = moved = 1;
    }
    if (me < shm->rails &&
        !hc__marks_reached(shm, &shm->rail_reduced, me, shm->rails, HC__REDUCED, sequence_of(shm, chunk)))
        return moved || pack_next(shm) ? HC_MOVED : HC_IDLE;
    shm->my_share_done = 0;
    shm->nreduced++;
    return HC_DONE;
}

/* ---- the network's part -------------------------------------------------------------------------- */

int hc__shm_shard(hc_node *node, int64_t chunk, void **data, int64_t *elements) {
    hc__shm *shm = hc__shm_of(node);
    if (node->local_rank >= shm->rails || chunk >= shm->nreduced || chunk < shm->nspread)
        return HC_INVALID;
    hc__range range = rail_range(shm, chunk, node->local_rank);
    uint8_t *direct = is_alone(shm) ? place_in_tensor(shm, chunk) : NULL;
    *data = direct != NULL ? direct : result_at(shm, chunk, range.from);
    *elements = range.to - range.from;
    return HC_OK;
}

int hc__shm_publish(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    if (node->local_rank >= shm->rails || chunk >= shm->nreduced || chunk < shm->nspread)
        return HC_INVALID;
    hc__mark_set(shm, HC__PUBLISHED, sequence_of(shm, chunk));
    return HC_OK;
}

/* ---- spread -------------------------------------------------------------------------------------- */

static void unpack(hc__shm *shm, int64_t chunk, hc__range range) {
    hc__unpack(shm, range, result_at(shm, chunk, range.from));
}

/* The share of `owner` goes to the tensors; 0: it is not final yet. */
static int spread_share(hc__shm *shm, int64_t chunk, int32_t owner) {
    enum hc__mark_kind kind = shm->rails > 0 ? HC__PUBLISHED : HC__REDUCED;
    if (!hc__mark_reached(shm, owner, kind, sequence_of(shm, chunk)))
        return 0;
    if (shm->rails > 0)
        unpack(shm, chunk, rail_range(shm, chunk, owner));
    else if (owner != shm->base.local_rank)
        unpack(shm, chunk, share_range(shm, chunk, owner));
    return 1;
}

static int spread_alone(hc__shm *shm, int64_t chunk) {
    if (shm->rails > 0 && !hc__mark_reached(shm, 0, HC__PUBLISHED, sequence_of(shm, chunk)))
        return 0;
    int is_there = shm->rails == 0 || place_in_tensor(shm, chunk) != NULL;
    hc__unpack(shm, chunk_range(shm, chunk), is_there ? NULL : hc__result(shm, chunk));
    return 1;
}

int hc__shm_spread(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    if (chunk != shm->nspread || chunk >= shm->nreduced)
        return HC_INVALID;
    int moved = HC_IDLE;
    int32_t size = node->local_size, owners = shm->rails > 0 ? shm->rails : size;
    if (is_alone(shm)) {
        if (!spread_alone(shm, chunk))
            return HC_IDLE;
    } else if (!shm->is_small) {
        for (; shm->spread_next < owners; shm->spread_next++, moved = HC_MOVED)
            if (!spread_share(shm, chunk, (node->local_rank + shm->spread_next) % owners))
                return moved;
    }
    shm->spread_next = 0;
    shm->nspread++;
    return HC_DONE;
}
