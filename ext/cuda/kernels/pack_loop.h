/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_loop.h - one kernel of pack.cu: converts FROM to TO in REAL arithmetic, or copies elements of type COPY.
 */
#ifdef COPY
#define IN COPY
#define OUT COPY
#define BY by_float
#define NAME(part) JOIN(part, COPY)
#define CAST(x) (x)
#else
#define IN FROM
#define OUT TO
#define BY JOIN(by_, REAL)
#define NAME(part) JOIN(JOIN(JOIN(part, FROM), _), TO)
#define CAST(x) JOIN(JOIN(TO, _of_), REAL)(JOIN(scaled_, REAL)(JOIN(from_, FROM)(x), by, sizeof(IN) == sizeof(OUT)))
#endif
/* Elements of a vector: 16 bytes of the wider type, so that neighbouring threads access neighbouring bytes on both
 * sides. With 16 bytes of the narrower type a widening kernel had half of a copy's rate on an H200. */
#define LANES ((int)(HC_PACK_UNIT / (sizeof(IN) > sizeof(OUT) ? sizeof(IN) : sizeof(OUT))))
#define BYTES_IN (LANES * (int)sizeof(IN))
#define BYTES_OUT (LANES * (int)sizeof(OUT))
#define AT_ONCE (BYTES_IN < 8 ? 8 : 64 / BYTES_IN) /* vectors that a thread loads before it stores any */

typedef union {
    unsigned word[BYTES_IN / 4];
    IN x[LANES];
} NAME(in_);
typedef union {
    unsigned word[BYTES_OUT / 4];
    OUT x[LANES];
} NAME(out_);

INLINE void NAME(store_)(unsigned long long to, const NAME(in_) * from, BY by) {
    NAME(out_) made;
    (void)by;
    UNROLL for (int i = 0; i < LANES; i++) made.x[i] = CAST(from->x[i]);
    store_words(to, made.word, BYTES_OUT);
}

INLINE void NAME(vectors_)(unsigned long long to, unsigned long long from, unsigned n, BY by) {
    ROLLED for (unsigned v = threadIdx.x; v < n; v += HC_PACK_THREADS * AT_ONCE) {
        NAME(in_) held[AT_ONCE];
        UNROLL for (int k = 0; k < AT_ONCE; k++) {
            unsigned at = v + k * HC_PACK_THREADS;
            if (at < n)
                load_words(held[k].word, from + (unsigned long long)at * sizeof held[k], BYTES_IN);
        }
        UNROLL for (int k = 0; k < AT_ONCE; k++) {
            unsigned at = v + k * HC_PACK_THREADS;
            if (at < n)
                NAME(store_)(to + (unsigned long long)at * sizeof(NAME(out_)), &held[k], by);
        }
    }
}

INLINE void NAME(chunk_)(unsigned long long to, unsigned long long from, unsigned count, BY by) {
    unsigned n = (to | from) % HC_PACK_UNIT == 0 ? count / LANES : 0;
    (void)by;
    NAME(vectors_)(to, from, n, by);
    ROLLED for (unsigned i = n * LANES + threadIdx.x; i < count;
                i += HC_PACK_THREADS)((OUT *)to)[i] = CAST(((const IN *)from)[i]);
}

KERNEL(HC_PACK_THREADS) NAME(hc_pack_)(const hc_pack_job job) {
    unsigned chunk = share_of(job.chunks, blockIdx.x, gridDim.x);
    unsigned end = share_of(job.chunks, blockIdx.x + 1, gridDim.x);
    if (chunk >= end)
        return;
    BY by = {job.scale, job.divisor};
    unsigned i = entry_with(&job, chunk);
    hc_pack_entry entry = entry_of(&job, i);
    ROLLED for (; chunk < end; chunk++) {
        unsigned long long at = (unsigned long long)(chunk - entry.first) * HC_PACK_CHUNK;
        if (at >= entry.count) {
            entry = entry_of(&job, ++i);
            at = 0;
        }
        unsigned long long left = entry.count - at;
        unsigned long long buffer = job.buffer + (unsigned long long)entry.place * HC_PACK_UNIT;
        unsigned long long from = (job.unpack ? buffer : entry.tensor) + at * sizeof(IN);
        unsigned long long to = (job.unpack ? entry.tensor : buffer) + at * sizeof(OUT);
        NAME(chunk_)(to, from, left < HC_PACK_CHUNK ? (unsigned)left : HC_PACK_CHUNK, by);
    }
}

#undef IN
#undef OUT
#undef BY
#undef NAME
#undef CAST
#undef LANES
#undef BYTES_IN
#undef BYTES_OUT
#undef AT_ONCE
#undef TO
#undef COPY
