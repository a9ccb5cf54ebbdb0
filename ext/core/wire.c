/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.c - columns of slots and headers of messages.
 */
#include "core/wire.h"

uint32_t hc__column_word(hc__column_view column, uint32_t i, uint64_t *bits) {
    const uint8_t *p = column.at + (size_t)12 * i;
    hc__reader r = {.at = p, .end = p + 12};
    uint32_t word = hc__read32(&r);
    *bits = hc__read64(&r);
    return word;
}

uint8_t *hc__write_column(uint8_t *p, const uint64_t *rows, uint32_t nrows, uint32_t stride, hc__row_bits *bits_of) {
    uint8_t *count = p;
    uint32_t n = 0;
    p += 4;
    for (uint32_t word = 0; word < nrows; word++) {
        uint64_t bits = bits_of(rows + (size_t)word * stride);
        if (!bits)
            continue;
        p = hc__write64(hc__write32(p, word), bits);
        n++;
    }
    hc__write32(count, n);
    return p;
}

hc__column_view hc__read_column(hc__reader *r) {
    hc__column_view column = {.n = hc__read32(r)};
    column.at = hc__read_bytes(r, (size_t)12 * column.n);
    if (!column.at)
        return (hc__column_view){0};
    uint64_t bits = 0;
    uint32_t before = 0;
    for (uint32_t i = 0; i < column.n; i++) {
        uint32_t word = hc__column_word(column, i, &bits);
        if (!bits || (i && word <= before))
            r->bad = 1;
        before = word;
    }
    return column;
}

uint8_t *hc__write_header(uint8_t *p, int message, uint32_t set) {
    p = hc__write8(p, HC__WIRE_VERSION);
    p = hc__write8(p, (uint8_t)message);
    p = hc__write8(p, 0);
    p = hc__write8(p, 0);
    return hc__write32(p, set);
}

int hc__read_header(hc__reader *r, uint32_t *set) {
    int version = hc__read8(r), message = hc__read8(r);
    int zero = hc__read8(r) | hc__read8(r);
    *set = hc__read32(r);
    int known = message == HC__M_UP || message == HC__M_ENTRY || (message >= HC__M_FAIL && message < HC__M_END);
    return !r->bad && version == HC__WIRE_VERSION && !zero && known ? message : 0;
}

uint8_t *hc__write_leaver(uint8_t *p, uint8_t flags, const hc__leaver *leaver) {
    if (!(flags & HC__F_LEAVES))
        return p;
    p = hc__write32(p, (uint32_t)leaver->rank);
    p = hc__write8(p, leaver->nwhy);
    return hc__write_bytes(p, leaver->why, leaver->nwhy);
}

hc__leaver hc__read_leaver(hc__reader *r, uint8_t flags, int32_t set_size, int32_t world_size) {
    hc__leaver leaver = {.rank = HC__NO_RANK};
    if (!(flags & HC__F_LEAVES))
        return leaver;
    leaver.rank = (int32_t)hc__read32(r);
    leaver.nwhy = hc__read8(r);
    leaver.why = hc__read_bytes(r, leaver.nwhy);
    if (leaver.rank == HC__NO_RANK || leaver.rank >= set_size || leaver.rank < HC__OF_WORLD(world_size - 1) ||
        leaver.nwhy > HC__WHY)
        r->bad = 1;
    return leaver;
}
