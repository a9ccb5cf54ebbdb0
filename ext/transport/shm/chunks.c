/* SPDX-License-Identifier: Apache-2.0
 *
 * chunks.c - the elements of a chunk, and the ranks that own them.
 *
 * The concatenation of a batch has one part for an allreduce, and a part per rank or node for a reducescatter. A chunk
 * holds a window of every part, so no rank waits longer for its elements than another. In the segment the elements are
 * ordered by rail, then by part:
 *
 *     rail 0: part 0, part 1, ...   rail 1: part 0, part 1, ...
 *
 * These are the places of a chunk, numbered from 0. A rail is a range of places, and so is the share of a rail that a
 * rank reduces.
 */
#include "transport/shm/chunks.h"

#include "transport/shm/shm_state.h"

#define SHARE_MIN 1024 /* bytes of a share: with less, fewer ranks reduce */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Cuts a range into equal parts of whole units; returns part i. */
static hc__range cut(hc__range range, int64_t parts, int64_t i, int64_t unit) {
    int64_t units = (range.to - range.from + unit - 1) / unit;
    int64_t part = (units + parts - 1) / parts * unit;
    return (hc__range){least(range.from + i * part, range.to), least(range.from + (i + 1) * part, range.to)};
}

static int32_t rails_of(const hc__shm *shm) {
    int32_t rails = hc_rails_per_chunk(&shm->parts.rails);
    return rails > 0 ? rails : 1;
}

hc__range hc__rail_elements(const hc__shm *shm, int64_t chunk, int32_t rail, int32_t part) {
    int64_t end = shm->parts.bounds[part + 1], from = least(shm->parts.bounds[part] + chunk * shm->parts.window, end);
    hc__range window = {from, least(from + shm->parts.window, end)};
    int32_t rails = rails_of(shm);
    return rails == 1 ? window : cut(window, rails, rail, HC__ALIGNMENT / (int64_t)shm->open.result_size);
}

hc__range hc__rail_places(const hc__shm *shm, int64_t chunk, int32_t rail) {
    hc__range places = {0, 0};
    for (int32_t j = 0; j <= rail; j++) {
        places.from = places.to;
        for (int32_t i = 0; i < shm->parts.count; i++) {
            hc__range elements = hc__rail_elements(shm, chunk, j, i);
            places.to += elements.to - elements.from;
        }
    }
    return places;
}

hc__range hc__chunk_places(const hc__shm *shm, int64_t chunk) {
    return (hc__range){0, hc__rail_places(shm, chunk, rails_of(shm) - 1).to};
}

hc__range hc__share_places(const hc__shm *shm, int64_t chunk, int32_t rank) {
    int32_t rails = rails_of(shm), rail = rank % rails;
    int32_t owners = (shm->base.local_size - rail + rails - 1) / rails;
    hc__range range = hc__rail_places(shm, chunk, rail);
    int64_t bytes = (range.to - range.from) * (int64_t)shm->open.size;
    int64_t unit = bytes < owners * SHARE_MIN ? SHARE_MIN : HC__ALIGNMENT;
    return cut(range, owners, rank / rails, unit / (int64_t)shm->open.result_size);
}

hc__runs hc__runs_of(const hc__shm *shm, int64_t chunk, hc__range places) {
    return (hc__runs){.shm = shm, .chunk = chunk, .places = places};
}

int hc__runs_next(hc__runs *runs, hc__range *elements, int64_t *place) {
    const hc__shm *shm = runs->shm;
    while (runs->place < runs->places.to && runs->rail < rails_of(shm)) {
        hc__range all = hc__rail_elements(shm, runs->chunk, runs->rail, runs->part);
        int64_t begin = runs->place, skipped = runs->places.from - begin;
        runs->place += all.to - all.from;
        if (++runs->part == shm->parts.count) {
            runs->part = 0;
            runs->rail++;
        }
        skipped = skipped > 0 ? skipped : 0;
        *place = begin + skipped;
        *elements = (hc__range){all.from + skipped, least(all.to, all.from + runs->places.to - begin)};
        if (elements->from < elements->to)
            return 1;
    }
    return 0;
}
