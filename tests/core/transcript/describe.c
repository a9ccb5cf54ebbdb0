/* SPDX-License-Identifier: Apache-2.0
 *
 * describe.c - control messages in words, for people who read transcripts.
 */
#include "core/entry.h"
#include "cluster.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct line {
    char *at;
    size_t room;
} line;

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->at, l->room, format, args);
    va_end(args);
    size_t step = (size_t)n < l->room ? (size_t)n : l->room - 1;
    l->at += step;
    l->room -= step;
}

static void put_column(line *l, hc__reader *r, const char *what) {
    hc__column_view column = hc__read_column(r);
    for (uint32_t i = 0; i < column.n; i++) {
        uint64_t bits;
        uint32_t word = hc__column_word(column, i, &bits);
        for (; bits; bits &= bits - 1)
            put(l, " %s %d", what, (int)(64 * word) + __builtin_ctzll(bits));
    }
}

/* A signature: its name, and its tensors when there is something to tell. */
static void put_signature(line *l, const uint8_t *bytes, uint32_t n) {
    hc__reader r = {bytes, bytes + n, 0};
    uint32_t length = hc__read32(&r);
    const char *name = (const char *)hc__read_bytes(&r, length);
    uint8_t operation = hc__read8(&r), reduction = hc__read8(&r);
    hc__read_bytes(&r, 2); /* memory, wire */
    uint8_t flags = hc__read8(&r);
    hc__read_bytes(&r, 4 + 8 + 8); /* root, scale factors */
    put(l, " first %.*s(%s", name ? (int)length : 0, name ? name : "", hc_operation_name(operation));
    if (hc_operation_has(operation, HC_OP_REDUCES) && reduction != HC_SUM)
        put(l, " %s", hc_reduction_name(reduction));
    if (flags & HC_REQUEST_GROUP)
        put(l, " group");
    if (flags & HC_REQUEST_LAST)
        put(l, " last");
    if (flags & HC_REQUEST_REFUSED)
        put(l, " refused");
    for (uint32_t t = hc__read32(&r); t > 0 && !r.bad; t--) {
        uint8_t dtype = hc__read8(&r), ndim = hc__read8(&r), type_len = dtype & 0x80 ? hc__read8(&r) : 0;
        const char *type = (const char *)hc__read_bytes(&r, type_len);
        put(l, " %s[", hc_dtype_name(dtype & 0x7f));
        for (int d = 0; d < ndim; d++)
            put(l, d ? ",%lld" : "%lld", (long long)hc__read64(&r));
        put(l, "]%.*s", type ? (int)type_len : 0, type ? type : "");
    }
    put(l, ")");
}

static void put_leaver(line *l, hc__reader *r) {
    put(l, " (%d", (int)(int32_t)hc__read32(r));
    int n = hc__read8(r);
    const uint8_t *why = hc__read_bytes(r, (size_t)n);
    if (n && !r->bad)
        put(l, ": %.*s", n, (const char *)why);
    put(l, ")");
}

static void put_flags(line *l, hc__reader *r) {
    uint8_t flags = hc__read8(r);
    if (flags & HC__F_STOP)
        put(l, " stop");
    if (flags & HC__F_LEAVE)
        put(l, " leave");
    if (flags & HC__F_LEAVES)
        put_leaver(l, r);
    if (flags & HC__F_TUNE) {
        put(l, " tune %llu", (unsigned long long)hc__read64(r));
        put(l, " %llu", (unsigned long long)hc__read64(r));
        put(l, " %llu", (unsigned long long)hc__read64(r));
    }
    if (flags & HC__F_PREEMPT)
        put(l, " preempt");
    if (flags & HC__F_JOINALL)
        put(l, " join-all");
    if (flags & HC__F_RENUMBER)
        put(l, " renumber");
}

static void put_up(line *l, hc__reader *r) {
    put(l, "UP at %llu:", (unsigned long long)hc__read64(r));
    put_flags(l, r);
    uint32_t joined = hc__read32(r);
    joined += hc__read32(r);
    hc__read32(r); /* the last to join */
    if (joined)
        put(l, " joined %u", joined);
    put_column(l, r, "slot");
    put_column(l, r, "by-its-root");
    put_column(l, r, "conflict");
    for (uint32_t n = hc__read32(r); n > 0 && !r->bad; n--) {
        hc__read8(r); /* raised by the root of the operation */
        int signatures = hc__read8(r);
        for (int i = 0; i < signatures && !r->bad; i++) {
            hc__read32(r); /* the lowest rank that has it */
            uint32_t bytes = hc__read32(r);
            const uint8_t *at = hc__read_bytes(r, bytes);
            if (at)
                put_signature(l, at, bytes);
        }
    }
}

static void put_entry(line *l, hc__reader *r) {
    put(l, "ENTRY %llu:", (unsigned long long)hc__read64(r));
    put_flags(l, r);
    hc__read32(r); /* the last to join */
    put_column(l, r, "conflict");
    put_column(l, r, "slot");
    put_column(l, r, "without-root");
    for (uint32_t n = hc__read32(r); n > 0 && !r->bad; n--) {
        int outcome = hc__read8(r);
        uint32_t bytes = hc__read32(r);
        const uint8_t *at = hc__read_bytes(r, bytes);
        if (!at)
            return;
        if (outcome == HC__DISAGREED) {
            hc__reader inner = {at, at + bytes, 0};
            uint32_t length = hc__read32(&inner);
            put(l, " error %.*s", (int)length, (const char *)hc__read_bytes(&inner, length));
        } else {
            put_signature(l, at, bytes);
            if (outcome == HC__ROOTLESS)
                put(l, " without-root");
        }
    }
}

void describe_message(const uint8_t *bytes, size_t n, char *out, size_t room) {
    static const char *names[] = {"?",           "UP",          "ENTRY",        "?",           "?", "FAIL",
                                  "STALL_QUERY", "STALL_PROBE", "STALL_ANSWER", "STALL_REPORT"};
    hc__reader r = {bytes, bytes + n, 0};
    line l = {out, room};
    uint32_t set;
    int message = hc__read_header(&r, &set);
    out[0] = 0;
    if (set)
        put(&l, set < HC_MAX_SETS ? "set %u " : "set %u.%u ", set % HC_MAX_SETS, set / HC_MAX_SETS);
    if (message == HC__M_UP)
        put_up(&l, &r);
    else if (message == HC__M_ENTRY)
        put_entry(&l, &r);
    else
        put(&l, "%s", names[message]);
    put(&l, " (%zu bytes)", n);
}
