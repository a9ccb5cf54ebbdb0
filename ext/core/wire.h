/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h - bytes of control messages: little endian, bounded, versioned.
 *
 * A reader never reads beyond its bytes: missing bytes read as zero and mark the reader bad. The engine reads a whole
 * message before it changes anything.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct hc__reader {
    const uint8_t *at, *end;
    int bad; /* bytes were missing or not allowed; missing bytes read as zero */
} hc__reader;
static inline uint64_t hc__little(uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}
static inline uint8_t *hc__write_bytes(uint8_t *p, const void *from, size_t n) {
    if (n)
        memcpy(p, from, n);
    return p + n;
}
static inline uint8_t *hc__write8(uint8_t *p, uint8_t value) {
    p[0] = value;
    return p + 1;
}
static inline uint8_t *hc__write64(uint8_t *p, uint64_t value) {
    value = hc__little(value);
    return hc__write_bytes(p, &value, 8);
}
static inline uint8_t *hc__write32(uint8_t *p, uint32_t value) {
    uint64_t wide = hc__little(value);
    return hc__write_bytes(p, &wide, 4);
}
static inline const uint8_t *hc__read_bytes(hc__reader *r, size_t n) {
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = 1;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}
static inline uint64_t hc__read_number(hc__reader *r, size_t bytes) {
    uint64_t value = 0;
    const uint8_t *p = hc__read_bytes(r, bytes);
    if (p)
        memcpy(&value, p, bytes);
    return hc__little(value);
}
static inline uint8_t hc__read8(hc__reader *r) {
    return (uint8_t)hc__read_number(r, 1);
}
static inline uint32_t hc__read32(hc__reader *r) {
    return (uint32_t)hc__read_number(r, 4);
}
static inline uint64_t hc__read64(hc__reader *r) {
    return hc__read_number(r, 8);
}

/* A column of slots on the wire: the words that are not zero, in ascending order. */
typedef struct hc__column_view {
    const uint8_t *at;
    uint32_t n;
} hc__column_view;
typedef uint64_t hc__row_bits(const uint64_t *row); /* the column's bits in a row */
uint8_t *hc__write_column(uint8_t *, const uint64_t *rows, uint32_t nrows, uint32_t stride, hc__row_bits *);
hc__column_view hc__read_column(hc__reader *);
uint32_t hc__column_word(hc__column_view, uint32_t i, uint64_t *bits);

enum hc__message {
    HC__M_UP = 1,       /* child to parent: complete items of its subtree */
    HC__M_ENTRY = 2,    /* parent to child: an entry of the set's log */
    HC__M_FAIL = 5,     /* over every edge: the World is broken */
    HC__M_STALL_QUERY,  /* child to parent: a rank waits for this item */
    HC__M_STALL_PROBE,  /* parent to child: which of your ranks lack it? */
    HC__M_STALL_ANSWER, /* child to parent */
    HC__M_STALL_REPORT, /* parent to child: the result, for ranks that wait */
    HC__M_END
};

/* The flags of an up message and of an entry. */
enum hc__flag {
    HC__F_STOP = 1,
    HC__F_PREEMPT = 2,
    HC__F_JOINALL = 4,
    HC__F_LEAVE = 8,
    HC__F_TUNE = 16,
    HC__F_RENUMBER = 32,                     /* of an up message: all ranks of the subtree have raised it */
    HC__F_LEAVES = HC__F_STOP | HC__F_LEAVE, /* these carry the first rank to leave */
    HC__F_OF_UP = HC__F_LEAVES | HC__F_PREEMPT | HC__F_RENUMBER,
    HC__F_OF_ENTRY = HC__F_LEAVES | HC__F_PREEMPT | HC__F_JOINALL | HC__F_TUNE | HC__F_RENUMBER
};
#define HC__NO_RANK (-1) /* no rank has left */
/* The code of a World rank that has left the World, and so this set. HC__OF_WORLD(HC__OF_WORLD(rank)) is the rank. */
#define HC__OF_WORLD(rank) (-2 - (rank))
/* The first rank to leave and what it has done ("raised ..."), which does not end in 0 and points into the bytes that
 * were read. */
#define HC__WHY 192
#define HC__LEAVER_MOST (4 + 1 + HC__WHY)
typedef struct hc__leaver {
    int32_t rank;
    uint8_t nwhy;
    const uint8_t *why;
} hc__leaver;
uint8_t *hc__write_leaver(uint8_t *, uint8_t flags, const hc__leaver *);
hc__leaver hc__read_leaver(hc__reader *, uint8_t flags, int32_t set_size, int32_t world_size);

#define HC__WIRE_VERSION 1
#define HC__HEADER 8
uint8_t *hc__write_header(uint8_t *, int message, uint32_t set);
int hc__read_header(hc__reader *, uint32_t *set); /* the message, or 0 */
