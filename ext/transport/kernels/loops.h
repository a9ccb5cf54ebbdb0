/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h - the two loops that every kernel is: over the sources of a reduction, and over a conversion; and the mean
 * of float64.
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

/* Less than a whole pair in memory: the rest of it is zero. */
INLINE pair load_part(const char *from, size_t bytes, load_step *load) {
    char part[sizeof(pair)] = {0};
    memcpy(part, from, bytes);
    return load(part);
}

INLINE void store_part(char *to, size_t bytes, pair p, store_step *store) {
    char part[sizeof(pair)];
    store(part, p);
    memcpy(to, part, bytes);
}

INLINE pair reduce_pair(const char *const *from, int n_from, int64_t i, finish_by by, load_step *load,
                        combine_step *combine, finish_step *finish) {
    pair p = load(from[0] + i);
    for (int q = 1; q < n_from; q++)
        combine_pair(&p, load(from[q] + i), combine);
    finish_pair(&p, by, finish);
    return p;
}

INLINE pair reduce_part(const char *const *from, int n_from, int64_t i, size_t bytes, finish_by by, load_step *load,
                        combine_step *combine, finish_step *finish) {
    pair p = load_part(from[0] + i, bytes, load);
    for (int q = 1; q < n_from; q++)
        combine_pair(&p, load_part(from[q] + i, bytes, load), combine);
    finish_pair(&p, by, finish);
    return p;
}

/* A pair comes from and goes to `step` bytes. Two pairs are kept in registers, so that memory and arithmetic
 * overlap and a source costs one turn for both; all of a turn is read before anything is written, because
 * `to` may be one of from[]. */
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
        pair p = reduce_pair(from, n_from, i, by, load, combine, finish);
        store(to + i, p);
        i += step;
    }
    if (i < bytes) {
        size_t part = (size_t)(bytes - i);
        pair p = reduce_part(from, n_from, i, part, by, load, combine, finish);
        store_part(to + i, part, p, store);
    }
}

/* A pair holds `lanes` elements, from from_size * lanes bytes and to to_size * lanes. */
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
        pair p = load_part(from + i * from_size, (size_t)((n - i) * from_size), load);
        finish_pair(&p, by, finish);
        store_part(to + i * to_size, (size_t)((n - i) * to_size), p, store);
    }
}

/* ---- the mean of float64 --------------------------------------------------------------------------- */

/* No wider type is in the processor: `rest` has what the additions to `sum` were rounded by. */
typedef struct exact_sum {
    v_f64 sum, rest;
} exact_sum;

/* D. Knuth, "The Art of Computer Programming", vol. 2, 4.2.2: the error of an addition is a number of its type. */
INLINE void add_exactly(exact_sum *s, v_f64 x) {
    v_f64 sum = s->sum + x, added = sum - s->sum;
    s->rest += (s->sum - (sum - added)) + (x - added);
    s->sum = sum;
}

/* (sum + rest) / divisor, of up to 26 bits: the quotient, corrected by the remainder. Both halves of the quotient times
 * the divisor are exact (T. J. Dekker, 1971). An infinity has no remainder, and a zero keeps its sign. */
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

INLINE void mean_at(char *to, const char *const *from, int n_from, int64_t i, size_t bytes, finish_by by) {
    exact_sum s = {doubles_at(from[0] + i, bytes), {0}};
    for (int q = 1; q < n_from; q++)
        add_exactly(&s, doubles_at(from[q] + i, bytes));
    v_f64 mean = (v_f64)divide_exactly(s, (v_f64)by.divisor) * (v_f64)by.factor;
    memcpy(to + i, &mean, bytes);
}

INLINE void mean_loop(char *to, const char *const *from, int n_from, int64_t bytes, finish_by by) {
    int64_t i = 0;
    for (; i + (int64_t)sizeof(vec) <= bytes; i += sizeof(vec))
        mean_at(to, from, n_from, i, sizeof(vec), by);
    if (i < bytes)
        mean_at(to, from, n_from, i, (size_t)(bytes - i), by);
}
