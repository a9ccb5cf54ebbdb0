/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c - an allreduce, or the node's part of a reducescatter or a broadcast between nodes, in chunks through the
 * segment.
 *
 * Each rank owns a share of a chunk. It packs the other ranks' shares of its input into its slot, and reads its own
 * share from the tensors when it reduces. The sum goes to the result and, if it is final, also directly to the tensors.
 * So every input byte is read once, and the segment's bytes stay in the caches.
 *
 * If a network stage follows, the chunk is cut into rails first (into one, if the ranks take turns), and each rail into
 * the shares of the ranks q with q % rails = rail. After the network stage of a reducescatter this node has its parts
 * of each rail.
 *
 * In a broadcast nobody packs: `packed` tells that a rank has spread the chunk whose result this one replaces. The root
 * copies the chunk to the result; on the other nodes the net brings it there.
 */
#include "transport/shm/allreduce.h"

#include "transport/shm/chunks.h"
#include "transport/shm/layout.h"
#include "transport/shm/pieces.h"
#include "transport/shm/shm_state.h"
#include "transport/shm/small.h"

/* ---- places ----------------------------------------------------------------------------------------- */

static uint64_t sequence_of(const hc__shm *shm, int64_t chunk) {
    return shm->sequence + (uint64_t)chunk + 1;
}

/* The address of a place of a chunk in a rank's slot, and in the result. */
static uint8_t *slot_at(const hc__shm *shm, int32_t rank, int64_t chunk, int64_t place) {
    return hc__shm_slot(shm, rank, chunk) + (size_t)place * shm->open.size;
}

static uint8_t *result_at(const hc__shm *shm, int64_t chunk, int64_t place) {
    return hc__shm_result(shm, chunk) + (size_t)place * shm->open.result_size;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int is_alone(const hc__shm *shm) {
    return shm->base.local_size == 1;
}

static int has_net(const hc__shm *shm) {
    return shm->parts.rails.count > 0;
}

/* The rail of a chunk that this rank drives, or -1. */
static int32_t driven_rail(const hc__shm *shm, int64_t chunk) {
    return hc_rail_driven(&shm->parts.rails, shm->base.local_rank, chunk);
}

/* The rank that drives a rail of a chunk. */
static int32_t driver_of(const hc__shm *shm, int64_t chunk, int32_t rail) {
    return shm->parts.rails.takes_turns ? (int32_t)(chunk % shm->parts.rails.count) : rail;
}

/* In a broadcast values are moved, not reduced. */
static int moves(const hc__shm *shm) {
    return !hc_operation_has(shm->open.batch->operation, HC_OP_REDUCES);
}

/* ---- open, close --------------------------------------------------------------------------------- */

/* Large enough that marks cost little, small enough that the chunks in flight fit a core's cache. */
static int64_t choose_chunk(const hc__shm *shm) {
    int64_t bytes = least((int64_t)256 << 10, hc_node_chunk_bytes(shm->base.local_size));
    return bytes / (int64_t)shm->open.size;
}

/* Sets the parts, and the elements of each part in a chunk of about `chunk` elements; returns the length of the longest
 * part. */
static int64_t take_parts(hc__shm *shm, const hc_parts *parts, int64_t chunk) {
    int64_t longest = 0;
    shm->parts.whole[0] = 0;
    shm->parts.whole[1] = shm->open.batch->count;
    shm->parts.count = parts != NULL ? parts->n : 1;
    shm->parts.own_from = parts != NULL ? parts->own : 0;
    shm->parts.own_end = parts != NULL ? parts->own_end : 1;
    shm->parts.bounds = parts != NULL ? parts->bounds : shm->parts.whole;
    for (int32_t i = 0; i < shm->parts.count; i++) {
        int64_t length = shm->parts.bounds[i + 1] - shm->parts.bounds[i];
        longest = length > longest ? length : longest;
    }
    shm->parts.window = chunk / shm->parts.count;
    if (parts != NULL && shm->parts.window > HC__ALIGNMENT)
        shm->parts.window -= shm->parts.window % HC__ALIGNMENT;
    if (shm->parts.window == 0)
        shm->parts.window = 1;
    return longest;
}

static int are_valid(const hc_node *node, const hc_rails *rails, int64_t chunk_elements) {
    if (rails->count < 0 || rails->count > node->local_size || chunk_elements < 0)
        return 0;
    return rails->count == 0 || (rails->under_way > 0 && chunk_elements > 0);
}

int hc__shm_open(hc_node *node, const hc_batch *batch, const hc_parts *parts, const hc_rails *rails,
                 int64_t chunk_elements, int64_t *nchunks) {
    hc__shm *shm = hc__shm_of(node);
    if (!are_valid(node, rails, chunk_elements))
        return HC_INVALID;
    int status = hc__take_batch(shm, batch, rails->count > 0 ? batch->wire_dtype : batch->dtype);
    if (status != HC_OK)
        return status;
    shm->parts.rails = *rails;
    shm->open.is_small = !has_net(shm) && !is_alone(shm) &&
                         (size_t)batch->count <= hc__small_limit(node->local_size) / shm->open.size;
    int64_t chunk = chunk_elements > 0 ? chunk_elements : choose_chunk(shm);
    if (shm->open.is_small)
        chunk = batch->count;
    int64_t longest = take_parts(shm, parts, chunk);
    size_t longest_chunk = (size_t)least(shm->parts.window * shm->parts.count, batch->count);
    status = hc__cut_regions(shm, longest_chunk * shm->open.size, longest_chunk * shm->open.result_size,
                             has_net(shm) ? rails->under_way : HC__DEPTH_IN_NODE);
    if (status != HC_OK)
        return status;
    shm->chunks.count = (longest + shm->parts.window - 1) / shm->parts.window;
    node->turns += shm->chunks.count;
    shm->chunks.packed = shm->chunks.reduced = shm->chunks.spread = 0;
    shm->chunks.share_done = 0;
    shm->chunks.spread_next = 0;
    *nchunks = shm->chunks.count;
    return HC_OK;
}

int hc__shm_depth(hc_node *node) {
    return hc__shm_of(node)->chunks.depth;
}

int hc__shm_close(hc_node *node) {
    hc__shm *shm = hc__shm_of(node);
    if (shm->chunks.spread != shm->chunks.count)
        return HC_INVALID;
    if (!shm->open.is_small)
        shm->sequence += (uint64_t)shm->chunks.count;
    shm->open.batch = NULL;
    return HC_OK;
}

/* ---- reduce -------------------------------------------------------------------------------------- */

static void pack(hc__shm *shm, int64_t chunk, hc__range places) {
    hc__runs runs = hc__runs_of(shm, chunk, places);
    hc__range elements;
    int64_t place;
    while (hc__runs_next(&runs, &elements, &place))
        hc__pack(shm, elements, slot_at(shm, shm->base.local_rank, chunk, place));
}

/* Packs the next chunk, if its slot is free: rules (1) and (2) of shm_state.h. */
static int pack_next(hc__shm *shm) {
    int64_t chunk = shm->chunks.packed;
    int waits = shm->chunks.slots < shm->chunks.depth && chunk >= shm->chunks.slots;
    if (chunk >= shm->chunks.count || chunk >= shm->chunks.spread + shm->chunks.depth)
        return 0;
    if (!hc__marks_reached(shm, &shm->scans.freed, 0, 1, HC__REDUCED,
                           waits ? sequence_of(shm, chunk - shm->chunks.slots) : shm->sequence))
        return 0;
    if (!moves(shm)) {
        hc__range all = hc__chunk_places(shm, chunk), mine = hc__share_places(shm, chunk, shm->base.local_rank);
        pack(shm, chunk, (hc__range){all.from, mine.from});
        pack(shm, chunk, (hc__range){mine.to, all.to});
    }
    shm->chunks.packed++;
    hc__mark_set(shm, HC__PACKED, sequence_of(shm, chunk));
    return 1;
}

/* The destinations of this rank's share of the sum. On the root of a reduce no other rank reads it; a copy in the
 * segment would also look near to stores.c, wherever the other ranks are. */
static int targets_of(const hc__shm *shm) {
    const hc_batch *batch = shm->open.batch;
    if (has_net(shm))
        return HC__TO_RESULT;
    int is_root = hc_operation_has(batch->operation, HC_OP_TO_ROOT) && batch->pieces[0].out != NULL;
    return is_root ? HC__TO_OUT : HC__TO_RESULT | HC__TO_OUT;
}

static void reduce_share(hc__shm *shm, int64_t chunk) {
    int targets = targets_of(shm);
    hc__runs runs = hc__runs_of(shm, chunk, hc__share_places(shm, chunk, shm->base.local_rank));
    hc__range elements;
    int64_t place;
    while (hc__runs_next(&runs, &elements, &place)) {
        for (int32_t q = 0; q < shm->base.local_size; q++)
            shm->operands.inputs[q] = slot_at(shm, q, chunk, place);
        hc__reduce(shm, elements, result_at(shm, chunk, place), targets);
    }
}

/* A broadcast: the root copies the chunk to the result. */
static void give(hc__shm *shm, int64_t chunk) {
    hc__runs runs = hc__runs_of(shm, chunk, hc__chunk_places(shm, chunk));
    hc__range elements;
    int64_t place;
    while (hc__gives(shm) && hc__runs_next(&runs, &elements, &place))
        hc__pack(shm, elements, result_at(shm, chunk, place));
}

/* 1: the ranks on which a rail of a chunk depends have `reduced` it: all that own a share, or the root. */
static int is_rail_reduced(hc__shm *shm, int64_t chunk, int32_t rail) {
    int32_t step = hc_rails_per_chunk(&shm->parts.rails), root = shm->open.batch->local_root;
    if (moves(shm))
        return root < 0 || hc__mark_reached(shm, root, HC__REDUCED, sequence_of(shm, chunk));
    return hc__marks_reached(shm, &shm->scans.rail_reduced, rail, step, HC__REDUCED, sequence_of(shm, chunk));
}

/* The tensor in which a node of one rank can form its result, or the root's of a broadcast; NULL: it must use the
 * segment. */
static uint8_t *place_in_tensor(const hc__shm *shm, int64_t chunk) {
    if (shm->parts.count > 1)
        return NULL;
    hc__range range = hc__rail_elements(shm, chunk, 0, 0);
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    hc__spans_next(&spans, &span);
    if (shm->open.result_dtype != shm->open.batch->dtype || span.n < range.to - range.from)
        return NULL;
    return hc__gives(shm) ? (uint8_t *)(uintptr_t)span.in : span.out; /* the net only reads it there */
}

static void reduce_own(hc__shm *shm, int64_t chunk, uint8_t *tensor) {
    int in_segment = tensor == NULL && has_net(shm); /* the net needs it in one piece */
    hc__runs runs = hc__runs_of(shm, chunk, hc__chunk_places(shm, chunk));
    hc__range elements;
    int64_t place;
    while (hc__runs_next(&runs, &elements, &place))
        hc__reduce_alone(shm, elements, in_segment ? result_at(shm, chunk, place) : tensor);
}

static int reduce_alone(hc__shm *shm, int64_t chunk) {
    uint8_t *tensor = place_in_tensor(shm, chunk);
    if (!moves(shm))
        reduce_own(shm, chunk, tensor);
    else if (tensor == NULL)
        give(shm, chunk);
    hc__mark_set(shm, HC__REDUCED, sequence_of(shm, chunk));
    shm->chunks.reduced++;
    return HC_DONE;
}

int hc__shm_reduce(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    if (chunk != shm->chunks.reduced || chunk >= shm->chunks.count)
        return HC_INVALID;
    if (chunk >= shm->chunks.spread + shm->chunks.depth)
        return HC_IDLE;
    if (is_alone(shm))
        return reduce_alone(shm, chunk);
    int moved = 0;
    if (shm->open.is_small) {
        moved = hc__small_reduce(shm);
        if (moved == HC_DONE)
            shm->chunks.reduced++;
        return moved;
    }
    if (shm->chunks.packed == chunk) {
        moved = pack_next(shm);
        if (!moved)
            return HC_IDLE;
    }
    if (!shm->chunks.share_done) {
        /* While the other ranks are late, pack the next chunk. */
        if (!hc__marks_reached(shm, &shm->scans.arrived, 0, 1, HC__PACKED, sequence_of(shm, chunk)))
            return moved || pack_next(shm) ? HC_MOVED : HC_IDLE;
        if (moves(shm))
            give(shm, chunk);
        else
            reduce_share(shm, chunk);
        hc__mark_set(shm, HC__REDUCED, sequence_of(shm, chunk));
        shm->chunks.share_done = moved = 1;
    }
    int32_t rail = driven_rail(shm, chunk);
    if (rail >= 0 && !is_rail_reduced(shm, chunk, rail))
        return moved || pack_next(shm) ? HC_MOVED : HC_IDLE;
    shm->chunks.share_done = 0;
    shm->chunks.reduced++;
    return HC_DONE;
}

/* ---- the network's part -------------------------------------------------------------------------- */

int hc__shm_shard(hc_node *node, int64_t chunk, void **data, int64_t *bounds) {
    hc__shm *shm = hc__shm_of(node);
    int32_t rail = driven_rail(shm, chunk);
    if (rail < 0 || chunk >= shm->chunks.reduced || chunk < shm->chunks.spread)
        return HC_INVALID;
    uint8_t *direct = is_alone(shm) ? place_in_tensor(shm, chunk) : NULL;
    int64_t begin = hc__rail_places(shm, chunk, rail).from;
    *data = direct != NULL ? direct : result_at(shm, chunk, begin);
    bounds[0] = 0;
    for (int32_t i = 0; i < shm->parts.count; i++) {
        hc__range elements = hc__rail_elements(shm, chunk, rail, i);
        bounds[i + 1] = bounds[i] + elements.to - elements.from;
    }
    return HC_DONE;
}

int hc__shm_publish(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    if (driven_rail(shm, chunk) < 0 || chunk >= shm->chunks.reduced || chunk < shm->chunks.spread)
        return HC_INVALID;
    hc__mark_set(shm, HC__PUBLISHED, sequence_of(shm, chunk));
    return HC_OK;
}

/* ---- spread -------------------------------------------------------------------------------------- */

static void unpack_share(hc__shm *shm, int64_t chunk, int32_t owner) {
    hc__runs runs = hc__runs_of(shm, chunk, hc__share_places(shm, chunk, owner));
    hc__range elements;
    int64_t place;
    while (hc__runs_next(&runs, &elements, &place))
        hc__unpack(shm, elements, result_at(shm, chunk, place));
}

/* Unpacks this node's parts of a rail after the net's reducescatter. */
static void unpack_rail(hc__shm *shm, int64_t chunk, int32_t rail) {
    int64_t place = hc__rail_places(shm, chunk, rail).from;
    for (int32_t i = 0; i < shm->parts.own_end; i++) {
        hc__range elements = hc__rail_elements(shm, chunk, rail, i);
        if (i >= shm->parts.own_from)
            hc__unpack(shm, elements, result_at(shm, chunk, place));
        place += elements.to - elements.from;
    }
}

/* Copies a rail to the tensors; 0: it is not final yet. */
static int spread_rail(hc__shm *shm, int64_t chunk, int32_t rail) {
    if (!hc__mark_reached(shm, driver_of(shm, chunk, rail), HC__PUBLISHED, sequence_of(shm, chunk)))
        return 0;
    unpack_rail(shm, chunk, rail);
    return 1;
}

/* Copies the share of `owner` to the tensors; 0: it is not final yet. */
static int spread_share(hc__shm *shm, int64_t chunk, int32_t owner) {
    if (!hc__mark_reached(shm, owner, HC__REDUCED, sequence_of(shm, chunk)))
        return 0;
    if (owner != shm->base.local_rank)
        unpack_share(shm, chunk, owner);
    return 1;
}

static int spread_alone(hc__shm *shm, int64_t chunk) {
    if (has_net(shm) && !hc__mark_reached(shm, 0, HC__PUBLISHED, sequence_of(shm, chunk)))
        return 0;
    if (has_net(shm) && (place_in_tensor(shm, chunk) == NULL || hc__gives(shm)))
        unpack_rail(shm, chunk, 0);
    return 1;
}

int hc__shm_spread(hc_node *node, int64_t chunk) {
    hc__shm *shm = hc__shm_of(node);
    if (chunk != shm->chunks.spread || chunk >= shm->chunks.reduced)
        return HC_INVALID;
    int moved = HC_IDLE;
    int32_t owners = has_net(shm) ? hc_rails_per_chunk(&shm->parts.rails) : node->local_size;
    int (*const spread_next)(hc__shm *, int64_t, int32_t) = has_net(shm) ? spread_rail : spread_share;
    if (is_alone(shm)) {
        if (!spread_alone(shm, chunk))
            return HC_IDLE;
    } else if (!shm->open.is_small) {
        for (; shm->chunks.spread_next < owners; shm->chunks.spread_next++, moved = HC_MOVED)
            if (!spread_next(shm, chunk, (node->local_rank + shm->chunks.spread_next) % owners))
                return moved;
    }
    shm->chunks.spread_next = 0;
    shm->chunks.spread++;
    return HC_DONE;
}
