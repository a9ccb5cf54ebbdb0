/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_state.h - the state of a shared-memory node. (Private to ext/transport/shm.)
 *
 * The segment has, in this order: the number of ranks that have left, marks (three counters per rank), small slots (two
 * per rank), slots (each rank's input of the newest chunks), results (of all chunks in flight), and,
 * but for a plan's, the shortcut (two words for the count and two for an outcome, two slots per rank and two for a
 * result, two areas for large parts per rank).
 *
 * Chunks have sequence numbers over all batches of the node, from 1, the same on all ranks. Only its owner writes a
 * mark. It holds the newest sequence number for which this is true of the owner:
 *
 *     packed     my input is in my slot
 *     reduced    my share of the result is complete, and I have finished reading the other ranks' slots
 *     published  (rail drivers) the rail's shard has been through the network
 *
 * The marks are enough for the reuse of slots and results. Let S be the slots of a rank, and D the results (the depth).
 *   (1) pack(n) comes after my own spread(n - D).
 *   (2) pack(n) comes after every rank's `reduced` is at least n - S: no rank reads my slot of n - S any more. If S is
 *       D, this follows from (1), because spread(n - D) ends when all shares of n - D are final.
 *   (3) I write my share of result n after every rank's `packed` is at least n; by (1) every rank has spread n - D
 *       before that, so no rank reads the old result.
 * The first chunk of a batch is packed after (2) and (3) hold for all chunks of the last batch, so each batch may lay
 * out slots and results anew. Exchanges that follow each other keep their layout, and (2) is enough for them. A mark
 * is stored with release after its data, and loaded with acquire before the data is read (packed, published) or
 * overwritten (reduced).
 */
#ifndef HC_SHM_STATE_H
#define HC_SHM_STATE_H

#include "transport/arithmetic.h"
#include "transport/shm/control_segment.h"
#include "transport/shm/shortcut.h"
#include "transport/shm/shm.h"
#include "transport/shm/stores.h"

#define HC__ALIGNMENT 64 /* bytes: the alignment of ranges */
#define HC__LINE 128     /* two lines of 64 bytes: the prefetcher fetches pairs */
#define HC__SMALL_ROOM ((size_t)16 << 10)
#define HC__SCRATCH ((size_t)16 << 10) /* fits the first-level cache together with the operands */

typedef struct hc__mark {
    _Alignas(HC__LINE) _Atomic uint64_t value;
} hc__mark;

enum hc__mark_kind { HC__PACKED, HC__REDUCED, HC__PUBLISHED, HC__MARKS };

typedef struct hc__marks {
    hc__mark of[HC__MARKS];
} hc__marks;

/* A slot of the small path: the flag and its data, which begins in the flag's cache line. */
typedef struct hc__small {
    _Alignas(HC__LINE) _Atomic uint64_t sequence;
    _Alignas(16) uint8_t data[HC__SMALL_ROOM - 16];
} hc__small;

/* shortcut.c: the data that a rank publishes, and the count of arrived ranks. Larger parts lie behind the slots of all
 * ranks: so a call of few bytes touches few pages, which is 5 % of its time. */
#define HC__SHORTCUT_NEAR HC_SHORTCUT_SMALL
typedef struct hc__shortcut_slot {
    _Alignas(HC__LINE) uint64_t agreed[HC_SHORTCUT_WORDS];
    uint64_t own;
    uint8_t data[HC__SHORTCUT_NEAR + HC_SHORTCUT_RANKS * sizeof(int32_t)]; /* the counts, then a part of few bytes */
} hc__shortcut_slot;
typedef struct hc__shortcut_word {
    _Alignas(128) _Atomic uint64_t value; /* number of the call << 8 | arrived groups of ranks; 255: the call is off */
} hc__shortcut_word;
/* Ranks come in groups, because a word in which each of many ranks counts itself moves from core to core for each of
 * them, and more often: the last rank of a group counts the group. */
#ifndef HC__SHORTCUT_GROUPS
#define HC__SHORTCUT_GROUPS 32
#endif
typedef struct hc__shortcut_group {
    int32_t own, ranks; /* this rank's group, and its ranks */
    int32_t n;          /* groups of the node; as many as ranks: each rank counts itself */
} hc__shortcut_group;
size_t hc__shortcut_area(int32_t local_size);
struct hc_shortcut {
    uint64_t number; /* of the next call */
    int32_t rank, size, misses;
    hc__shortcut_group group;
    const hc_node_control *node_control;
    hc__shortcut_word *words; /* the count of two calls in turn, the outcomes of votes on them, the counts of groups */
    hc__shortcut_slot *slots;
    uint8_t *results; /* of votes, HC_SHORTCUT_RESULT bytes each, of two calls in turn */
    uint8_t *far;     /* two areas for large parts per rank */
    size_t largest, area;
    hc__choice choice; /* of the stores of large parts */
};

/* The progress of a scan of all ranks' marks, so that a repeated scan costs one load and not one per rank. */
typedef struct hc__mark_scan {
    uint64_t target;
    int32_t next;
} hc__mark_scan;

/* A range of elements. */
typedef struct hc__range {
    int64_t from, to;
} hc__range;

/* exchange and scatter go through the slots in rounds. */
typedef struct hc__rounds {
    int64_t count, packed, taken; /* count 0: no rounds are running */
    int32_t next;                 /* the next rank to read in round `taken` */
    uint64_t since, ended;        /* `sequence` when the slots were cut, and after the last round */
    hc__mark_scan freed, arrived;
    const hc_stream_part *parts; /* of this rank's stream */
    const hc_stream_read *reads;
    const int64_t *lengths, *bounds;
} hc__rounds;

/* Where the parts of the segment are. */
typedef struct hc__places {
    hc__mark *left; /* number of nodes that were freed */
    hc__marks *marks;
    hc__small *small;
    uint8_t *slots, *results;
    size_t chunk; /* bytes of the longest chunk */
} hc__places;

/* Room for the operands of a reduction. */
typedef struct hc__operands {
    const uint8_t **inputs;   /* local_size entries */
    const void **blocks;      /* the same within one block of it */
    uint8_t *scratch, *block; /* HC__SCRATCH bytes of private memory each */
} hc__operands;

typedef struct hc__small_path {
    uint64_t sequence; /* of the newest batch */
    int sent;
} hc__small_path;

typedef struct hc__open_batch {
    const hc_batch *batch;
    int64_t *starts; /* npieces + 1: where each piece begins in the concatenation */
    int32_t starts_room;
    size_t size;      /* bytes of an element */
    int result_dtype; /* the wire type if a net stage follows; else the batch's */
    size_t result_size;
    int64_t out_from; /* scatter: where this rank's share begins; else 0 */
    int is_small;
} hc__open_batch;

/* The parts of the open batch, and the ranks that carry them between nodes. */
typedef struct hc__batch_parts {
    const int64_t *bounds; /* where the parts begin: count + 1 */
    int64_t whole[2];      /* the bounds of an allreduce's one part */
    int32_t count, own_from, own_end;
    hc_rails rails;
    int64_t window; /* elements of each part per chunk, at most */
} hc__batch_parts;

/* The chunks of the open batch, and how many have passed each stage here. */
typedef struct hc__chunks {
    int64_t count, packed, reduced, spread;
    int share_done;      /* of chunk `reduced`: waits for the other ranks of my rail */
    int32_t spread_next; /* shares of chunk `spread` that are copied */
    int slots, depth;    /* of a rank; of results */
    size_t slot_stride, result_stride;
    int64_t scattered; /* scatter: elements per rank and round */
} hc__chunks;

typedef struct hc__scans {
    hc__mark_scan freed, arrived, rail_reduced;
} hc__scans;

typedef struct hc__shm {
    hc_node base;
    hc_segment segment;
    hc_node_control *node_control;
    hc__mask peers; /* the other ranks, by local rank in the node control segment */
    hc__choice choice;
    hc__places places;
    hc_shortcut shortcut;
    hc__operands operands;
    uint64_t sequence; /* chunks of all closed batches */
    hc__small_path small;
    hc__open_batch open;
    hc__batch_parts parts;
    hc__chunks chunks;
    hc__scans scans;
    hc__rounds rounds;
} hc__shm;

static inline hc__shm *hc__shm_of(hc_node *node) {
    return (hc__shm *)node;
}

/* ---- layout.c: peers, marks and places --------------------------------------------------------------------- */

void hc__mark_set(hc__shm *, enum hc__mark_kind, uint64_t value); /* also wakes the other ranks */
int hc__mark_reached(const hc__shm *, int32_t rank, enum hc__mark_kind, uint64_t value);
/* 1 when the marks of ranks first, first + step, ... have all reached `value`. */
int hc__marks_reached(const hc__shm *, hc__mark_scan *, int32_t first, int32_t step, enum hc__mark_kind,
                      uint64_t value);
/* Sets the other ranks; `locals`: their local ranks in the node control segment. */
void hc__shm_set_peers(hc__shm *, const int32_t *locals);
/* Copies data to the segment, with the stores that suit the distance of the readers. */
void hc__shm_show(hc__shm *, void *to, const void *from, size_t bytes);
void hc__shm_expect(hc_node *, int64_t passing);
uint8_t *hc__shm_slot(const hc__shm *, int32_t rank, int64_t chunk);
uint8_t *hc__shm_result(const hc__shm *, int64_t chunk);
/* Cuts the room into slots and `depth` results for chunks of so many bytes; INVALID where they do not fit. Three slots
 * keep the ranks of a node busy, and few slots stay in the caches. */
#define HC__DEPTH_IN_NODE 3
void hc__shm_lay_out(hc__shm *); /* finds the parts of the segment */
/* Makes a segment of hc_shm_bytes(), which nobody uses, as if it were new: what a new node relies on is zero. */
void hc__shm_clear(void *base, int32_t local_size);
int hc__cut_regions(hc__shm *, size_t slot_bytes, size_t result_bytes, int depth);

/* ---- pieces.c: a batch as one concatenation -------------------------------------------------- */

/* The overlap of a range of the concatenation with one piece: n elements, from element `at` of the piece and element
 * `offset` of the range. `out`: the memory for their result, or NULL. */
typedef struct hc__span {
    const hc_piece *piece;
    const uint8_t *in;
    uint8_t *out;
    int64_t at, n, offset;
} hc__span;

typedef struct hc__spans {
    const hc__shm *shm;
    hc__range range;
    int64_t position;
    int32_t piece;
} hc__spans;

int hc__take_batch(hc__shm *, const hc_batch *, int result_dtype); /* notes where the pieces begin; a status */
hc__spans hc__spans_of(const hc__shm *, hc__range);
int hc__spans_next(hc__spans *, hc__span *);

/* 1: this rank is the root of a broadcast. */
int hc__gives(const hc__shm *);
/* Copies my input of a range to `to`; neutral elements if I have none. */
void hc__pack(hc__shm *, hc__range, uint8_t *to);
enum hc__target {
    HC__TO_RESULT = 1, /* to `to`, as result_dtype */
    HC__TO_OUT = 2     /* to the tensors */
};
/* Reduces a range: the other ranks' elements are at shm->operands.inputs[q], mine in my tensors. */
void hc__reduce(hc__shm *, hc__range, uint8_t *to, int targets);
/* Copies a final range of the result to the tensors; it is result_dtype at `from`. The root of a broadcast copies its
 * own input. */
void hc__unpack(hc__shm *, hc__range, const uint8_t *from);
/* Reduces on a node of one rank; `to` NULL: into the tensors. */
void hc__reduce_alone(hc__shm *, hc__range, uint8_t *to);

/* ---- chunks.c: the elements of a chunk -------------------------------------------------------- */

/* The elements of one part on one rail, in a chunk. */
hc__range hc__rail_elements(const hc__shm *, int64_t chunk, int32_t rail, int32_t part);
/* The places of a chunk: all of them, the places of a rail, and the places that a rank reduces. */
hc__range hc__chunk_places(const hc__shm *, int64_t chunk);
hc__range hc__rail_places(const hc__shm *, int64_t chunk, int32_t rail);
hc__range hc__share_places(const hc__shm *, int64_t chunk, int32_t rank);

/* Iterates over the runs of elements in a range of a chunk's places, with the first place of each. */
typedef struct hc__runs {
    const hc__shm *shm;
    int64_t chunk, place;
    hc__range places;
    int32_t rail, part;
} hc__runs;

hc__runs hc__runs_of(const hc__shm *, int64_t chunk, hc__range places);
int hc__runs_next(hc__runs *, hc__range *elements, int64_t *place);

/* ---- small.c: few bytes, one hand-off -------------------------------------------------------- */

size_t hc__small_limit(int32_t local_size);
int hc__small_reduce(hc__shm *);

/* ---- allreduce.c, exchange.c: the operations --------------------------------------------- */

int hc__shm_open(hc_node *, const hc_batch *, const hc_parts *, const hc_rails *, int64_t chunk_elements,
                 int64_t *nchunks);
int hc__shm_depth(hc_node *);
int hc__shm_reduce(hc_node *, int64_t chunk);
int hc__shm_shard(hc_node *, int64_t chunk, void **data, int64_t *bounds);
int hc__shm_publish(hc_node *, int64_t chunk);
int hc__shm_spread(hc_node *, int64_t chunk);
int hc__shm_close(hc_node *);
int hc__shm_exchange(hc_node *, const hc_stream_part *, int32_t n, const hc_stream_read *reads, const int64_t *lengths);
int hc__shm_scatter(hc_node *, const hc_batch *, const int64_t *bounds);

#endif
