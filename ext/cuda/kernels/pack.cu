/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.cu - gathers many tensors into the fusion buffer, with cast and scale, and spreads it again: one launch each.
 *
 * The work is cut into chunks of equal size whatever the tensors' sizes, and every block takes an equal run of them:
 * one search for the first, the next ones follow. (The common choice, a fixed number of blocks per tensor, leaves most
 * of the device idle while one large tensor runs.) Where both sides are aligned a thread moves vectors of 16 bytes of
 * the wider type, and loads several before it stores any; else it moves elements, neighbouring threads neighbouring
 * elements.
 *
 * ptx.py makes hpccoll/_kernels/pack.ptx from this file; a test compares them.
 *     hc_pack_FROM_TO     f16 bf16 f32 f64: to = scale * from, in float32 (in float64 if either type is
 *                         float64), rounded once; if the width stays the same, divided by `divisor` before
 *     hc_pack_copyN       elements of N bytes as they are
 */
#include "cuda/kernels/pack_job.h"
#include "cuda/kernels/values.h"

/* ---- the table ---------------------------------------------------------------------------------------- */

INLINE unsigned first_chunk(const hc_pack_job *job, unsigned i) {
    if (job->table)
        return (unsigned)(load8(job->table + i * sizeof(hc_pack_entry) + 16) >> 32); /* place, first */
    return job->entry[i].first;
}

INLINE hc_pack_entry entry_of(const hc_pack_job *job, unsigned i) {
    if (job->table) {
        unsigned long long at = job->table + i * sizeof(hc_pack_entry), both = load8(at + 16);
        hc_pack_entry entry;
        entry.tensor = load8(at);
        entry.count = load8(at + 8);
        entry.place = (unsigned)both;
        entry.first = (unsigned)(both >> 32);
        return entry;
    }
    return job->entry[i];
}

/* The last entry that begins at `chunk` or before. */
INLINE unsigned entry_with(const hc_pack_job *job, unsigned chunk) {
    unsigned low = 0, high = job->entries;
    ROLLED while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (first_chunk(job, middle) <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The first chunk of a block; the blocks' runs of chunks differ in length by at most one. */
INLINE unsigned share_of(unsigned chunks, unsigned block, unsigned blocks) {
    unsigned more = chunks % blocks;
    return chunks / blocks * block + (block < more ? block : more);
}

/* ---- factor and divisor ------------------------------------------------------------------------------ */

typedef struct {
    float factor, divisor;
} by_float;
typedef struct {
    double factor, divisor;
} by_double;

/* Only kernels that keep the width divide: a division takes registers, and these kernels never narrow a mean. */
INLINE float scaled_float(float x, by_float by, int divides) {
    return !divides || by.divisor == 1 ? by.factor * x : by.factor * x / by.divisor;
}
INLINE double scaled_double(double x, by_double by, int divides) {
    return !divides || by.divisor == 1 ? by.factor * x : by.factor * x / by.divisor;
}

/* ---- the kernels: pack_loop.h once for each pair of types ------------------------------------------------ */

#define FROM f16
#define REAL float
#include "cuda/kernels/pack_to.h"
#define FROM bf16
#define REAL float
#include "cuda/kernels/pack_to.h"
#define FROM f32
#define REAL float
#include "cuda/kernels/pack_to.h"
#define FROM f64
#define REAL double
#include "cuda/kernels/pack_to.h"

#define COPY copy1
#include "cuda/kernels/pack_loop.h"
#define COPY copy2
#include "cuda/kernels/pack_loop.h"
#define COPY copy4
#include "cuda/kernels/pack_loop.h"
#define COPY copy8
#include "cuda/kernels/pack_loop.h"
