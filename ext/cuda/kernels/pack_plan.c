/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_plan.c - chooses the kernel for a pair of types, and divides the work into chunks.
 */
#include "cuda/kernels/pack.h"

#define FROM_TO(from) "hc_pack_" from "_f16", "hc_pack_" from "_bf16", "hc_pack_" from "_f32", "hc_pack_" from "_f64"
static const char *const names[HC_PACK_KERNELS] = {
    FROM_TO("f16"),  FROM_TO("bf16"), FROM_TO("f32"),  FROM_TO("f64"),
    "hc_pack_copy1", "hc_pack_copy2", "hc_pack_copy4", "hc_pack_copy8",
};
enum { FLOATS = 4, FIRST_COPY = FLOATS * FLOATS };

static const size_t size_of[] = {
#define X(name, bytes, text) bytes,
    HC_DTYPES(X)
#undef X
};

const char *hc_pack_kernel_name(int kernel) {
    return names[kernel];
}

/* The position of a float type among the kernels, or -1. */
static int float_of(int dtype) {
    return dtype >= HC_FLOAT16 && dtype <= HC_FLOAT64 ? dtype - HC_FLOAT16 : -1;
}

/* A complex number counts as two floats, so a copy moves parts of 8 bytes at most. */
static int part_of(int dtype, int *parts) {
    *parts = dtype == HC_COMPLEX64 || dtype == HC_COMPLEX128 ? 2 : 1;
    return dtype == HC_COMPLEX64 ? HC_FLOAT32 : dtype == HC_COMPLEX128 ? HC_FLOAT64 : dtype;
}

int hc_pack_choose(int tensor, int buffer, double scale, double divisor, int unpack, hc_pack_kind *kind) {
    int more;
    int t = part_of(tensor, &kind->parts), b = part_of(buffer, &more);
    kind->part_bytes = size_of[b];
    if (t == b && kind->parts == more && scale == 1.0 && divisor == 1.0) {
        int power = size_of[t] == 1 ? 0 : size_of[t] == 2 ? 1 : size_of[t] == 4 ? 2 : 3;
        kind->kernel = FIRST_COPY + power;
        return HC_OK;
    }
    int divides = divisor != 1.0;
    if (kind->parts != more || float_of(t) < 0 || float_of(b) < 0 || (divides && size_of[t] != size_of[b]))
        return HC_UNSUPPORTED;
    kind->kernel = unpack ? float_of(b) * FLOATS + float_of(t) : float_of(t) * FLOATS + float_of(b);
    return HC_OK;
}

int hc_pack_plan(const hc_pack_tensor *tensors, int n, const hc_pack_kind *kind, hc_pack_entry *entries,
                 unsigned *chunks, int64_t *bytes) {
    const int64_t most = (int64_t)UINT32_MAX * HC_PACK_UNIT;
    int used = 0;
    int64_t place = 0;
    *chunks = 0;
    for (int i = 0; i < n; i++) {
        int64_t parts = tensors[i].count, size = (int64_t)kind->part_bytes;
        if (parts < 0 || parts > most / size / kind->parts)
            return HC_INVALID;
        if (parts == 0)
            continue;
        parts *= kind->parts;
        int64_t units = (parts * size + HC_PACK_UNIT - 1) / HC_PACK_UNIT;
        if (units > UINT32_MAX - place)
            return HC_INVALID;
        if (tensors[i].address) {
            entries[used++] = (hc_pack_entry){.tensor = tensors[i].address,
                                              .count = (unsigned long long)parts,
                                              .place = (unsigned)place,
                                              .first = *chunks};
            *chunks += (unsigned)((parts + HC_PACK_CHUNK - 1) / HC_PACK_CHUNK);
        }
        place += units;
    }
    *bytes = place * HC_PACK_UNIT;
    return used;
}
