/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h - the loops of the kernels: a reduction, a reduction whose sum may overflow, a conversion, and the mean of
 * float64.
 *
 * The steps (how a vec is loaded, combined, finished, stored) are arguments; the loops are inlined with them, so
 * a kernel is straight vector code.
 */

typedef pair load_step(const void *);
typedef vec combine_step(vec, vec);
typedef vec finish_step(vec, finish_by);
typedef void store_step(void *, pair);

INLINE void combine_pair(pair *p, pair x, combine_step *combine) {
    p->a = combine(p->a, x.a);
    p->b = combine(p->b, x.b);
}

INLINE void finish_pair(pair *p, finish_by by, finish_step *finish) {
    p->a = finish(p->a, by);
    p->b = finish(p->b, by);
}

/* Loads `bytes` of the `step` bytes of a pair; the rest is zero. */
INLINE pair load_some(const char *from, int64_t bytes, int64_t step, load_step *load) {
    if (bytes == step)
        return load(from);
    char part[sizeof(pair)] = {0};
    memcpy(part, from, (size_t)bytes);
    return load(part);
}

INLINE void store_part(char *to, size_t bytes, pair p, store_step *store) {
    char part[sizeof(pair)];
    store(part, p);
    memcpy(to, part, bytes);
}

/* Applies the step `start` to each source. */
INLINE pair reduce_some(const char *const *from, int n_from, int64_t i, int64_t bytes, int64_t step, finish_by early,
                        finish_by by, load_step *load, finish_step *start, combine_step *combine, finish_step *finish) {
    pair p = load_some(from[0] + i, bytes, step, load);
    finish_pair(&p, early, start);
    for (int q = 1; q < n_from; q++) {
        pair x = load_some(from[q] + i, bytes, step, load);
        finish_pair(&x, early, start);
        combine_pair(&p, x, combine);
    }
    finish_pair(&p, by, finish);
    return p;
}

/* A pair has `step` bytes in memory. Two pairs are in registers, so that memory and arithmetic overlap and one pass
 * over the sources serves both. All inputs of an iteration are read before its first store, because `to` may be one of
 * from[]. */
INLINE void reduce_loop(char *to, const char *const *from, int n_from, int64_t bytes, int64_t step, finish_by by,
                        load_step *load, combine_step *combine, finish_step *finish, store_step *store) {
    int64_t i = 0;
    for (; i + 2 * step <= bytes; i += 2 * step) {
        pair p = load(from[0] + i), r = load(from[0] + i + step);
        for (int q = 1; q < n_from; q++) {
            combine_pair(&p, load(from[q] + i), combine);
            combine_pair(&r, load(from[q] + i + step), combine);
        }
        finish_pair(&p, by, finish);
        finish_pair(&r, by, finish);
        store(to + i, p);
        store(to + i + step, r);
    }
    if (i + step <= bytes) {
        pair p = reduce_some(from, n_from, i, step, step, NOTHING, by, load, keep, combine, finish);
        store(to + i, p);
        i += step;
    }
    if (i < bytes) {
        pair p = reduce_some(from, n_from, i, bytes - i, step, NOTHING, by, load, keep, combine, finish);
        store_part(to + i, (size_t)(bytes - i), p, store);
    }
}

/* ---- sums that may overflow ------------------------------------------------------------------------ */

/* A sum may overflow its type although its mean, or its product with a factor, does not. Such a result is computed
 * again: each source is multiplied by `early`, a power of two, before it is added, and the sum is finished with `late`.
 * This is not the first way, because the smallest numbers would lose digits. */
typedef struct second_way {
    finish_by early, late;
} second_way;

/* NaN in lanes that are infinite or NaN, else 0. */
typedef vec endless_step(vec);
INLINE vec endless_f32(vec v) {
    return (vec)((v_f32)v - (v_f32)v);
}
INLINE vec endless_f64(vec v) {
    return (vec)((v_f64)v - (v_f64)v);
}

/* v, with `again` in the lanes that are infinite or NaN. */
typedef vec mend_step(vec v, vec again);
INLINE vec mend_f32(vec v, vec again) {
    return pick((vec)((v_f32)endless_f32(v) != 0), again, v);
}
INLINE vec mend_f64(vec v, vec again) {
    return pick((vec)((v_f64)endless_f64(v) != 0), again, v);
}

/* Each lane is chosen alone, so a result does not depend on its neighbours. */
INLINE pair mend_pair(pair p, const char *const *from, int n_from, int64_t i, int64_t bytes, int64_t step,
                      second_way way, load_step *load, combine_step *add, finish_step *scale, finish_step *finish,
                      mend_step *mend) {
    pair again = reduce_some(from, n_from, i, bytes, step, way.early, way.late, load, scale, add, finish);
    return (pair){mend(p.a, again.a), mend(p.b, again.b)};
}

INLINE void reduce_within_loop(char *to, const char *const *from, int n_from, int64_t bytes, int64_t step, finish_by by,
                               second_way way, load_step *load, combine_step *add, finish_step *scale,
                               finish_step *finish, endless_step *endless, mend_step *mend, store_step *store) {
    int64_t i = 0;
    for (; i + 2 * step <= bytes; i += 2 * step) {
        pair p = reduce_some(from, n_from, i, step, step, NOTHING, by, load, keep, add, finish);
        pair r = reduce_some(from, n_from, i + step, step, step, NOTHING, by, load, keep, add, finish);
        if (has_bits(endless(add(add(p.a, p.b), add(r.a, r.b))))) { /* true if any lane is infinite or NaN */
            p = mend_pair(p, from, n_from, i, step, step, way, load, add, scale, finish, mend);
            r = mend_pair(r, from, n_from, i + step, step, step, way, load, add, scale, finish, mend);
        }
        store(to + i, p);
        store(to + i + step, r);
    }
    for (int64_t n; i < bytes; i += n) {
        n = bytes - i < step ? bytes - i : step;
        pair p = reduce_some(from, n_from, i, n, step, NOTHING, by, load, keep, add, finish);
        p = mend_pair(p, from, n_from, i, n, step, way, load, add, scale, finish, mend);
        store_part(to + i, (size_t)n, p, store);
    }
}

/* ---- conversions ----------------------------------------------------------------------------------- */

/* A pair holds `lanes` elements: from_size * lanes bytes of input, to_size * lanes bytes of output. */
INLINE void convert_loop(char *to, int64_t to_size, const char *from, int64_t from_size, int64_t n, int64_t lanes,
                         finish_by by, load_step *load, finish_step *finish, store_step *store) {
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
        pair p = load(from + i * from_size), r = load(from + (i + lanes) * from_size);
        finish_pair(&p, by, finish);
        finish_pair(&r, by, finish);
        store(to + i * to_size, p);
        store(to + (i + lanes) * to_size, r);
    }
    if (i + lanes <= n) {
        pair p = load(from + i * from_size);
        finish_pair(&p, by, finish);
        store(to + i * to_size, p);
        i += lanes;
    }
    if (i < n) {
        pair p = load_some(from + i * from_size, (n - i) * from_size, lanes * from_size, load);
        finish_pair(&p, by, finish);
        store_part(to + i * to_size, (size_t)((n - i) * to_size), p, store);
    }
}

/* ---- the mean of float64 --------------------------------------------------------------------------- */

/* The processor has no wider type, so `rest` holds the rounding errors of `sum`. */
typedef struct exact_sum {
    v_f64 sum, rest;
} exact_sum;

/* D. Knuth, "The Art of Computer Programming", vol. 2, 4.2.2: the error of an addition is a number of its type. */
INLINE void add_exactly(exact_sum *s, v_f64 x) {
    v_f64 sum = s->sum + x, added = sum - s->sum;
    s->rest += (s->sum - (sum - added)) + (x - added);
    s->sum = sum;
}

/* (sum + rest) / divisor, for a divisor of up to 26 bits: the quotient, corrected by the remainder. Both halves of
 * the quotient times the divisor are exact (T. J. Dekker, 1971). An infinity has no remainder, and a zero keeps its
 * sign. */
INLINE vec divide_exactly(exact_sum s, v_f64 divisor) {
    const v_u64 low = (v_u64){0} + ((UINT64_C(1) << 27) - 1);
    v_f64 quotient = s.sum / divisor, upper = (v_f64)((v_u64)quotient & ~low), lower = quotient - upper;
    v_f64 remainder = (s.sum - upper * divisor) - lower * divisor + s.rest, correction = remainder / divisor;
    vec corrects = (vec)(correction < 0) | (vec)(correction > 0);
    return pick(corrects, (vec)(quotient + correction), (vec)quotient);
}

INLINE v_f64 doubles_at(const char *from, size_t bytes) {
    v_f64 x = {0};
    memcpy(&x, from, bytes);
    return x;
}

INLINE exact_sum sum_exactly(const char *const *from, int n_from, int64_t i, size_t bytes, v_f64 early) {
    exact_sum s = {doubles_at(from[0] + i, bytes) * early, {0}};
    for (int q = 1; q < n_from; q++)
        add_exactly(&s, doubles_at(from[q] + i, bytes) * early);
    return s;
}

/* The factor is applied before the division: the quotient is smaller and may have fewer digits. */
INLINE void mean_at(char *to, const char *const *from, int n_from, int64_t i, size_t bytes, finish_by by,
                    second_way way) {
    v_f64 factor = (v_f64)by.factor, divisor = (v_f64)by.divisor;
    exact_sum s = sum_exactly(from, n_from, i, bytes, (v_f64){0} + 1.0);
    vec mean = divide_exactly((exact_sum){s.sum * factor, s.rest * factor}, divisor);
    if (has_bits(endless_f64(mean))) {
        s = sum_exactly(from, n_from, i, bytes, (v_f64)way.early.factor);
        mean = mend_f64(mean, scale_f64(divide_exactly(s, divisor), way.late));
    }
    memcpy(to + i, &mean, bytes);
}

INLINE void mean_loop(char *to, const char *const *from, int n_from, int64_t bytes, finish_by by, second_way way) {
    int64_t i = 0;
    for (; i + (int64_t)sizeof(vec) <= bytes; i += sizeof(vec))
        mean_at(to, from, n_from, i, sizeof(vec), by, way);
    if (i < bytes)
        mean_at(to, from, n_from, i, (size_t)(bytes - i), by, way);
}
