/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h - the two loops that every kernel is: over the sources of a reduction, and over a conversion.
 *
 * The steps (how a vec is loaded, combined, finished, stored) are arguments; the loops are inlined with them, so
 * a kernel is straight vector code.
 */

typedef pair load_step(const void *);
typedef vec combine_step(vec, vec);
typedef vec finish_step(vec, vec factor);
typedef void store_step(void *, pair);

INLINE void combine_pair(pair *p, pair x, combine_step *combine) {
    p->a = combine(p->a, x.a);
    p->b = combine(p->b, x.b);
}

INLINE void finish_pair(pair *p, vec factor, finish_step *finish) {
    p->a = finish(p->a, factor);
    p->b = finish(p->b, factor);
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

INLINE pair reduce_pair(const char *const *from, int n_from, int64_t i, vec factor, load_step *load,
                        combine_step *combine, finish_step *finish) {
    pair p = load(from[0] + i);
    for (int q = 1; q < n_from; q++)
        combine_pair(&p, load(from[q] + i), combine);
    finish_pair(&p, factor, finish);
    return p;
}

INLINE pair reduce_part(const char *const *from, int n_from, int64_t i, size_t bytes, vec factor, load_step *load,
                        combine_step *combine, finish_step *finish) {
    pair p = load_part(from[0] + i, bytes, load);
    for (int q = 1; q < n_from; q++)
        combine_pair(&p, load_part(from[q] + i, bytes, load), combine);
    finish_pair(&p, factor, finish);
    return p;
}

/* A pair comes from and goes to `step` bytes. Two pairs are kept in registers, so that memory and arithmetic
 * overlap and a source costs one turn for both; all of a turn is read before anything is written, because
 * `to` may be one of from[]. */
INLINE void reduce_loop(char *to, const char *const *from, int n_from, int64_t bytes, int64_t step, vec factor,
                        load_step *load, combine_step *combine, finish_step *finish, store_step *store) {
    int64_t i = 0;
    for (; i + 2 * step <= bytes; i += 2 * step) {
        pair p = load(from[0] + i), r = load(from[0] + i + step);
        for (int q = 1; q < n_from; q++) {
            combine_pair(&p, load(from[q] + i), combine);
            combine_pair(&r, load(from[q] + i + step), combine);
        }
        finish_pair(&p, factor, finish);
        finish_pair(&r, factor, finish);
        store(to + i, p);
        store(to + i + step, r);
    }
    if (i + step <= bytes) {
        pair p = reduce_pair(from, n_from, i, factor, load, combine, finish);
        store(to + i, p);
        i += step;
    }
    if (i < bytes) {
        size_t part = (size_t)(bytes - i);
        pair p = reduce_part(from, n_from, i, part, factor, load, combine, finish);
        store_part(to + i, part, p, store);
    }
}

/* A pair holds `lanes` elements, from from_size * lanes bytes and to to_size * lanes. */
INLINE void convert_loop(char *to, int64_t to_size, const char *from, int64_t from_size, int64_t n, int64_t lanes,
                         vec factor, load_step *load, finish_step *finish, store_step *store) {
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
        pair p = load(from + i * from_size), r = load(from + (i + lanes) * from_size);
        finish_pair(&p, factor, finish);
        finish_pair(&r, factor, finish);
        store(to + i * to_size, p);
        store(to + (i + lanes) * to_size, r);
    }
    if (i + lanes <= n) {
        pair p = load(from + i * from_size);
        finish_pair(&p, factor, finish);
        store(to + i * to_size, p);
        i += lanes;
    }
    if (i < n) {
        pair p = load_part(from + i * from_size, (size_t)((n - i) * from_size), load);
        finish_pair(&p, factor, finish);
        store_part(to + i * to_size, (size_t)((n - i) * to_size), p, store);
    }
}
