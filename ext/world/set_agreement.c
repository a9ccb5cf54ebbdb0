/* SPDX-License-Identifier: Apache-2.0
 *
 * set_agreement.c - writes and compares the offers of ranks that make process sets, and derives the sets.
 *
 * Several threads of a rank may make sets of different Worlds at the same time. So a rank offers a few numbers, which
 * it offers to nobody else meanwhile: a number that all ranks have offered is free until each of them takes it. If the
 * few have none in common, all ranks offer everything that is free. Then another thread may be faster, and the ranks
 * compare whether all have got the number.
 */
#include "world/set_agreement.h"
#include "world/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW 16    /* numbers that a rank offers at first */
#define TRIES 100 /* with all free numbers */
#define AGAIN 3   /* beside enum hc_sets_outcome: no common number */

typedef struct offer {
    int64_t key, color;
    uint64_t digest;
    hc_set_numbers free;
    uint32_t generation;
    uint8_t colored, unfit;
    uint16_t units[HC_SLICES_KEPT]; /* reserved of the slices that this rank leads, for sets 1 and on */
    uint8_t crowded;
} offer;

/* A call, and what it works on. */
typedef struct making {
    hc_job *job;
    const hc_sets_call *call;
    const hc_exchange *exchange;
    hc_sets_made *made;
    offer *offers;
    int32_t *order; /* scratch: a place per rank */
    int all;        /* the ranks offer everything that is free */
    char *why;
} making;

/* ---- numbers ----------------------------------------------------------------------------------------------- */

static int has(const hc_set_numbers *numbers, uint32_t number) {
    return (int)(numbers->bits[number / 64] >> number % 64 & 1);
}

/* Those whose slice is not in use by members of an earlier set on this rank's node. */
static hc_set_numbers usable(const hc_job *job, hc_set_numbers numbers) {
    for (uint32_t number = 1; number < HC_MAX_SETS; number++)
        if (has(&numbers, number) && hc_slice_reserved(job->slices, number) < 0)
            numbers.bits[number / 64] &= ~(UINT64_C(1) << number % 64);
    return numbers;
}

static hc_set_numbers common_numbers(const making *m) {
    hc_set_numbers common = m->offers[0].free;
    for (int32_t r = 1; r < m->call->size; r++)
        for (int word = 0; word < HC_MAX_SETS / 64; word++)
            common.bits[word] &= m->offers[r].free.bits[word];
    return common;
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static int node_at(const making *m, int32_t place) {
    return m->job->node_of[m->call->ranks[place]];
}

/* By color, node and World rank. */
static int compare_places(const void *a, const void *b, void *of) {
    const making *m = of;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    if (m->offers[i].color != m->offers[k].color)
        return m->offers[i].color < m->offers[k].color ? -1 : 1;
    if (node_at(m, i) != node_at(m, k))
        return node_at(m, i) < node_at(m, k) ? -1 : 1;
    return m->call->ranks[i] < m->call->ranks[k] ? -1 : 1;
}

/* By key and place. */
static int compare_keys(const void *a, const void *b, void *of) {
    const making *m = of;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    if (m->offers[i].key != m->offers[k].key)
        return m->offers[i].key < m->offers[k].key ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Lists the ranks that are in a set, and those of this rank's set. */
static void find_group(making *m) {
    hc_sets_made *made = m->made;
    const offer *own = &m->offers[m->call->own];
    for (int32_t r = 0; r < m->call->size; r++) {
        if (!m->offers[r].colored)
            continue;
        made->inside[made->ninside++] = r;
        if (own->colored && m->offers[r].color == own->color)
            made->members[made->size++] = r;
    }
    qsort_r(made->members, (size_t)made->size, sizeof *made->members, compare_keys, m);
    for (int32_t i = 0; i < made->size; i++) {
        made->rank = made->members[i] == m->call->own ? i : made->rank;
        made->members[i] = m->call->ranks[made->members[i]];
    }
}

/* Removes the numbers from `ready` for which a node of a set has not reserved enough memory. */
static void find_ready(making *m, hc_set_numbers *ready) {
    const hc_sets_made *made = m->made;
    uint64_t kept = 0;
    for (int32_t i = 0; i < made->ninside; i++) {
        m->order[i] = made->inside[i];
        for (int number = 1; number <= HC_SLICES_KEPT; number++)
            kept |= (uint64_t)(m->offers[made->inside[i]].units[number - 1] > 0) << number;
    }
    kept &= ready->bits[0];
    if (kept)
        qsort_r(m->order, (size_t)made->ninside, sizeof *m->order, compare_places, m);
    for (int32_t i = 0, next; i < made->ninside && kept; i = next) {
        const offer *leads = &m->offers[m->order[i]];
        for (next = i + 1; next < made->ninside; next++)
            if (m->offers[m->order[next]].color != leads->color ||
                node_at(m, m->order[next]) != node_at(m, m->order[i]))
                break;
        uint16_t units = hc_slice_units(next - i);
        for (int number = 1; number <= HC_SLICES_KEPT; number++)
            if (leads->units[number - 1] < units)
                kept &= ~(UINT64_C(1) << number);
    }
    ready->bits[0] = kept;
    memset(ready->bits + 1, 0, sizeof ready->bits - sizeof ready->bits[0]);
}

/* ---- the second exchange ----------------------------------------------------------------------------------- */

#define TEXT 240

/* An exchange under a name of this call, because other threads may make sets by other calls meanwhile. */
static int gather(const making *m, const char *what, const void *mine, size_t bytes, void *all) {
    char name[64];
    snprintf(name, sizeof name, "%s, %s", m->call->name, what);
    return m->exchange->allgather(m->exchange->of, name, mine, bytes, all);
}

/* Exchanges the texts of the ranks that failed; the first one becomes the reason. */
static int tell(making *m, const int32_t *statuses, const char *why) {
    char mine[TEXT], *all = calloc((size_t)m->call->size, sizeof mine);
    int32_t failed = 0, own = statuses[m->call->own];
    if (!all)
        return hc__refuse(m->why, HC_NO_MEMORY, "no memory");
    memset(mine, 0, sizeof mine);
    snprintf(mine, sizeof mine, "%s", own >= 0 ? "" : *why ? why : hc_status_text(own));
    while (statuses[failed] >= 0)
        failed++;
    int status = gather(m, "texts", mine, sizeof mine, all);
    if (status >= 0)
        status = hc__refuse(m->why, statuses[failed], "rank %d: %.*s", (int)failed, TEXT, all + TEXT * failed);
    free(all);
    return status;
}

/* Says how this rank's step went. The outcome for all ranks: an error of one of them, AGAIN of one, or OK. */
static int agree(making *m, int32_t status, const char *why) {
    int32_t *all = m->order, least = HC_OK, most = HC_OK;
    int outcome = gather(m, "agreed", &status, sizeof status, all);
    if (outcome < 0)
        return outcome;
    for (int32_t r = 0; r < m->call->size; r++) {
        least = all[r] < least ? all[r] : least;
        most = all[r] > most ? all[r] : most;
    }
    return least < 0 ? tell(m, all, why) : most;
}

/* The lowest member of this rank's set on this node. */
static int32_t leader_of(const making *m) {
    int32_t leader = m->job->rank;
    for (int32_t i = 0; i < m->made->size; i++) {
        int32_t rank = m->made->members[i];
        if (rank < leader && m->job->node_of[rank] == m->job->node_of[m->job->rank])
            leader = rank;
    }
    return leader;
}

static int reserve(making *m) {
    char why[HC_WHY] = "";
    int32_t here = 0;
    if (m->made->size == 0 || leader_of(m) != m->job->rank)
        return agree(m, HC_OK, why);
    for (int32_t i = 0; i < m->made->size; i++)
        here += m->job->node_of[m->made->members[i]] == m->job->node_of[m->job->rank];
    return agree(m, hc_slice_reserve(m->job->slices, m->made->number, here, why, sizeof why), why);
}

/* ---- the first --------------------------------------------------------------------------------------------- */

static void write_offer(making *m, hc_set_numbers numbers, offer *mine) {
    const hc_sets_call *call = m->call;
    *mine = (offer){.key = call->key,
                    .color = call->color,
                    .digest = call->digest,
                    .free = numbers,
                    .generation = hc_job_used(m->job).generation,
                    .colored = call->colored,
                    .unfit = call->unfit,
                    .crowded = call->crowded};
    for (uint32_t number = 1; number <= HC_SLICES_KEPT; number++) {
        int32_t units = hc_slice_reserved(m->job->slices, number);
        mine->units[number - 1] = units > 0 ? (uint16_t)units : 0;
    }
}

static int read_offers(making *m) {
    hc_sets_made *made = m->made;
    made->generation = 0;
    for (int32_t r = 0; r < m->call->size; r++)
        if (m->offers[r].crowded)
            return hc__refuse(m->why, HC_INVALID,
                              "%s: several threads of rank %d called it at once on one World: as with MPI, only one "
                              "thread at a time may call it, in an order that is the same on all ranks; give each "
                              "thread a World of its own, made before",
                              m->call->name + strlen("hpccoll."), (int)r);
    for (int32_t r = 0; r < m->call->size; r++) {
        if (m->offers[r].unfit)
            return HC_SETS_UNFIT;
        made->generation = m->offers[r].generation > made->generation ? m->offers[r].generation : made->generation;
    }
    for (int32_t r = 1; r < m->call->size; r++)
        if (m->offers[r].digest != m->offers[0].digest)
            return HC_SETS_DIFFER;
    made->generation++;
    hc_job_note_generation(m->job, made->generation);
    return HC_SETS_MADE;
}

/* Chooses the lowest number with memory, or else the lowest. 0: there is none. */
static uint32_t choose(making *m, int *is_ready) {
    hc_set_numbers common = common_numbers(m), ready = common;
    find_ready(m, &ready);
    *is_ready = ready.bits[0] != 0 || m->made->ninside == 0;
    for (uint32_t number = 1; number < HC_MAX_SETS; number++)
        if (has(ready.bits[0] ? &ready : &common, number))
            return number;
    return 0;
}

static int derive(making *m) {
    hc_sets_made *made = m->made;
    int is_ready, outcome = read_offers(m);
    if (outcome != HC_SETS_MADE)
        return outcome;
    find_group(m);
    made->number = choose(m, &is_ready);
    if (made->ninside == 0)
        return HC_SETS_MADE;
    if (made->number == 0 && m->all)
        return hc__refuse(m->why, HC_TRANSPORT, "all %d process sets that a rank can be in are in use: shut some down",
                          HC_MAX_SETS - 1);
    if (made->number == 0)
        return AGAIN;
    int mine = made->size > 0, got = !mine || hc_job_take_set_number(m->job, (int)made->number, m->all);
    if (m->all && (outcome = agree(m, got ? HC_OK : AGAIN, "")) == HC_OK && !is_ready)
        outcome = reserve(m);
    else if (!m->all && !is_ready)
        outcome = reserve(m);
    if (outcome != HC_OK && mine && got)
        hc_job_give_set_number_back(m->job, (int)made->number);
    return outcome;
}

static int try(making *m) {
    offer mine;
    hc_set_numbers offered = hc_job_offer_sets(m->job, m->all ? 0 : FEW);
    write_offer(m, usable(m->job, offered), &mine);
    m->made->size = m->made->ninside = 0;
    m->made->rank = -1;
    int status = m->exchange->allgather(m->exchange->of, m->call->name, &mine, sizeof mine, m->offers);
    if (status >= 0)
        status = derive(m);
    if (!m->all)
        hc_job_withdraw_sets(m->job, offered);
    return status;
}

int hc_sets_agree(hc_job *job, const hc_sets_call *call, const hc_exchange *exchange, hc_sets_made *made,
                  char why[HC_WHY]) {
    size_t n = (size_t)call->size;
    making m = {.job = job, .call = call, .exchange = exchange, .made = made, .why = why};
    *made = (hc_sets_made){.members = malloc(2 * n * sizeof *made->members), .rank = -1};
    m.offers = calloc(n, sizeof *m.offers);
    m.order = malloc(n * sizeof *m.order);
    made->inside = made->members ? made->members + n : NULL;
    why[0] = 0;
    int status = made->members && m.offers && m.order ? AGAIN : hc__refuse(why, HC_NO_MEMORY, "no memory");
    for (int i = 0; i < TRIES && status == AGAIN; i++) {
        m.all = i > 0;
        status = try(&m);
    }
    if (status == AGAIN)
        status = hc__refuse(why, HC_TRANSPORT, "other threads took the numbers of process sets %d times", TRIES);
    free(m.offers);
    free(m.order);
    return status;
}
