/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall_driver.c - an alltoall of bytes over emulated nodes, ranks as threads; prints what each rank sent.
 *
 *     alltoall_driver LAYOUT MESSAGE_BYTES PIECES BYTES
 *
 * Rank r gives rank q BYTES + (r + 2 q + tensor) % 3 rows of one byte of each tensor; BYTES -1: no rows. The alltoall
 * runs twice, and each rank prints the messages and the bytes of the second one.
 */
#include "transport/emulated.h"

#define MOST_PIECES 8

static int64_t message_bytes, bytes;
static int32_t npieces;

static int64_t rows_between(int32_t r, int32_t q, int32_t piece) {
    return bytes < 0 ? 0 : bytes + (r + 2 * q + piece) % 3;
}

static uint8_t value(int32_t r, int32_t q, int32_t piece, int64_t row) {
    return (uint8_t)(31 * r + 7 * q + 3 * piece + row);
}

static void make_piece(int32_t me, int32_t i, hc_piece *piece, int64_t *splits) {
    int64_t at = 0;
    *piece = (hc_piece){.row = 1, .scale = 1.0, .send_rows = splits, .recv_rows = splits + size};
    for (int32_t q = 0; q < size; q++)
        piece->count += splits[q] = rows_between(me, q, i);
    uint8_t *in = malloc((size_t)piece->count + 1);
    for (int32_t q = 0; q < size; q++)
        for (int64_t row = 0; row < splits[q]; row++)
            in[at++] = value(me, q, i, row);
    piece->in = in;
    piece->rows = piece->count;
}

static void check_piece(int32_t me, int32_t i, const hc_piece *piece) {
    const uint8_t *out = piece->out;
    for (int32_t r = 0; r < size; r++) {
        CHECK(piece->recv_rows[r] == rows_between(r, me, i), "rows from %d: %lld", r, (long long)piece->recv_rows[r]);
        for (int64_t row = 0; row < piece->recv_rows[r]; row++)
            CHECK(*out++ == value(r, me, i, row), "tensor %d, row %lld from %d", i, (long long)row, r);
    }
    free((void *)(uintptr_t)piece->in);
    hc_result_free(piece->out);
}

static void run_once(rank_state *s) {
    hc_piece pieces[MOST_PIECES];
    int64_t splits[MOST_PIECES][2 * MAX_RANKS];
    hc_batch batch = {.operation = HC_ALLTOALL,
                      .dtype = HC_UINT8,
                      .wire_dtype = HC_UINT8,
                      .root = -1,
                      .divisor = 1,
                      .npieces = npieces,
                      .pieces = pieces};
    for (int32_t i = 0; i < npieces; i++)
        make_piece(s->rank, i, &pieces[i], splits[i]);
    CHECK(run_batch(s, &batch) == HC_DONE, "alltoall");
    for (int32_t i = 0; i < npieces; i++)
        check_piece(s->rank, i, &pieces[i]);
}

static void run_rank(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, (uint64_t)rank + 1, nets[rank]);
    run_once(&s);
    uint64_t messages = nets[rank]->sent_messages, sent = nets[rank]->sent_bytes;
    run_once(&s);
    printf("%d %llu %llu\n", rank, (unsigned long long)(nets[rank]->sent_messages - messages),
           (unsigned long long)(nets[rank]->sent_bytes - sent));
    drop_rank(&s);
}

int main(int argc, char **argv) {
    CHECK(argc == 5, "usage: see the head of this file");
    make_job(argv[1]);
    message_bytes = atoll(argv[2]);
    npieces = atoi(argv[3]);
    bytes = atoll(argv[4]);
    CHECK(npieces >= 1 && npieces <= MOST_PIECES, "%d tensors", npieces);
    for (int32_t r = 0; r < size; r++)
        nets[r]->message_bytes = message_bytes;
    run_threads(size, run_rank);
    drop_job();
    return 0;
}
