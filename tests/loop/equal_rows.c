/* SPDX-License-Identifier: Apache-2.0
 *
 * equal_rows.c - an allgather of two ranks that count it: who owns the memory of its results, however it ends.
 *
 * usage: equal_rows ends|breaks|differs     the batch runs; the World breaks while it runs; the ranks give other rows
 */
#include "worlds.h"

#include "loop/counted.h"
#include "loop/failure.h"
#include "loop/progress.h"

#define ROWS 100000
#define TURNS 1000

static hc_handle *gather_of(const int64_t *values, int64_t rows) {
    hc_handle *handle = hc_handle_new(HC_EV_ENQUEUE, 0, 1, 1, "gather", 6, 4);
    handle->request.operation = HC_ALLGATHER;
    handle->dims[0] = rows;
    handle->tensors[0] = (hc_tensor){.dtype = HC_INT64, .ndim = 1, .dims = handle->dims};
    handle->pieces[0] = (hc_piece){.in = values, .count = rows, .rows = rows, .row = 1, .recv_rows = handle->rows + 2};
    return handle;
}

/* What a count of both ranks does. */
static void count(hc_handle *const handles[2]) {
    hc__extremes said[2], all;
    for (int r = 0; r < 2; r++) {
        hc__equal_say(handles[r], r, 2, said[r]);
        CHECK(handles[r]->pieces[0].out_owned);
    }
    for (int i = 0; i < 2; i++)
        all[i] = said[0][i] < said[1][i] ? said[0][i] : said[1][i];
    for (int r = 0; r < 2; r++) {
        hc__equal_settle(handles[r], r, all);
        handles[r]->kind = HC_HANDLE_COUNTED;
    }
}

static void run(const worlds *w, hc_handle *const handles[2]) {
    for (int r = 0; r < 2; r++)
        hc_loop_submit(w->loops[r], handles[r], 0);
    while (!hc_handle_done(handles[0]) || !hc_handle_done(handles[1]))
        for (int r = 0; r < 2; r++)
            hc__progress_once(w->loops[r]);
    for (int r = 0; r < 2; r++) {
        const int64_t *result = handles[r]->pieces[0].out;
        CHECK(handles[r]->status == HC_OK && handles[r]->pieces[0].out_rows == 2 * ROWS);
        for (int64_t i = 0; i < 2 * ROWS; i++)
            CHECK(result[i] == i);
    }
}

/* Rank 1 does not come. */
static void run_in_vain(const worlds *w, hc_handle *handle) {
    hc_loop_submit(w->loops[0], handle, 0);
    for (int i = 0; i < TURNS; i++)
        hc__progress_once(w->loops[0]);
    CHECK(!hc_handle_done(handle) && !handle->pieces[0].out_owned); /* the batch has the result */
    hc__loop_fail(w->loops[0], HC_TRANSPORT, -1, "planted");
    hc__progress_once(w->loops[0]);
    CHECK(hc_handle_done(handle) && handle->status < 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int differs = !strcmp(argv[1], "differs");
    worlds w = {.knobs = {.engine = {.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096},
                          .wire = HC_WIRE_SAME}};
    int64_t *values = malloc((2 * ROWS + 1) * sizeof *values);
    for (int64_t i = 0; i <= 2 * ROWS; i++)
        values[i] = i;
    worlds_make_driven(&w, 2, 1);
    hc_handle *const handles[2] = {gather_of(values, ROWS), gather_of(values + ROWS, ROWS + differs)};
    count(handles);
    for (int r = 0; r < 2; r++) {
        int is_equal = (handles[r]->request.flags & HC_REQUEST_EQUAL_ROWS) != 0;
        CHECK(is_equal == !differs && handles[r]->pieces[0].out_owned == !differs);
    }
    if (!strcmp(argv[1], "ends"))
        run(&w, handles);
    if (!strcmp(argv[1], "breaks"))
        run_in_vain(&w, handles[0]);
    for (int r = 0; r < 2; r++)
        hc_handle_release(handles[r]);
    worlds_end_driven(&w);
    free(values);
    puts("fine");
    return 0;
}
