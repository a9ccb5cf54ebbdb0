/* SPDX-License-Identifier: Apache-2.0
 *
 * transcript.c - text in, text out: drives a few engines by hand and prints all they do.
 *
 *     transcript < conversation.txt > same-with-fresh-answers.txt
 *
 * A conversation is a list of blocks: command lines, a line `----`, the answer, an empty line. What stood
 * below `----` is replaced by what the engines answer now; the test compares. `#` begins a comment.
 */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cluster r;

/* ---- words of a command -------------------------------------------------------------------------- */

enum { WORDS = 64 };

typedef struct words {
    char text[512];
    char *at[WORDS];
    int n;
} words;

static void split(words *w, const char *line) {
    snprintf(w->text, sizeof w->text, "%s", line);
    w->n = 0;
    for (char *t = strtok(w->text, " \t\n"); t && w->n < WORDS; t = strtok(NULL, " \t\n"))
        w->at[w->n++] = t;
}

/* The value of `key=value` among the words, or NULL. */
static const char *value_of(const words *w, const char *key) {
    size_t n = strlen(key);
    for (int i = 1; i < w->n; i++)
        if (!strncmp(w->at[i], key, n) && w->at[i][n] == '=')
            return w->at[i] + n + 1;
    return NULL;
}

/* A number with an optional unit of time: 5, 20us, 3ms, 2s, never. */
static uint64_t number(const char *text, uint64_t otherwise) {
    char *end;
    if (!text)
        return otherwise;
    if (!strcmp(text, "never"))
        return UINT64_MAX;
    uint64_t n = strtoull(text, &end, 10);
    return n * (!strcmp(end, "s") ? 1000000000u : !strcmp(end, "ms") ? 1000000u : !strcmp(end, "us") ? 1000u : 1u);
}

static int numbers(const char *text, int32_t *out, int room) {
    int n = 0;
    while (text && *text && n < room) {
        char *end;
        out[n++] = (int32_t)strtol(text, &end, 10);
        text = *end && *end != ']' ? end + 1 : "";
    }
    return n;
}

static uint32_t set_of(const words *w) {
    return (uint32_t)number(value_of(w, "set"), 0);
}

/* The ranks a command is about: the numbers behind its verb, or `all`. */
static int ranks_of(const words *w, int *out) {
    int n = 0;
    if (w->n > 1 && !strcmp(w->at[1], "all"))
        for (; n < r.ranks; n++)
            out[n] = n;
    for (int i = 1; n == 0 && i < w->n && w->at[i][0] >= '0' && w->at[i][0] <= '9'; i++) {
        while (i < w->n && w->at[i][0] >= '0' && w->at[i][0] <= '9')
            out[n++] = atoi(w->at[i++]);
        break;
    }
    return n;
}

/* ---- commands ------------------------------------------------------------------------------------ */

static void do_world(const words *w) {
    hc_engine_config c = {.size = atoi(w->at[1]),
                          .cache_capacity = (uint32_t)number(value_of(w, "capacity"), 8),
                          .fusion_threshold = number(value_of(w, "threshold"), 1 << 20),
                          .raise_bytes = number(value_of(w, "bytes"), UINT64_MAX),
                          .raise_window = number(value_of(w, "window"), 1000000),
                          .stall_warning = number(value_of(w, "warning"), 0),
                          .stall_limit = number(value_of(w, "limit"), 0)};
    int32_t nodes[CLUSTER_RANKS], members[CLUSTER_RANKS];
    for (int i = 0; i < c.size; i++)
        nodes[i] = members[i] = i;
    numbers(value_of(w, "nodes"), nodes, c.size);
    cluster_open(&r, &c, nodes, (int32_t)number(value_of(w, "fanout"), 2), value_of(w, "sent") != NULL);
    cluster_add_set(&r, &(hc_set_config){0}, members, c.size);
}

static void do_set(const words *w) {
    int32_t members[CLUSTER_RANKS];
    int n = numbers(value_of(w, "members"), members, CLUSTER_RANKS);
    hc_set_config set = {
        .set = (uint32_t)atoi(w->at[1]),
        .generation = (uint32_t)number(value_of(w, "generation"), 0),
    };
    cluster_add_set(&r, &set, members, n);
}

static int table_index(const char *(*name)(int), int count, const char *text) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name(i), text))
            return i;
    return -1;
}

/* float32[2,3], or uint8[2,8]<M8[s] with what moves as bytes */
static int tensor_of(const char *word, hc_tensor *t, int64_t *dims) {
    char dtype[32];
    const char *bracket = strchr(word, '[');
    int32_t values[8];
    if (!bracket || bracket - word > 31)
        return 0;
    snprintf(dtype, sizeof dtype, "%.*s", (int)(bracket - word), word);
    int code = table_index(hc_dtype_name, HC_DTYPE_COUNT, dtype);
    int n = bracket[1] == ']' ? 0 : numbers(bracket + 1, values, 8);
    for (int d = 0; d < n; d++)
        dims[d] = values[d];
    const char *type = strchr(bracket, ']') ? strchr(bracket, ']') + 1 : "";
    *t = (hc_tensor){
        .dtype = (uint8_t)code, .ndim = (uint8_t)n, .type_len = (uint8_t)strlen(type), .dims = dims, .type = type};
    return code >= 0;
}

/* The name of a request; with order=N the N-th call of these ranks without a name, of which NAME is the number. */
static void name_request(const words *w, const char *name, hc_request *q) {
    static char text[sizeof HC_ORDER_PREFIX + 16];
    q->order = number(value_of(w, "order"), 0);
    snprintf(text, sizeof text, "%s%s", q->order ? HC_ORDER_PREFIX : "", name);
    q->name = text;
    q->name_len = (uint32_t)strlen(text);
}

/* enqueue RANKS OPERATION NAME [float32[4] ...] [reduction=SUM] [root=0] [prescale=1] [set=0] [calls=2] [group=yes]
 * [last=yes] [order=1] */
static void do_enqueue(const words *w) {
    int ranks[CLUSTER_RANKS], n = ranks_of(w, ranks), verb = n == r.ranks && !strcmp(w->at[1], "all") ? 2 : n + 1;
    const char *reduction = value_of(w, "reduction"), *prescale = value_of(w, "prescale"), *root = value_of(w, "root");
    hc_tensor tensors[WORDS];
    int64_t dims[WORDS][8];
    hc_request q = {.wire = HC_WIRE_SAME, .tensors = tensors};
    name_request(w, w->at[verb + 1], &q);
    q.operation = (uint8_t)table_index(hc_operation_name, HC_OPERATION_COUNT, w->at[verb]);
    q.reduction = reduction ? (uint8_t)table_index(hc_reduction_name, HC_REDUCTION_COUNT, reduction) : HC_SUM;
    q.root = root ? atoi(root) : hc_operation_has(q.operation, HC_OP_ROOTED) ? 0 : -1;
    q.prescale = prescale ? atof(prescale) : 1;
    q.postscale = 1;
    q.calls = (uint32_t)number(value_of(w, "calls"), 0);
    q.flags = (value_of(w, "group") ? HC_REQUEST_GROUP : 0) | (value_of(w, "last") ? HC_REQUEST_LAST : 0);
    for (int i = verb + 2; i < w->n; i++)
        if (!strchr(w->at[i], '=') && tensor_of(w->at[i], &tensors[q.ntensors], dims[q.ntensors]))
            q.ntensors++;
    for (int i = 0; i < n; i++)
        cluster_enqueue(&r, ranks[i], set_of(w), &q);
}

/* refuse RANKS OPERATION NAME WHY [order=1]: the rank has no request, but others have */
static void do_refuse(const words *w) {
    int ranks[CLUSTER_RANKS], n = ranks_of(w, ranks), verb = n == r.ranks && !strcmp(w->at[1], "all") ? 2 : n + 1;
    hc_request q = {.operation = (uint8_t)table_index(hc_operation_name, HC_OPERATION_COUNT, w->at[verb]),
                    .why = w->at[verb + 2],
                    .why_len = (uint32_t)strlen(w->at[verb + 2])};
    name_request(w, w->at[verb + 1], &q);
    for (int i = 0; i < n; i++)
        cluster_feed(&r, ranks[i], &(hc_event){.kind = HC_EV_REFUSE, .set = set_of(w), .peer = -1, .request = &q});
}

static void do_each(const words *w, int kind) {
    int ranks[CLUSTER_RANKS], n = ranks_of(w, ranks);
    for (int i = 0; i < n; i++) {
        hc_event e = {.kind = (uint8_t)kind, .set = set_of(w), .peer = -1};
        if (kind == HC_EV_JOIN)
            e.ticket = cluster_ticket(&r, "join");
        if (kind == HC_EV_TICK)
            r.now[ranks[i]] += number(value_of(w, "after"), 1);
        cluster_feed(&r, ranks[i], &e);
    }
}

/* wait RANKS for=6s: their clocks go on, nothing happens */
static void do_wait(const words *w) {
    int ranks[CLUSTER_RANKS], n = ranks_of(w, ranks);
    for (int i = 0; i < n; i++)
        r.now[ranks[i]] += number(value_of(w, "for"), 1);
}

static void do_fail(const words *w) {
    hc_event e = {.kind = HC_EV_FAIL,
                  .peer = (int32_t)number(value_of(w, "peer"), UINT32_MAX),
                  .status = HC_PEER_LOST,
                  .text = "connection reset"};
    cluster_feed(&r, atoi(w->at[1]), &e);
}

/* silent RANK 3: the driver has had no sign of life from rank 3; without a number: from all it has */
static void do_silent(const words *w) {
    char text[64];
    snprintf(text, sizeof text, "rank %s has given no sign of life for 3 s", w->n > 2 ? w->at[2] : "");
    hc_event e = {.kind = HC_EV_SILENT, .text = w->n > 2 ? text : NULL};
    cluster_feed(&r, atoi(w->at[1]), &e);
}

static void do_sent(const words *w) {
    hc_event e = {.kind = HC_EV_SENT, .peer = atoi(w->at[2])};
    cluster_feed(&r, atoi(w->at[1]), &e);
}

/* message TO FROM 01ff...: bytes that no engine has sent */
static void do_message(const words *w) {
    uint8_t bytes[256];
    size_t n = 0;
    for (const char *h = w->n > 3 ? w->at[3] : ""; h[0] && h[1] && n < sizeof bytes; h += 2) {
        unsigned byte = 0;
        sscanf(h, "%2x", &byte);
        bytes[n++] = (uint8_t)byte;
    }
    hc_event e = {.kind = HC_EV_MESSAGE, .peer = atoi(w->at[2]), .bytes = bytes, .nbytes = n};
    cluster_feed(&r, atoi(w->at[1]), &e);
}

/* tune RANK THRESHOLD RAISE_BYTES RAISE_WINDOW */
static void do_tune(const words *w) {
    hc_tuning tuning = {.fusion_threshold = strtoull(w->at[2], NULL, 0),
                        .raise_bytes = strtoull(w->at[3], NULL, 0),
                        .raise_window = strtoull(w->at[4], NULL, 0)};
    hc_event e = {.kind = HC_EV_TUNE, .peer = -1, .tuning = &tuning};
    cluster_feed(&r, atoi(w->at[1]), &e);
}

static void do_deliver(const words *w) {
    if (w->n == 1)
        cluster_deliver_all(&r);
    else if (w->n == 2)
        cluster_deliver(&r, -1, -1, atoi(w->at[1])); /* so many, in the order of sending */
    else
        cluster_deliver(&r, atoi(w->at[1]), atoi(w->at[2]), w->n > 3 ? atoi(w->at[3]) : 1);
}

static int obey(const words *w) {
    static const struct {
        const char *verb;
        int kind;
    } events[] = {{"flush", HC_EV_FLUSH},     {"join", HC_EV_JOIN}, {"stop", HC_EV_STOP},
                  {"preempt", HC_EV_PREEMPT}, {"tick", HC_EV_TICK}, {"remove", HC_EV_REMOVE_SET}};
    static const struct {
        const char *verb;
        void (*act)(const words *);
    } others[] = {{"world", do_world},   {"set", do_set},         {"enqueue", do_enqueue}, {"fail", do_fail},
                  {"sent", do_sent},     {"message", do_message}, {"deliver", do_deliver}, {"wait", do_wait},
                  {"silent", do_silent}, {"tune", do_tune},       {"refuse", do_refuse}};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (!strcmp(w->at[0], events[i].verb))
            return do_each(w, events[i].kind), 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(w->at[0], others[i].verb))
            return others[i].act(w), 1;
    if (!strcmp(w->at[0], "done"))
        return cluster_done(&r), 1;
    if (!strcmp(w->at[0], "counters"))
        return cluster_counters(&r), 1;
    if (!strcmp(w->at[0], "quiet"))
        return cluster_quiet(&r), 1;
    return 0;
}

int main(void) {
    static char line[512];
    int answer = 0; /* inside the old answer, which is dropped */
    while (fgets(line, sizeof line, stdin)) {
        words w;
        split(&w, line);
        if (answer) {
            if (w.n)
                continue;
            answer = 0;
        }
        if (w.n && !strcmp(w.at[0], "----")) {
            printf("----\n");
            cluster_answer(&r);
            answer = 1;
            continue;
        }
        fputs(line, stdout);
        if (w.n && w.at[0][0] != '#' && !obey(&w)) {
            fprintf(stderr, "transcript: what is '%s'?\n", w.at[0]);
            return 1;
        }
    }
    cluster_close(&r);
    return 0;
}
