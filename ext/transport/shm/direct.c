/* SPDX-License-Identifier: Apache-2.0
 *
 * direct.c - the direct stage of an exchange.
 *
 * A rank shows the addresses of its stream in its slot (mark packed), reads from the memory of the other ranks, and
 * says whether that worked (mark published). When all ranks have said so, the stage is over: no rank reads this rank's
 * memory any more, and all know whether one has failed.
 *
 * A rank whose batch is given up, because its World is broken, returns memory to the program that others may be
 * reading. It withdraws first (control_segment.h), so that those find another count after their copy, and fail.
 */
#include "transport/shm/direct.h"

#include "transport/shm/control_segment.h"
#include "transport/shm/shm_state.h"

#include <string.h>

/* The kernel copies by the processor's string instruction and pays for each page. Where that instruction is the fastest
 * copy, its one copy takes less time than two through the slots if two ranks exchange HC__DIRECT_LEAST bytes or more.
 * Streams of MOST bytes go through the slots, because copies out of these can bypass the caches (decision 131). */
#ifndef HC__DIRECT_SUITS
#define HC__DIRECT_SUITS hc_host_copies_strings()
#endif
#ifndef HC__DIRECT_LEAST
#define HC__DIRECT_LEAST ((int64_t)48 << 10)
#endif
#define MOST ((int64_t)4 << 20)
#define TURN ((int64_t)1 << 20) /* bytes that are read before the caller may do other work */
#define PARTS 256               /* of a stream, at most */

typedef struct place {
    uint64_t address;
    int64_t bytes;
} place;

/* What a rank shows. */
typedef struct shown {
    uint64_t withdrawn;
    int32_t local; /* the rank in the node control segment */
    int32_t n;     /* of places; 0: its stream cannot be read */
    int32_t is_failed;
    place places[PARTS];
} shown;
_Static_assert(sizeof(shown) <= HC__DIRECT_SLOT, "a slot holds it");

int hc__direct_suits(int32_t local_size, int64_t longest) {
    return local_size > 1 && longest / (local_size - 1) >= HC__DIRECT_LEAST && longest < MOST && HC__DIRECT_SUITS;
}

void hc__direct_begin(hc__direct *direct) {
    *direct = (hc__direct){0};
}

void hc__direct_show(const hc__shm *shm, void *slot, const hc_stream_part *parts, int32_t n) {
    shown *mine = slot;
    mine->local = hc__node_control_rank(shm->node_control);
    mine->withdrawn = hc__node_control_withdrawn(shm->node_control, mine->local);
    mine->is_failed = 0;
    mine->n = n <= PARTS ? n : 0;
    for (int32_t i = 0; i < mine->n; i++)
        mine->places[i] = (place){(uint64_t)(uintptr_t)parts[i].data, parts[i].bytes};
}

/* Copies the bytes from `at` on of a stream. 0: that failed. */
static int read_stream(hc__shm *shm, const shown *its, int64_t at, uint8_t *out, int64_t bytes) {
    for (int32_t i = 0; i < its->n && bytes > 0; i++) {
        const place *p = &its->places[i];
        int64_t n = p->bytes - at < bytes ? p->bytes - at : bytes;
        if (n > 0) {
            if (!hc__node_control_read(shm->node_control, its->local, out, p->address + (uint64_t)at, (size_t)n))
                return 0;
            out += n;
            bytes -= n;
        }
        at = at > p->bytes ? at - p->bytes : 0;
    }
    return bytes == 0;
}

int hc__direct_read(hc__shm *shm, hc__direct *direct, const void *slot_of_q, const hc_stream_read *read) {
    const shown *its = slot_of_q;
    int64_t rest = read->bytes - direct->done, bytes = rest < TURN ? rest : TURN;
    uint8_t *out = (uint8_t *)read->out + direct->done;
    if (!direct->is_failed)
        direct->is_failed = !hc__node_control_reads(shm->node_control, its->local) ||
                            !read_stream(shm, its, read->offset + direct->done, out, bytes) ||
                            hc__node_control_withdrawn(shm->node_control, its->local) != its->withdrawn;
    direct->done += bytes;
    if (direct->done < read->bytes && !direct->is_failed)
        return 0;
    shm->base.spread_bytes += direct->is_failed ? 0 : (uint64_t)read->bytes;
    direct->done = 0;
    return 1;
}

void hc__direct_tell(hc__shm *shm, hc__direct *direct, void *own_slot, uint64_t sequence) {
    ((shown *)own_slot)->is_failed = direct->is_failed;
    direct->has_read = 1;
    hc__mark_set(shm, HC__PUBLISHED, sequence);
}

int hc__direct_have_all_read(hc__shm *shm, hc__direct *direct, uint64_t sequence) {
    return hc__marks_reached(shm, &direct->all_read, 0, 1, HC__PUBLISHED, sequence);
}

int hc__direct_has_failed(const void *slot) {
    return ((const shown *)slot)->is_failed;
}
