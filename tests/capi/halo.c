/* SPDX-License-Identifier: Apache-2.0
 *
 * halo.c - grids and halo exchanges over the C interface: random grids, arrays and halos, the same on all ranks from a
 * seed. What a halo must have is computed from the position of each cell in the whole field. Then what is wrong.
 *
 *     halo SEED CASES
 */
#include "ranks.h"

#define DIMS 4
#define PLANS 3

static uint64_t state;

static int draw(int below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((state >> 33) % (uint32_t)below);
}

static const struct {
    hpccoll_dtype dtype;
    size_t bytes;
} types[] = {
    {HPCCOLL_UINT8, 1}, {HPCCOLL_INT16, 2}, {HPCCOLL_FLOAT32, 4}, {HPCCOLL_FLOAT64, 8}, {HPCCOLL_COMPLEX128, 16}};

/* A field on a grid, of which this rank has a block with a halo. The cells of index -width and beyond are outside. */
typedef struct field {
    int ngrid, ndim, corners, type, by_column;
    int dims[3], periods[3], width[3], coords[3];
    int64_t begin[DIMS], whole[DIMS], shape[DIMS], strides[DIMS], elements;
    char *array;
    hpccoll_world *cart;
    hpccoll_plan *plan;
} field;

/* The first cell of block `at` of a dimension, whose blocks differ in size. */
static int64_t begin_of(const field *f, int d, int at) {
    int64_t begin = 0, least = f->width[d] > 1 ? f->width[d] : 1;
    for (int i = 0; i < at; i++)
        begin += least + (i * 3 + d) % 3;
    return begin;
}

static void choose(field *f) {
    int last = 0;
    f->ngrid = 1 + draw(3);
    f->ndim = f->ngrid + draw(2);
    f->corners = draw(2);
    f->type = draw(5);
    f->by_column = draw(2);
    memset(f->dims, 0, sizeof f->dims);
    CHECK(hpccoll_dims_create(size, f->ngrid, f->dims) == 0);
    int other = draw(f->ngrid), kept = f->dims[0];
    f->dims[0] = f->dims[other];
    f->dims[other] = kept;
    for (int d = 0; d < f->ngrid; d++) {
        f->periods[d] = draw(2);
        f->width[d] = draw(3);
        last |= f->width[d];
    }
    if (!last)
        f->width[0] = 1;
}

static void make_block(field *f) {
    f->elements = 1;
    for (int d = 0; d < f->ndim; d++) {
        int64_t end = 3;
        f->begin[d] = 0;
        f->whole[d] = 3;
        if (d < f->ngrid) {
            f->begin[d] = begin_of(f, d, f->coords[d]);
            end = begin_of(f, d, f->coords[d] + 1);
            f->whole[d] = begin_of(f, d, f->dims[d]);
        }
        f->shape[d] = end - f->begin[d] + (d < f->ngrid ? 2 * f->width[d] : 0);
        f->elements *= f->shape[d];
    }
    int64_t dense = (int64_t)types[f->type].bytes;
    for (int i = 0; i < f->ndim; i++) {
        int d = f->by_column ? i : f->ndim - 1 - i;
        f->strides[d] = dense;
        dense *= f->shape[d];
    }
    f->array = malloc((size_t)f->elements * types[f->type].bytes);
}

/* Visits the cells; `at`: the index of each, `place`: where it lies. */
static char *cell(const field *f, int64_t number, int64_t at[DIMS]) {
    char *place = f->array;
    for (int d = f->ndim - 1; d >= 0; d--) {
        at[d] = number % f->shape[d];
        number /= f->shape[d];
        place += at[d] * f->strides[d];
    }
    return place;
}

/* The bytes of a cell of the whole field in a step. */
static void value(const field *f, const int64_t position[DIMS], int step, char *bytes) {
    uint64_t mixed = (uint64_t)step * 977;
    for (int d = 0; d < f->ndim; d++)
        mixed = (mixed + (uint64_t)position[d]) * 6364136223846793005ull + 1442695040888963407ull;
    for (size_t i = 0; i < types[f->type].bytes; i++)
        bytes[i] = (char)(mixed >> (8 + 5 * i % 48) & 0x7f);
}

/* Fills the own cells with the field, and the halo with 0x81, which no cell of the field has. */
static void fill(field *f, int step) {
    for (int64_t n = 0; n < f->elements; n++) {
        int64_t at[DIMS], position[DIMS];
        int own = 1;
        char *place = cell(f, n, at);
        for (int d = 0; d < f->ndim; d++) {
            int64_t width = d < f->ngrid ? f->width[d] : 0;
            own &= at[d] >= width && at[d] < f->shape[d] - width;
            position[d] = f->begin[d] + at[d] - width;
        }
        memset(place, 0x81, types[f->type].bytes);
        if (own)
            value(f, position, step, place);
    }
}

/* 1: a rank has the cell, which lies in the halo in `nbeyond` dimensions, and the exchange brings it. */
static int locate(const field *f, const int64_t at[DIMS], int64_t position[DIMS]) {
    int nbeyond = 0;
    for (int d = 0; d < f->ndim; d++) {
        int64_t width = d < f->ngrid ? f->width[d] : 0, n = f->whole[d];
        position[d] = f->begin[d] + at[d] - width;
        nbeyond += at[d] < width || at[d] >= f->shape[d] - width;
        if (position[d] < 0 || position[d] >= n) {
            if (d >= f->ngrid || !f->periods[d])
                return 0;
            position[d] = (position[d] + n) % n;
        }
    }
    return nbeyond < 2 || f->corners;
}

static void compare(const field *f, int step) {
    for (int64_t n = 0; n < f->elements; n++) {
        int64_t at[DIMS], position[DIMS];
        char want[16];
        const char *place = cell(f, n, at);
        memset(want, 0x81, sizeof want);
        if (locate(f, at, position))
            value(f, position, step, want);
        CHECK(!memcmp(place, want, types[f->type].bytes));
    }
}

static void make(field *f, hpccoll_world *world) {
    choose(f);
    CHECK(hpccoll_cart_create(world, f->ngrid, f->dims, f->periods, &f->cart) == 0 && f->cart);
    CHECK(hpccoll_cart_coords(f->cart, rank, f->ngrid, f->coords) == 0);
    make_block(f);
    CHECK(hpccoll_halo_exchange_init(f->array, types[f->type].dtype, f->ndim, f->shape,
                                     f->by_column ? f->strides : NULL, f->width, f->corners, f->cart, &f->plan) == 0);
}

/* Each plan alone, all at once in one list, and without a plan. */
static void run(field fields[PLANS], int step) {
    hpccoll_plan *all[PLANS];
    for (int i = 0; i < PLANS; i++)
        fill(&fields[i], step);
    for (int i = 0; i < PLANS; i++)
        all[i] = fields[i].plan;
    CHECK(hpccoll_startall(PLANS, all) == 0);
    double sum = rank; /* work between start and wait */
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, fields[0].cart) == 0);
    CHECK(sum == size * (size - 1) / 2);
    for (int i = PLANS - 1; i >= 0; i--) {
        int done = (i + step) % 2;
        if (done)
            CHECK(hpccoll_plan_wait(all[i]) == 0);
        while (!done)
            CHECK(hpccoll_plan_test(all[i], &done) == 0);
        compare(&fields[i], step);
    }
    for (int i = 0; i < PLANS; i++) {
        field *f = &fields[i];
        fill(f, step + 1);
        CHECK(hpccoll_halo_exchange(f->array, types[f->type].dtype, f->ndim, f->shape, f->strides, f->width, f->corners,
                                    f->cart) == 0);
        compare(f, step + 1);
    }
}

/* Two plans as one, of which the second is on another World. */
static void run_list(field fields[PLANS], int step) {
    hpccoll_plan *two[2] = {fields[1].plan, fields[2].plan}, *list;
    int done = 0;
    CHECK(hpccoll_plan_list(2, two, &list) == 0 && !two[0] && !two[1]);
    fill(&fields[1], step);
    fill(&fields[2], step);
    CHECK(hpccoll_start(list) == 0);
    while (!done)
        CHECK(hpccoll_plan_test(list, &done) == 0);
    compare(&fields[1], step);
    compare(&fields[2], step);
    CHECK(hpccoll_plan_free(&list) == 0);
}

static void check_case(hpccoll_world *world) {
    field fields[PLANS];
    for (int i = 0; i < PLANS; i++)
        make(&fields[i], world);
    for (int step = 0; step < 3; step++)
        run(fields, 10 * step);
    run_list(fields, 99);
    for (int i = 0; i < PLANS; i++) {
        CHECK(hpccoll_world_free(&fields[i].cart) == 0);
        free(fields[i].array);
    }
    CHECK(hpccoll_plan_free(&fields[0].plan) == 0); /* it has ended with its World */
}

/* A face that is too large for shared memory. */
static void check_large(hpccoll_world *world) {
    enum { ROW = 20000 };
    int dims[] = {0, 1}, width[] = {1, 0};
    int64_t shape[] = {3, ROW};
    double *u = malloc(3 * ROW * sizeof *u);
    hpccoll_world *cart;
    hpccoll_plan *plan;
    CHECK(hpccoll_cart_create(world, 2, dims, (const int[]){1, 0}, &cart) == 0);
    CHECK(hpccoll_halo_exchange_init(u, HPCCOLL_FLOAT64, 2, shape, NULL, width, 1, cart, &plan) == 0);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < ROW; i++)
            u[ROW + i] = rank * 1e6 + i + step;
        CHECK(hpccoll_start(plan) == 0 && hpccoll_plan_wait(plan) == 0);
        for (int i = 0; i < ROW; i++)
            CHECK(u[i] == (rank + size - 1) % size * 1e6 + i + step &&
                  u[2 * ROW + i] == (rank + 1) % size * 1e6 + i + step);
    }
    CHECK(hpccoll_plan_free(&plan) == 0 && hpccoll_world_free(&cart) == 0);
    free(u);
}

/* ---- grids ------------------------------------------------------------------------------------------------------ */

static void check_grids(hpccoll_world *world) {
    int dims[3] = {0, 2, 0}, coords[2], beyond[2] = {size, 0}, extents[3], found, source, dest;
    hpccoll_world *cart, *one;
    CHECK(hpccoll_dims_create(24, 3, dims) == 0 && dims[0] == 4 && dims[1] == 2 && dims[2] == 3);
    dims[0] = 5;
    EXPECT(hpccoll_dims_create(24, 3, dims), HPCCOLL_INVALID, "do not divide 24");
    EXPECT(hpccoll_dims_create(24, 0, dims), HPCCOLL_INVALID, "ndims is none of 1 to 64");
    EXPECT(hpccoll_dims_create(24, 3, NULL), HPCCOLL_INVALID, "or dims is NULL");
    CHECK(hpccoll_cart_create(world, 2, (const int[]){0, 1}, (const int[]){0, 1}, &cart) == 0);
    CHECK(hpccoll_size(cart) == size && hpccoll_rank(cart) == rank);
    CHECK(hpccoll_cart_dims(cart, 3, extents) == 2 && extents[0] == size && extents[1] == 1);
    CHECK(hpccoll_cart_coords(cart, size - 1, 2, coords) == 0 && coords[0] == size - 1 && coords[1] == 0);
    coords[1] = -7;
    CHECK(hpccoll_cart_rank(cart, coords, &found) == 0 && found == size - 1);
    CHECK(hpccoll_cart_rank(cart, beyond, &found) == 0 && found == HPCCOLL_PROC_NULL);
    CHECK(hpccoll_cart_shift(cart, 0, 1, &source, &dest) == 0 && source == (rank ? rank - 1 : HPCCOLL_PROC_NULL));
    CHECK(dest == (rank + 1 < size ? rank + 1 : HPCCOLL_PROC_NULL));
    CHECK(hpccoll_cart_shift(cart, 1, -5, &source, &dest) == 0 && source == rank && dest == rank);
    CHECK(hpccoll_cart_create(world, 1, (const int[]){1}, NULL, &one) == 0 && !one == (rank > 0));
    EXPECT(hpccoll_cart_coords(cart, size, 2, coords), HPCCOLL_INVALID, "cart_coords of rank");
    EXPECT(hpccoll_cart_shift(cart, 2, 1, &source, &dest), HPCCOLL_INVALID, "dimension 2 of 2");
    EXPECT(hpccoll_cart_shift(world, 0, 1, &source, &dest), HPCCOLL_INVALID, "on no grid");
    EXPECT(hpccoll_cart_create(world, 1, (const int[]){size + 1}, NULL, &one), HPCCOLL_INVALID, "no grid of the");
    EXPECT(hpccoll_cart_create(world, 0, NULL, NULL, &one), HPCCOLL_INVALID, "no grid of the");
    if (size > 1)
        EXPECT(hpccoll_cart_create(world, 1, (const int[]){rank ? 1 : 2}, NULL, &one), HPCCOLL_MISMATCH,
               "cart_create: rank 0 says dims (2), periods (), rank 1 says dims (1)");
    CHECK(hpccoll_world_free(&cart) == 0);
}

/* ---- wrong ------------------------------------------------------------------------------------------------------ */

static int plan_of(double *u, int64_t n, int64_t m, int width, hpccoll_world *cart, hpccoll_plan **plan) {
    return hpccoll_halo_exchange_init(u, HPCCOLL_FLOAT64, 2, (const int64_t[]){n, m}, NULL, (const int[]){width, 0}, 1,
                                      cart, plan);
}

static void wrong_together(hpccoll_world *cart, hpccoll_world *world) {
    double u[64] = {0};
    float v[64] = {0};
    hpccoll_plan *plan;
    EXPECT(plan_of(u, 5, 5 + rank, 1, cart, &plan), HPCCOLL_MISMATCH,
           "rank 0 has a halo of shape (1, 5) for rank 1, whose side there has shape (1, 6)");
    EXPECT(plan_of(u, 9, 5, 1 + rank, cart, &plan), HPCCOLL_MISMATCH,
           "rank 0 has (dtype, width, corners) (float64, (1, 0), 1), rank 1 has (float64, (2, 0), 1)");
    EXPECT(plan_of(rank ? NULL : u, 9, 5, 1, cart, &plan), HPCCOLL_MISMATCH, "rank 1 has halo_exchange: array is NULL");
    EXPECT(plan_of(u, rank ? 2 : 3, 5, 1, cart, &plan), HPCCOLL_MISMATCH,
           "rank 1 has an array of shape (2, 5) has no halo of width (1, 0) in 2 dimensions");
    EXPECT(hpccoll_halo_exchange_init(rank ? (void *)v : (void *)u, rank ? HPCCOLL_FLOAT32 : HPCCOLL_FLOAT64, 2,
                                      (const int64_t[]){5, 5}, NULL, (const int[]){1, 0}, 1, cart, &plan),
           HPCCOLL_MISMATCH, "rank 1 has (float32,");
    for (int i = 0; i < 64; i++)
        CHECK(u[i] == 0 && v[i] == 0);
    int status = hpccoll_halo_exchange(u, HPCCOLL_FLOAT64, 2, (const int64_t[]){5, 5 + (rank == 1)}, NULL,
                                       (const int[]){1, 0}, 1, cart);
    CHECK(rank > 2 || (status == HPCCOLL_RESULT_SIZE && strstr(hpccoll_last_error(), "bytes came for a receive of")));
    CHECK(hpccoll_barrier(NULL, world) == 0);
}

/* Strides in elements, of no cell, and beyond what an address can be; those of an extent of 1 mean nothing. */
static void wrong_strides(hpccoll_world *cart) {
    static const int64_t strides[][2] = {{5, 1}, {0, 8}, {40, -4}, {INT64_MAX, 8}, {INT64_MIN, 8}, {INT64_MAX / 4, 8}};
    double u[64] = {0};
    hpccoll_plan *plan;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        EXPECT(hpccoll_halo_exchange_init(u, HPCCOLL_FLOAT64, 2, (const int64_t[]){6, 5}, strides[i],
                                          (const int[]){1, 0}, 1, cart, &plan),
               HPCCOLL_INVALID, "strides are the bytes from an element to the next one");
    CHECK(hpccoll_halo_exchange_init(u, HPCCOLL_FLOAT64, 2, (const int64_t[]){6, 1}, (const int64_t[]){-8, 0},
                                     (const int[]){0, 0}, 1, cart, &plan) == 0);
    CHECK(hpccoll_plan_free(&plan) == 0);
    CHECK(hpccoll_halo_exchange(NULL, HPCCOLL_FLOAT64, 2, (const int64_t[]){0, 5}, NULL, (const int[]){0, 0}, 1,
                                cart) == 0); /* no elements: it may be NULL */
}

static void wrong_alone(hpccoll_world *cart, hpccoll_world *world) {
    double u[64] = {0};
    hpccoll_plan *plan, *other, *copy;
    EXPECT(plan_of(u, 5, 5, 1, world, &plan), HPCCOLL_INVALID, "on no grid");
    EXPECT(plan_of(u, 5, 5, 1, NULL, &plan), HPCCOLL_INVALID, "the World is NULL");
    EXPECT(plan_of(u, 5, 5, 1, cart, NULL), HPCCOLL_INVALID, "place for the plan");
    EXPECT(plan_of(u, 2, 5, 1, cart, &plan), HPCCOLL_INVALID, "has no halo of width (1, 0)");
    EXPECT(plan_of(NULL, 5, 5, 1, cart, &plan), HPCCOLL_INVALID, "is NULL");
    EXPECT(hpccoll_halo_exchange(u, HPCCOLL_FLOAT64, 1, (const int64_t[]){5}, NULL, (const int[]){1, 0}, 1, cart),
           HPCCOLL_INVALID, "in 2 dimensions");
    CHECK(plan_of(u, 5, 5, 1, cart, &plan) == 0 && plan_of(u, 5, 5, 1, cart, &other) == 0);
    CHECK(hpccoll_plan_wait(plan) == 0 && hpccoll_start(plan) == 0);
    EXPECT(hpccoll_start(plan), HPCCOLL_INVALID, "was started and is not over");
    if (size > 1)
        EXPECT(hpccoll_start(other), HPCCOLL_INVALID, "shares memory with a halo exchange, which was started");
    CHECK(hpccoll_plan_wait(plan) == 0 && hpccoll_start(other) == 0 && hpccoll_plan_wait(other) == 0);
    copy = plan;
    CHECK(hpccoll_plan_free(&plan) == 0 && hpccoll_plan_free(&other) == 0);
    EXPECT(hpccoll_start(copy), HPCCOLL_INVALID, "the plan was freed");
}

int main(int argc, char **argv) {
    hpccoll_world *world, *cart;
    MPI_Init(&argc, &argv);
    state = strtoull(argv[1], NULL, 10);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world) == 0);
    check_grids(world);
    for (int i = 0; i < atoi(argv[2]); i++)
        check_case(world);
    check_large(world);
    CHECK(hpccoll_cart_create(world, 2, (const int[]){0, 1}, NULL, &cart) == 0);
    wrong_alone(cart, world);
    wrong_strides(cart);
    if (size > 1)
        wrong_together(cart, world);
    CHECK(hpccoll_world_free(&cart) == 0 && hpccoll_world_free(&world) == 0);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
