/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcasts.c - broadcasts between nodes over the local net, all members in one thread, against the root's data.
 *
 *     broadcasts          1 to 40 members, all roots, lengths, types, splits into stages, and the tree
 *     broadcasts choices  the form that the model chooses, against formulae of the textbooks
 */
#include "transport/net/members.h"

typedef struct test_case {
    int32_t n, root;
    const hc__stages *stages; /* NULL: the tree */
    int64_t count;
    int dtype;
} test_case;

/* Two broadcasts at once, one after the other in each channel: each has other data, and the members do not wait. */
static void run_case(const test_case *c) {
    size_t bytes = (size_t)c->count * hc_dtype_size(c->dtype);
    char *data[MEMBERS][CHANNELS], *expected = malloc(bytes + 1);
    uint64_t seed = (uint64_t)(c->n * 10000 + c->root * 100 + c->count);
    for (int32_t q = 0; q < c->n; q++) {
        sent_bytes[q] = received_bytes[q] = sent[q] = received[q] = 0;
        for (int i = 0; i < CHANNELS; i++) {
            data[q][i] = malloc(bytes + 1);
            memset(data[q][i], 0x5a, bytes + 1);
            if (q == c->root)
                fill_random(data[q][i], c->dtype, c->count, seed + (uint64_t)i);
            hc__channel *channel = &channels[q][i];
            int status = hc__net_broadcast_start(channel, data[q][i], c->count, c->dtype,
                                                 (hc__way){c->root, 1, c->stages});
            CHECK(status == HC_OK, "start: %s", hc_status_name(status));
        }
    }
    drive(c->n, seed);
    for (int i = 0; i < CHANNELS; i++) {
        fill_random(expected, c->dtype, c->count, seed + (uint64_t)i);
        for (int32_t q = 0; q < c->n; q++) {
            CHECK(!memcmp(data[q][i], expected, bytes), "%d members, root %d, %lld elements: member %d has other bytes",
                  c->n, c->root, (long long)c->count, q);
            CHECK(data[q][i][bytes] == 0x5a, "a byte behind the end was written");
            free(data[q][i]);
        }
    }
    for (int32_t q = 0; q < c->n; q++)
        CHECK(received_bytes[q] == (q == c->root || c->n == 1 ? 0 : CHANNELS * (int64_t)bytes),
              "%d members, root %d: member %d received %lld bytes", c->n, c->root, q, (long long)received_bytes[q]);
    free(expected);
}

/* Messages that a member receives. It gets its first part in the last stage in which it differs from the root, and then
 * the other parts of its group, in this stage and in all nearer ones; without a position, a part of each of a group. */
static int messages(const hc__stages *s, int32_t root, int32_t member) {
    int32_t mine[HC__STAGES_MOST], its[HC__STAGES_MOST];
    if (!digits_of(s, member, mine))
        return member == root ? 0 : s->radix[0];
    int root_has_none = !digits_of(s, root, its), last = -1, n = 0;
    if (root_has_none)
        (void)digits_of(s, root - s->radix[0], its); /* the first of its group */
    for (int32_t k = 0; k < s->depth; k++)
        last = mine[k] != its[k] || (k == 0 && root_has_none) ? k : last;
    for (int32_t k = 0; k <= last; k++)
        n += s->radix[k] - 1;
    return n + (last >= 0);
}

/* Enough elements that no part is empty. Without members beside the positions, the root sends 2 (n - 1)/n of the data,
 * and nobody more. */
static void check_messages(const test_case *c) {
    const hc__stages *s = c->stages;
    int64_t bytes = c->count * (int64_t)hc_dtype_size(c->dtype);
    for (int32_t q = 0; q < c->n; q++) {
        int expected = CHANNELS * messages(s, c->root, q);
        CHECK(received[q] == expected, "%d members, root %d: member %d received %d messages, not %d", c->n, c->root, q,
              received[q], expected);
        CHECK(s->extra || sent_bytes[q] <= CHANNELS * 2 * bytes * (c->n - 1) / c->n, "member %d sent %lld bytes", q,
              (long long)sent_bytes[q]);
    }
    CHECK(s->extra || sent_bytes[c->root] == CHANNELS * 2 * bytes * (c->n - 1) / c->n, "the root of %d sent %lld bytes",
          c->n, (long long)sent_bytes[c->root]);
}

/* Runs all cases of 1 to `most` members. */
static int run_all(int32_t most) {
    static const int64_t counts[] = {1, 2, 7, 39, 101, 1000, 4097};
    uint64_t random = 1;
    int cases = 0;
    for (int32_t n = 1; n <= most; n++) {
        make_nets(n);
        for (int32_t root = 0; root < n; root++)
            for (int32_t i = -1; i < splits.count; i++) {
                test_case c = {n, root, i < 0 ? NULL : &splits.stages[i], 0, 0};
                for (int k = 0; k < 2; k++, cases++) {
                    c.count = counts[cases % (int)(sizeof counts / sizeof *counts)];
                    c.dtype = next_random(&random) % 2 ? HC_INT32 : HC_UINT8;
                    run_case(&c);
                }
                c.count = 5 * 64 * n;
                run_case(&c);
                if (c.stages && n > 1)
                    check_messages(&c);
            }
        drop_nets(n);
    }
    return cases;
}

/* ---- choices ------------------------------------------------------------------------------------------------- */

/* Where the formulae say that one form takes half of the other's time, it must be chosen; but up to 8 members never
 * scatter. (Ours allow for contention, and stages of more than two members take fewer messages in succession.) */
static void check_choice(const hc__net_model *m, int32_t n, int64_t bytes) {
    hc__splits of;
    hc__splits_of(n, 0, &of);
    const hc__stages *stages = hc__broadcast_stages(m, &of, bytes, 512 << 10);
    double best = best_tree(m, n, (double)bytes), ours = scattered(m, n, (double)bytes);
    CHECK(stages || ours > 0.5 * best, "%d members, %lld bytes: down the tree, in %g us; scattered %g us", n,
          (long long)bytes, 1e6 * best, 1e6 * ours);
    CHECK(!stages || (n > 8 && best > 0.65 * ours), "%d members, %lld bytes: scattered, in %g us; down the tree %g us",
          n, (long long)bytes, 1e6 * ours, 1e6 * best);
    printf("%d %lld %s %.1f %.1f\n", n, (long long)bytes, stages ? "scattered" : "tree", 1e6 * best, 1e6 * ours);
}

static void check_choices(void) {
    const hc__net_model models[] = {{2e-5, 1e-9, 0}, {1.4e-6, 1.0 / 11.5e9, 0}, {1e-4, 8e-8, 0}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int32_t n = 2; n <= 4096; n *= 2)
            for (int64_t bytes = 64; bytes <= 256 << 20; bytes *= 4)
                check_choice(&models[i], n, bytes);
}

int main(int argc, char **argv) {
    int32_t most = argc > 1 ? atoi(argv[1]) : MEMBERS;
    if (most > 0)
        printf("%d cases\n", run_all(most < MEMBERS ? most : MEMBERS));
    else
        check_choices();
    return 0;
}
