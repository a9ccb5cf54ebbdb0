/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_loops.h - the two loops that every kernel is: over the sources of a reduction, and over a conversion.
 *
 * The steps (how a vec is loaded, combined, finished, stored) are arguments; the loops are inlined with them, so
 * a kernel is straight vector code.
 */

typedef vec load_step(const void *);
typedef vec combine_step(vec, vec);
typedef vec finish_step(vec, vec factor);
typedef void store_step(void *, vec);

/* Four vectors in registers, so that memory and arithmetic overlap and a source costs one turn for all four. */
typedef struct tile {
    vec a, b, c, d;
} tile;

INLINE tile tile_load(const char *from, int64_t step, load_step *load)
{
    return (tile){load(from), load(from + step), load(from + 2 * step), load(from + 3 * step)};
}

INLINE void tile_combine(tile *t, tile x, combine_step *combine)
{
    t->a = combine(t->a, x.a), t->b = combine(t->b, x.b), t->c = combine(t->c, x.c), t->d = combine(t->d, x.d);
}

INLINE void tile_finish(tile *t, vec factor, finish_step *finish)
{
    t->a = finish(t->a, factor), t->b = finish(t->b, factor), t->c = finish(t->c, factor), t->d = finish(t->d, factor);
}

INLINE void tile_store(char *to, int64_t step, tile t, store_step *store)
{
    store(to, t.a), store(to + step, t.b), store(to + 2 * step, t.c), store(to + 3 * step, t.d);
}

/* Fewer bytes than a vec holds: the rest of it is zero. */
INLINE vec load_part(const char *from, size_t bytes, load_step *load)
{
    char part[HC__VECTOR_BYTES] = {0};
    memcpy(part, from, bytes);
    return load(part);
}

INLINE void store_part(char *to, size_t bytes, vec v, store_step *store)
{
    char part[HC__VECTOR_BYTES];
    store(part, v);
    memcpy(to, part, bytes);
}

/* Everything of a tile is read before anything is written: `to` may be one of from[]. A vec comes from and goes
 * to `step` bytes. */
INLINE void reduce_loop(char *to, char *also, const char *const *from, int n_from, int64_t bytes, int64_t step,
                        vec factor, load_step *load, combine_step *combine, finish_step *finish, store_step *store)
{
    int64_t i = 0;
    for (; i + 4 * step <= bytes; i += 4 * step) {
        tile t = tile_load(from[0] + i, step, load);
        for (int q = 1; q < n_from; q++)
            tile_combine(&t, tile_load(from[q] + i, step, load), combine);
        tile_finish(&t, factor, finish);
        tile_store(to + i, step, t, store);
        if (also)
            tile_store(also + i, step, t, store);
    }
    for (; i + step <= bytes; i += step) {
        vec v = load(from[0] + i);
        for (int q = 1; q < n_from; q++)
            v = combine(v, load(from[q] + i));
        v = finish(v, factor);
        store(to + i, v);
        if (also)
            store(also + i, v);
    }
    if (i < bytes) {
        size_t rest = (size_t)(bytes - i);
        vec v = load_part(from[0] + i, rest, load);
        for (int q = 1; q < n_from; q++)
            v = combine(v, load_part(from[q] + i, rest, load));
        v = finish(v, factor);
        store_part(to + i, rest, v, store);
        if (also)
            store_part(also + i, rest, v, store);
    }
}

/* A vec holds `lanes` elements, from from_size * lanes bytes and to to_size * lanes. */
INLINE void convert_loop(char *to, int64_t to_size, const char *from, int64_t from_size, int64_t n, int64_t lanes,
                         vec factor, load_step *load, finish_step *finish, store_step *store)
{
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
        tile t = tile_load(from + i * from_size, lanes * from_size, load);
        tile_finish(&t, factor, finish);
        tile_store(to + i * to_size, lanes * to_size, t, store);
    }
    for (; i + lanes <= n; i += lanes)
        store(to + i * to_size, finish(load(from + i * from_size), factor));
    if (i < n) {
        vec v = load_part(from + i * from_size, (size_t)((n - i) * from_size), load);
        store_part(to + i * to_size, (size_t)((n - i) * to_size), finish(v, factor), store);
    }
}
