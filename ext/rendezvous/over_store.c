/* SPDX-License-Identifier: Apache-2.0
 *
 * over_store.c - the rendezvous of ranks that `hpccoll run` has started without MPI, through the store that it keeps.
 *
 * The store outlives processes: a script of a rank may start one program after the other. So each process draws a
 * number, and rank 0 answers the numbers of the others by its own, the generation, under which they then exchange
 * values (hpccoll/rendezvous/generation.py does the same). What the store holds is text: numbers and bytes in
 * hexadecimal, versions. The connection authenticates it.
 */
#include "rendezvous/channel.h"
#include "rendezvous/kinds.h"
#include "rendezvous/values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define NUMBER_BYTES 33 /* 32 digits and a 0 */
#define KEY_BYTES 160
#define LATE (5 * HC__SECOND)      /* by which an answer of the store may be late */
#define SHORTEST (HC__SECOND / 50) /* between two looks at the store */
#define FAILED '!'                 /* begins what rank 0 writes in place of values: its error */

typedef struct over_store {
    hc_rendezvous base;
    hc_channel *channel;
    char number[NUMBER_BYTES];     /* of this process */
    char generation[NUMBER_BYTES]; /* the number of rank 0 */
    uint32_t exchanges;
} over_store;

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- questions to the store -------------------------------------------------------------------------------- */

static int ask(over_store *o, const char *question, uint64_t ns, char **answer) {
    char why[HC_CHANNEL_WHY] = "";
    int status = hc_channel_ask(o->channel, question, ns + LATE, answer, why);
    if (status == HC_STALLED)
        snprintf(why, sizeof why, "it has not answered for %.0f s", (double)(ns + LATE) / 1e9);
    if (status < 0)
        snprintf(o->base.why, sizeof o->base.why, "the store of `hpccoll run` failed: %s",
                 *why ? why : hc_status_text(status));
    return status == HC_STALLED ? HC_TRANSPORT : status;
}

static int put(over_store *o, const char *key, const char *value) {
    size_t room = strlen(key) + strlen(value) + 64;
    char *question = malloc(room), *answer = NULL;
    if (!question)
        return HC_NO_MEMORY;
    snprintf(question, room, "{\"set\": \"%s\", \"value\": \"%s\"}", key, value);
    int status = ask(o, question, 0, &answer);
    free(answer);
    free(question);
    return status;
}

/* `*value`: NULL if the key is not there; the caller frees it. */
static int get(over_store *o, const char *key, char **value) {
    char question[KEY_BYTES + 64], *answer = NULL;
    snprintf(question, sizeof question, "{\"get\": \"%s\"}", key);
    int status = ask(o, question, 0, &answer);
    *value = NULL;
    if (status < 0)
        return status;
    size_t length = strlen(answer);
    if (length > 1 && *answer == '"' && answer[length - 1] == '"') {
        answer[length - 1] = 0;
        memmove(answer, answer + 1, length - 1);
        *value = answer;
    } else {
        free(answer);
    }
    return HC_OK;
}

/* Whether all keys, "\"a\", \"b\"", are there within `ns`: 1 or 0; or a status. */
static int there(over_store *o, const char *keys, uint64_t ns) {
    size_t room = strlen(keys) + 64;
    char *question = malloc(room), *answer = NULL;
    if (!question)
        return HC_NO_MEMORY;
    snprintf(question, room, "{\"check\": [%s], \"seconds\": %.3f}", keys, (double)ns / 1e9);
    int status = ask(o, question, ns, &answer);
    int found = status >= 0 && strcmp(answer, "true") == 0;
    free(answer);
    free(question);
    return status < 0 ? status : found;
}

static int one_there(over_store *o, const char *key, uint64_t ns) {
    char quoted[KEY_BYTES + 2];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    return there(o, quoted, ns);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Writes this rank's error where the others look for values. */
static int put_failure(over_store *o, const char *key) {
    char why[HC_RENDEZVOUS_WHY], mark[] = {FAILED, 0};
    snprintf(why, sizeof why, "%s", o->base.why); /* which put() may replace */
    char *text = hc__to_hex(mark, why, sizeof why);
    int status = text ? put(o, key, text) : HC_NO_MEMORY;
    free(text);
    snprintf(o->base.why, sizeof o->base.why, "%s", why);
    return status < 0 ? status : HC_TRANSPORT;
}

/* TRANSPORT: the text is rank 0's error, which becomes this rank's. */
static int take_failure(over_store *o, const char *text) {
    if (*text != FAILED)
        return HC_OK;
    if (!hc__from_hex(text + 1, o->base.why, sizeof o->base.why))
        snprintf(o->base.why, sizeof o->base.why, "rank 0 has failed");
    o->base.why[sizeof o->base.why - 1] = 0;
    return HC_TRANSPORT;
}

/* ---- the generation: rank 0 -------------------------------------------------------------------------------- */

typedef struct roll {
    char (*answered)[NUMBER_BYTES]; /* the number of each rank that rank 0 has answered */
    uint8_t *here;                  /* the ranks that have joined the generation */
} roll;

static void key_of_coming(const over_store *o, int32_t rank, const char *number, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "c/%s/come/%d/%s", o->generation, (int)rank, number);
}

/* Answers a new hello of a rank, and looks whether it has joined. */
static int look_at(over_store *o, roll *r, int32_t rank) {
    char key[KEY_BYTES], *number = NULL;
    snprintf(key, sizeof key, "c/hello/%d", (int)rank);
    int status = get(o, key, &number);
    if (status >= 0 && number && strlen(number) < NUMBER_BYTES && strcmp(number, r->answered[rank]) != 0) {
        snprintf(key, sizeof key, "c/answer/%s", number);
        status = put(o, key, o->generation);
        snprintf(r->answered[rank], NUMBER_BYTES, "%s", number);
    }
    free(number);
    if (status < 0 || !*r->answered[rank])
        return status;
    key_of_coming(o, rank, r->answered[rank], key);
    status = one_there(o, key, 0);
    r->here[rank] = status > 0;
    return status;
}

static int gather_ranks(over_store *o, roll *r) {
    uint64_t began = hc__now_ns(), reported = began, pause = SHORTEST;
    for (int32_t missing = o->base.size - 1; missing > 0;) {
        int32_t before = missing;
        int late = hc__now_ns() - began > o->base.timeout; /* before the looks: a rank that came in time counts */
        for (int32_t rank = 1; rank < o->base.size; rank++) {
            int status = r->here[rank] ? HC_OK : look_at(o, r, rank);
            if (status < 0)
                return status;
            missing -= status > 0;
        }
        if (missing > 0 && late)
            return hc__ranks_missing(&o->base, r->here);
        hc__report_missing(&o->base, r->here, &reported);
        if (missing == before) {
            usleep((useconds_t)(pause / 1000));
            pause = least(2 * pause, HC__SECOND / 4);
        }
    }
    return HC_OK;
}

static int lead(over_store *o) {
    char key[KEY_BYTES];
    roll r = {calloc((size_t)o->base.size, NUMBER_BYTES), calloc((size_t)o->base.size, 1)};
    snprintf(o->generation, sizeof o->generation, "%s", o->number);
    snprintf(key, sizeof key, "c/%s/met", o->generation);
    int status = r.answered && r.here ? HC_OK : HC_NO_MEMORY;
    if (status >= 0) {
        r.here[0] = 1;
        status = gather_ranks(o, &r);
        status = status < 0 ? put_failure(o, key) : put(o, key, "met");
    }
    free(r.answered);
    free(r.here);
    return status;
}

/* ---- the generation: other ranks --------------------------------------------------------------------------- */

/* Joins the generation of rank 0's answer, if it is another one than before: rank 0 may have been started again. */
static int join(over_store *o) {
    char key[KEY_BYTES], *generation = NULL;
    snprintf(key, sizeof key, "c/answer/%s", o->number);
    int status = get(o, key, &generation);
    if (status >= 0 && generation && strcmp(generation, o->generation) != 0) {
        snprintf(o->generation, sizeof o->generation, "%s", generation);
        key_of_coming(o, o->base.rank, o->number, key);
        status = put(o, key, "here");
    }
    free(generation);
    return status;
}

static int follow(over_store *o) {
    char key[KEY_BYTES], *met = NULL;
    uint64_t until = hc__now_ns() + o->base.timeout + HC__GRACE;
    snprintf(key, sizeof key, "c/hello/%d", (int)o->base.rank);
    int status = put(o, key, o->number), found = 0;
    while (status >= 0 && !found) {
        if (hc__now_ns() > until)
            return hc__root_missing(&o->base);
        if (*o->generation)
            snprintf(key, sizeof key, "c/%s/met", o->generation);
        else
            snprintf(key, sizeof key, "c/answer/%s", o->number);
        status = one_there(o, key, least(HC__SECOND, o->base.timeout));
        found = status > 0 && *o->generation;
        if (status >= 0 && !found)
            status = join(o);
    }
    if (status >= 0)
        status = get(o, key, &met);
    if (status >= 0)
        status = take_failure(o, met ? met : "");
    free(met);
    return status;
}

static int draw_number(over_store *o) {
    unsigned char drawn[NUMBER_BYTES / 2];
    if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
        snprintf(o->base.why, sizeof o->base.why, "getrandom: %s", strerror(errno));
        return HC_TRANSPORT;
    }
    char *text = hc__to_hex("", drawn, sizeof drawn);
    if (!text)
        return HC_NO_MEMORY;
    memcpy(o->number, text, sizeof o->number);
    free(text);
    return HC_OK;
}

/* ---- the exchange ------------------------------------------------------------------------------------------ */

static void key_of_value(const over_store *o, int32_t rank, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "c/%s/%u/%d", o->generation, o->exchanges, (int)rank);
}

static void key_of_all(const over_store *o, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "c/%s/%u/all", o->generation, o->exchanges);
}

/* Waits until the values of all ranks are there. */
static int await_values(over_store *o) {
    uint64_t began = hc__now_ns(), reported = began, limit = o->base.timeout;
    uint8_t *here = calloc((size_t)o->base.size, 1);
    char *keys = malloc((size_t)o->base.size * (KEY_BYTES + 4)), key[KEY_BYTES];
    int found = here && keys ? 0 : HC_NO_MEMORY;
    for (int32_t rank = 0, at = 0; found >= 0 && rank < o->base.size; rank++) {
        key_of_value(o, rank, key);
        at += snprintf(keys + at, KEY_BYTES + 4, "%s\"%s\"", rank ? ", " : "", key);
    }
    while (found == 0) {
        uint64_t waited = hc__now_ns() - began;
        found = there(o, keys, waited < limit ? least(limit - waited, HC__REPORT_EVERY) : 0);
        for (int32_t rank = 0; found == 0 && rank < o->base.size; rank++) {
            key_of_value(o, rank, key);
            int is_here = one_there(o, key, 0);
            here[rank] = is_here > 0;
            found = is_here < 0 ? is_here : 0;
        }
        if (found == 0 && waited >= limit)
            found = hc__ranks_missing(&o->base, here);
        if (found == 0)
            hc__report_missing(&o->base, here, &reported);
    }
    free(keys);
    free(here);
    return found < 0 ? found : HC_OK;
}

static int collect(over_store *o, size_t bytes, char *all) {
    int status = await_values(o);
    for (int32_t rank = 0; rank < o->base.size && status >= 0; rank++) {
        char key[KEY_BYTES], *text = NULL;
        key_of_value(o, rank, key);
        status = get(o, key, &text);
        if (status >= 0)
            status = hc__value_take(&o->base, rank, text ? text : "", bytes, all);
        free(text);
    }
    return status;
}

/* On rank 0: collects all values and writes them for all to read. */
static int distribute(over_store *o, size_t bytes, char *all) {
    char key[KEY_BYTES];
    int status = collect(o, bytes, all);
    key_of_all(o, key);
    if (status < 0)
        return put_failure(o, key);
    char *text = hc__to_hex("", all, bytes * (size_t)o->base.size);
    status = text ? put(o, key, text) : HC_NO_MEMORY;
    free(text);
    return status;
}

static int await_all(over_store *o, size_t bytes, char *all) {
    char key[KEY_BYTES], *text = NULL;
    uint64_t until = hc__now_ns() + o->base.timeout + HC__GRACE;
    int found = 0;
    key_of_all(o, key);
    while (found == 0) {
        uint64_t now = hc__now_ns();
        if (now > until)
            return hc__root_missing(&o->base);
        found = one_there(o, key, least(until - now, HC__REPORT_EVERY));
    }
    int status = found < 0 ? found : get(o, key, &text);
    if (status >= 0)
        status = take_failure(o, text ? text : "");
    if (status >= 0 && !(text && hc__from_hex(text, all, bytes * (size_t)o->base.size))) {
        snprintf(o->base.why, sizeof o->base.why,
                 "what rank 0 has written into the store of `hpccoll run` is not what "
                 "rank %d expects: all ranks make the same Worlds in the same order",
                 (int)o->base.rank);
        status = HC_TRANSPORT;
    }
    free(text);
    return status;
}

static int allgather(hc_rendezvous *base, const void *mine, size_t bytes, void *all) {
    over_store *o = (over_store *)base;
    char key[KEY_BYTES];
    key_of_value(o, base->rank, key);
    char *text = hc__value_text(base, mine, bytes);
    int status = text ? put(o, key, text) : HC_NO_MEMORY;
    free(text);
    if (status >= 0)
        status = base->rank == 0 ? distribute(o, bytes, all) : await_all(o, bytes, all);
    o->exchanges++;
    return status;
}

/* ---- making ------------------------------------------------------------------------------------------------ */

static void free_over_store(hc_rendezvous *r) {
    hc_channel_close(((over_store *)r)->channel);
    free(r);
}

static const hc_rendezvous_ops over_store_ops = {allgather, free_over_store, "the ranks met through a store"};

static int connect_and_find(over_store *o, const char *store) {
    char why[HC_CHANNEL_WHY] = "";
    int status = hc_channel_connect(store, o->base.timeout, &o->channel, why);
    if (status < 0) {
        snprintf(o->base.why, sizeof o->base.why, "the store of `hpccoll run` cannot be reached: %s", why);
        return status;
    }
    if ((status = draw_number(o)) < 0 || o->base.size == 1)
        return status;
    return o->base.rank == 0 ? lead(o) : follow(o);
}

int hc_rendezvous_over_store(const char *store, const hc_rendezvous_terms *terms, hc_rendezvous **made,
                             char why[HC_RENDEZVOUS_WHY]) {
    over_store *o = hc__rendezvous_new(sizeof *o, &over_store_ops, terms, why);
    if (!o)
        return HC_NO_MEMORY;
    int status = connect_and_find(o, store);
    if (status < 0) {
        snprintf(why, HC_RENDEZVOUS_WHY, "%s", *o->base.why ? o->base.why : hc_status_text(status));
        free_over_store(&o->base);
        return status;
    }
    *made = &o->base;
    return HC_OK;
}
