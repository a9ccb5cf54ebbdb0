/* SPDX-License-Identifier: Apache-2.0
 *
 * device_bytes.c - what an operation on device memory sends between nodes; ranks as threads, the fakes.
 *
 *     device_bytes LAYOUT OPERATION COUNT     COUNT rows of one float32; prints each rank's bytes
 *
 * The second of two batches is counted: the first opens communicators.
 */
#define ON_DEVICE 1
#include "transport/emulated.h"

static int operation;
static int64_t count;

static void run(int32_t rank) {
    rank_state s;
    hc_piece piece;
    int64_t splits[2 * MAX_RANKS];
    float *data = calloc((size_t)count, sizeof *data);
    uint64_t before = 0;
    make_rank(&s, rank, 0, nets[rank]);
    for (int i = 0; i < 2; i++) {
        before = nets[rank]->sent_bytes;
        hc_batch batch = rows_of(operation, &piece, data, count, splits);
        if (operation == HC_BROADCAST && rank != batch.root)
            piece.in = NULL;
        CHECK(run_batch(&s, &batch) == HC_DONE, "%s", s.data->text ? s.data->text : "");
        if (piece.out != data)
            hc_result_free(piece.out);
    }
    printf("%d %llu\n", rank, (unsigned long long)(nets[rank]->sent_bytes - before));
    drop_rank(&s);
    free(data);
}

int main(int argc, char **argv) {
    CHECK(argc == 4, "usage: see the head of this file");
    make_job(argv[1]);
    operation = operation_named(argv[2]);
    count = atoll(argv[3]);
    run_threads(size, run);
    drop_job();
    return 0;
}
