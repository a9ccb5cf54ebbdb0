/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h - the two copies of every set of vector code: by ordinary stores, and by streaming ones.
 *
 * What another L3 holds is written at 5 to 14 GB/s by ordinary stores, whoever makes them (memcpy, rep movsb, vectors),
 * because each line is fetched first, and at 29 to 35 by streaming stores, which do not fetch it. In one L3 streaming
 * costs the reader half of its rate. And `rep movsb`, which is what a C library's memcpy is from 2 KiB on, reads what
 * another L3 has written at 11 GB/s, where a loop over vectors reaches 20 to 26 (measured on Zen 4); on Zen 3 it loses
 * up to 20 times with a misaligned destination.
 *
 * Both take any size and alignment; the regions are apart. Stores are aligned: the first and the last bytes are written
 * by vectors that overlap their neighbours.
 */

#define TURN (4 * (int64_t)sizeof(vec)) /* bytes that are loaded before the first of them is stored */

/* Whole vectors from the first aligned one on; the last one is left. Returns where that begins. */
INLINE int64_t copy_aligned(char *to, const char *from, int64_t n, void (*store)(char *, vec)) {
    int64_t i = (int64_t)(sizeof(vec) - (uintptr_t)to % sizeof(vec));
    for (; i + TURN <= n; i += TURN) {
        vec a = load_vec(from + i), b = load_vec(from + i + sizeof(vec)), c = load_vec(from + i + 2 * sizeof(vec)),
            d = load_vec(from + i + 3 * sizeof(vec));
        store(to + i, a);
        store(to + i + sizeof(vec), b);
        store(to + i + 2 * sizeof(vec), c);
        store(to + i + 3 * sizeof(vec), d);
    }
    for (; i + (int64_t)sizeof(vec) <= n; i += (int64_t)sizeof(vec))
        store(to + i, load_vec(from + i));
    return i;
}

INLINE void copy_by(char *to, const char *from, int64_t n, void (*store)(char *, vec)) {
    if (n < TURN) { /* memcpy is good at few bytes */
        if (n > 0)
            memcpy(to, from, (size_t)n);
        return;
    }
    store_vec(to, load_vec(from));
    if (copy_aligned(to, from, n, store) < n)
        store_vec(to + n - sizeof(vec), load_vec(from + n - sizeof(vec)));
}

static void copy_plain(void *to, const void *from, int64_t n) {
    copy_by(to, from, n, store_vec);
}

/* Streaming stores come in any order: the fence puts them before what the caller stores next, the flag above all. */
static void copy_streaming(void *to, const void *from, int64_t n) {
    copy_by(to, from, n, stream_vec);
    stream_fence();
}
