/* SPDX-License-Identifier: Apache-2.0
 *
 * slices.c - memory for the process sets on a node: slices of one file, which keep their memory for the next set.
 *
 * The state of a slice is one word in the node control segment: the generation of the set that uses it, and how many of
 * its members have come and have left. The first member to come puts the generation there. The last one to leave clears
 * what must be zero and then the word. It reads no other rank's stores of the word but by this counter, so nobody has
 * the slice in use when the word is 0, and the leader offers only such slices.
 *
 * The memory is that of a file under /dev/shm, which is reserved before a rank maps it (segment.c). A slice that is not
 * kept is a hole in the file again when its members have left.
 */
#include "transport/shm/slices.h"

#include "transport/shm/layout.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEFT UINT64_C(1)
#define COME (UINT64_C(1) << 16)
#define COUNTED UINT64_C(0xffff)

typedef struct mapping {
    void *base;
    size_t bytes;
} mapping;

struct hc_slices {
    int fd;
    int32_t rank, size;
    off_t first; /* of the slices in the file */
    size_t room; /* between two slices */
    hc_node_control *node_control;
    mapping *kept; /* of this rank, by place; they stay for the next set */
};

/* ---- places ---------------------------------------------------------------------------------------- */

static hc__slice_state *state_of(const hc_slices *slices, int32_t leader, uint32_t number) {
    return hc__node_control_slice(slices->node_control, leader, number);
}

static int32_t place_of(const hc_slices *slices, int32_t leader, uint32_t number) {
    return (int32_t)number * slices->size + leader;
}

static int is_kept(uint32_t number) {
    return number >= 1 && number <= HC_SLICES_KEPT;
}

static off_t offset_of(const hc_slices *slices, int32_t leader, uint32_t number) {
    return slices->first + (off_t)place_of(slices, leader, number) * (off_t)slices->room;
}

uint16_t hc_slice_units(int32_t members) {
    return (uint16_t)((hc_shm_bytes(members) + HC_SLICE_UNIT - 1) / HC_SLICE_UNIT);
}

static size_t bytes_for(int32_t members) {
    return (size_t)hc_slice_units(members) * HC_SLICE_UNIT;
}

/* ---- create and free ------------------------------------------------------------------------------- */

int hc_slices_new(const hc_segment *first, hc_node_control *node_control, hc_slices **made, char *why,
                  size_t why_room) {
    hc_slices *slices = calloc(1, sizeof *slices);
    if (!slices)
        return HC_NO_MEMORY;
    slices->node_control = node_control;
    slices->rank = hc__node_control_rank(node_control);
    slices->size = hc__node_control_size(node_control);
    for (int32_t members = 1; members <= slices->size; members++)
        slices->room = bytes_for(members) > slices->room ? bytes_for(members) : slices->room;
    slices->first = (off_t)((first->bytes + HC_SLICE_UNIT - 1) / HC_SLICE_UNIT * HC_SLICE_UNIT);
    slices->kept = calloc((size_t)slices->size * (HC_SLICES_KEPT + 1), sizeof *slices->kept);
    slices->fd = hc_segment_file(first, "of the process sets", why, why_room);
    int status = slices->fd < 0 ? slices->fd : slices->kept ? HC_OK : HC_NO_MEMORY;
    if (status < 0) {
        hc_slices_free(slices);
        return status;
    }
    *made = slices;
    return HC_OK;
}

void hc_slices_free(hc_slices *slices) {
    if (!slices)
        return;
    for (int32_t place = 0; slices->kept && place < slices->size * (HC_SLICES_KEPT + 1); place++)
        if (slices->kept[place].base)
            munmap(slices->kept[place].base, slices->kept[place].bytes);
    if (slices->fd >= 0)
        close(slices->fd);
    free(slices->kept);
    free(slices);
}

/* ---- reserve --------------------------------------------------------------------------------------- */

int32_t hc_slice_reserved(const hc_slices *slices, uint32_t number) {
    const hc__slice_state *state = state_of(slices, slices->rank, number);
    if (atomic_load_explicit(&state->word, memory_order_acquire) != 0)
        return -1;
    return (int32_t)atomic_load_explicit(&state->units, memory_order_relaxed);
}

int hc_slice_reserve(hc_slices *slices, uint32_t number, int32_t members, char *why, size_t why_room) {
    hc__slice_state *state = state_of(slices, slices->rank, number);
    char name[48];
    if (atomic_load_explicit(&state->units, memory_order_relaxed) >= hc_slice_units(members))
        return HC_OK;
    snprintf(name, sizeof name, "of process set %u", number);
    int status = hc_segment_reserve(slices->fd, offset_of(slices, slices->rank, number), bytes_for(members), name, why,
                                    why_room);
    if (status >= 0)
        atomic_store_explicit(&state->units, hc_slice_units(members), memory_order_relaxed);
    return status;
}

/* ---- take and leave -------------------------------------------------------------------------------- */

static int come(hc__slice_state *state, uint32_t generation) {
    uint64_t seen = atomic_load_explicit(&state->word, memory_order_relaxed), next;
    do {
        if (seen != 0 && seen >> 32 != generation)
            return 0;
        next = ((uint64_t)generation << 32 | (seen & UINT32_MAX)) + COME;
    } while (
        !atomic_compare_exchange_weak_explicit(&state->word, &seen, next, memory_order_acquire, memory_order_relaxed));
    return 1;
}

/* The last member to leave makes the slice as it was. */
static void leave(hc_segment *segment) {
    hc_slices *slices = segment->slice.of;
    uint32_t number = segment->slice.number;
    hc__slice_state *state = state_of(slices, segment->slice.leader, number);
    if (!is_kept(number) && segment->base)
        munmap(segment->base, segment->bytes);
    uint64_t seen = atomic_fetch_add_explicit(&state->word, LEFT, memory_order_acq_rel);
    if ((int32_t)(seen & COUNTED) + 1 < segment->slice.members)
        return;
    if (is_kept(number)) {
        hc__shm_clear(segment->base, segment->slice.members);
    } else {
        fallocate(slices->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  offset_of(slices, segment->slice.leader, number), (off_t)slices->room);
        atomic_store_explicit(&state->units, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&state->word, 0, memory_order_release);
}

static void *map(hc_slices *slices, int32_t leader, uint32_t number, size_t bytes) {
    mapping *known = is_kept(number) ? &slices->kept[place_of(slices, leader, number)] : NULL;
    if (known && known->base && known->bytes >= bytes)
        return known->base;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slices->fd, offset_of(slices, leader, number));
    if (base == MAP_FAILED)
        return NULL;
    if (known) {
        if (known->base)
            munmap(known->base, known->bytes);
        *known = (mapping){base, bytes};
    }
    return base;
}

int hc_slice_take(hc_slices *slices, int32_t leader, uint32_t number, uint32_t generation, int32_t members,
                  hc_segment *segment, char *why, size_t why_room) {
    *segment = (hc_segment){.fd = -1};
    if (!come(state_of(slices, leader, number), generation)) {
        snprintf(why, why_room, "shared memory of process set %u is still in use by an earlier set", number);
        return HC_TRANSPORT;
    }
    segment->bytes = hc_shm_bytes(members);
    segment->base = map(slices, leader, number, segment->bytes);
    if (!segment->base) {
        snprintf(why, why_room, "cannot map shared memory of process set %u: %s", number, strerror(errno));
        return HC_NO_MEMORY; /* the slice stays in use: without this rank its set cannot end */
    }
    segment->slice = (hc_slice){slices, leave, leader, number, members};
    return HC_OK;
}
