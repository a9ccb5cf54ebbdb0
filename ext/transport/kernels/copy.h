/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h - the two copies of every set of vector code: by ordinary and by streaming stores.
 *
 * Measured on Zen 4. Ordinary stores of any kind (memcpy, rep movsb, vectors) to lines in another L3 reach 5 to 14
 * GB/s, because each line is fetched first; streaming stores do not fetch it and reach 29 to 35. Inside one L3
 * streaming halves the reader's rate. `rep movsb`, which a C library's memcpy uses from 2 KiB, reads lines of another
 * L3 at 11 GB/s; a loop over vectors reaches 20 to 26. On Zen 3 `rep movsb` is up to 20 times slower with a misaligned
 * destination. On Intel's processors it is the fastest ordinary copy of many bytes, so it is used there
 * (host_arithmetic.c).
 *
 * Both take any size and alignment; the regions must not overlap. Stores are aligned: the first and last vectors
 * overlap their neighbours.
 */

#define TURN (4 * (int64_t)sizeof(vec)) /* bytes loaded before the first store */

/* Copies whole vectors from the first aligned one, without the last. Returns the offset of the last. */
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

/* Streaming stores are not ordered: the fence orders them before the caller's next stores, above all the flag. */
static void copy_streaming(void *to, const void *from, int64_t n) {
    copy_by(to, from, n, stream_vec);
    stream_fence();
}
