/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h - what the files of the engine share and nobody else sees.
 *
 * A set holds names; a name may have slots (signatures agreed before), an own request, and a first meeting
 * under way.
 * Everything that many ranks may have at once is a column of bits, one 64-bit word a row of 64 slots.
 */
#ifndef HC_CORE_H
#define HC_CORE_H

#include "core/hc.h"
#include "core/wire.h"

#define HC__NONE UINT32_MAX
#define HC__NEVER UINT64_MAX
#define HC__MAX_SIGNATURE (1u << 26)
#define HC__TEXT 1024    /* room of a text for people */
#define HC__LISTED 16    /* ranks that a stall report names */
#ifndef HC__SLOTS_A_NAME /* a test has fewer */
#define HC__SLOTS_A_NAME 16
#endif

/* ---- text.c: bounded text, always ended by 0 ------------------------------------------------------- */

typedef struct hc__text {
    char *at;
    size_t room, len;
} hc__text;
hc__text hc__text_on(char *buffer, size_t room);
void hc__put(hc__text *, const char *);
void hc__put_some(hc__text *, const char *, size_t n); /* what is not printable becomes '?' */
void hc__put_int(hc__text *, int64_t);
void hc__put_real(hc__text *, double);
void hc__put_seconds(hc__text *, uint64_t ns);

/* ---- memory.c --------------------------------------------------------------------------------------- */

/* Memory that lives until freed, zeroed and counted. NULL: none left, and the engine will fail (e->starved). */
void *hc__alloc(hc_engine *, size_t bytes);
void hc__free(hc_engine *, void *, size_t bytes);
void *hc__resize(hc_engine *, void *, size_t old_bytes, size_t new_bytes); /* frees nothing when it fails */
/* Memory that lives until the next step. */
void *hc__lend(hc_engine *, size_t bytes);
const char *hc__lend_text(hc_engine *, const char *);
void hc__lend_reset(hc_engine *);
void hc__lend_free(hc_engine *);
/* A new action, zeroed; a scratch one when memory is gone, so that callers need not ask. */
hc_action *hc__act(hc_engine *, int kind);
/* The same without fail, at worst in the place of another: a World that ends says so. */
hc_action *hc__act_surely(hc_engine *, int kind);
/* Takes this step's actions of a kind back. */
void hc__act_withdraw(hc_engine *, int kind);
/* Room for `actions` that lasts. 0: no memory. */
int hc__act_reserve(hc_engine *, uint32_t actions);

/* ---- hash.c ------------------------------------------------------------------------------------------ */

void hc__hash(const void *, size_t bytes, uint64_t key[2]);

/* ---- request.c: signatures ----------------------------------------------------------------------------- */

/* The part of a request that all ranks must agree on, as bytes that are equal exactly when it is equal, and
 * decoded once. Shared by own request, first meeting, slot and batch. */
typedef struct hc__sig hc__sig;
struct hc__sig {
    uint64_t key[2]; /* hash of the name */
    uint32_t refs;
    uint32_t nbytes;
    uint32_t size;       /* of this block */
    uint64_t fuse_class; /* requests of one class may share a batch; 0: of no class */
    uint64_t payload;    /* bytes of all tensors */
    const uint8_t *bytes;
    hc__sig *next_dead;
    hc_request request; /* ticket 0; points into this block */
};
typedef struct hc__sig_view {
    const uint8_t *bytes;
    uint32_t nbytes;
    const uint8_t *name;
    uint32_t name_len;
    uint32_t ntensors, ndims; /* dims of all tensors together */
    int32_t root;
    uint8_t operation;
} hc__sig_view;

/* Request -> bytes in the engine's scratch. Returns why it cannot be one, or NULL. */
const char *hc__sig_encode(hc_engine *, const hc_request *, hc__sig_view *);
/* Bytes -> view, everything checked. Returns what is wrong, or NULL. set_size bounds the root. */
const char *hc__sig_check(const uint8_t *, size_t, int32_t set_size, hc__sig_view *);
hc__sig *hc__sig_new(hc_engine *, const hc__sig_view *, const uint64_t key[2]); /* refs 1 */
hc__sig *hc__sig_ref(hc__sig *);
void hc__sig_unref(hc_engine *, hc__sig *); /* freed at the next step: actions may point at it */
void hc__sig_bury(hc_engine *);             /* frees the dead */
int hc__sig_is(const hc__sig *, const uint8_t *bytes, uint32_t nbytes);

/* ---- describe.c ------------------------------------------------------------------------------------------ */

void hc__describe(hc__text *, const hc_request *); /* allreduce 'name' */
void hc__describe_mismatch(hc__text *, int32_t rank_a, const hc_request *a, int32_t rank_b, const hc_request *b);
void hc__describe_root_joined(hc__text *, const hc_request *);

/* ---- names.c: one record a name that this rank has heard of ------------------------------------------- */

enum hc__phase {
    HC__ABSENT,   /* no own request */
    HC__PENDING,  /* enqueued, not raised */
    HC__ON_SLOT,  /* raised as a cached request */
    HC__ON_FIRST, /* raised as a first meeting */
    HC__RUNNING   /* agreed; in one or more batches */
};

typedef struct hc__first hc__first;
typedef struct hc__name {
    uint64_t key[2];
    hc__sig *mine;          /* own request, NULL when ABSENT */
    hc__first *first;       /* under way in the tree, or NULL */
    uint64_t ticket, since; /* since: enqueued, or (waited) a caller began to wait */
    uint64_t position;      /* of the commit, when RUNNING */
    int64_t row;            /* own dims[0], where it is not agreed */
    int64_t *rows;          /* the same of many tensors, or NULL */
    uint32_t older, newer;  /* the pending list, in order of enqueueing; the free list by `older` */
    int32_t slot;           /* the one committed last; the others behind it. -1: none */
    int32_t raised_slot;    /* ON_SLOT; else -1 */
    int32_t status;         /* RUNNING: the first error of a batch */
    uint32_t batches;       /* RUNNING: not yet done */
    uint8_t phase, waited;
    uint8_t pinned; /* in use by a caller of hc__finish() and the like */
} hc__name;

typedef struct hc__names {
    hc__name *at;
    uint32_t *table; /* index + 1, 0: empty; linear probing */
    uint32_t room, count, mask, free_list;
} hc__names;

typedef struct hc__set hc__set;
uint32_t hc__name_find(const hc__set *, const uint64_t key[2]);
uint32_t hc__name_intern(hc__set *, const uint64_t key[2]); /* HC__NONE: out of memory */
void hc__name_forget(hc__set *, uint32_t name);             /* if nothing holds it any more */
void hc__names_free(hc__set *);

/* ---- slots.c --------------------------------------------------------------------------------------------- */

typedef struct hc__slot {
    hc__sig *sig; /* NULL: free */
    uint64_t gen; /* position at which it was last assigned or freed */
    uint32_t name;
    int32_t older, newer; /* least recently used first */
    int32_t next;         /* the next slot of this name, more recently used first; -1: the last */
} hc__slot;

/* The columns of a row (64 slots). HC__HAVE is one column a source. */
enum hc__column {
    HC__USED,
    HC__SENT,       /* risen from here, not yet committed */
    HC__OUT,        /* to go up with the next message; at the root: ready */
    HC__ROOTED,     /* rooted operations: the root itself has raised it */
    HC__NEEDS_ROOT, /* rooted operations */
    HC__RIVALS,     /* its name has another slot, or a first meeting under way */
    HC__CLASH_SENT, /* members have raised it and a rival: once a generation */
    HC__CLASH_OUT,
    HC__GONE, /* freed by the entry that is being applied */
    HC__HAVE
};

uint64_t *hc__row(const hc__set *, uint32_t word);
static inline uint64_t hc__row_out(const uint64_t *row) {
    return row[HC__OUT];
}
static inline uint64_t hc__row_clash(const uint64_t *row) {
    return row[HC__CLASH_OUT];
}
int32_t hc__slot_find(const hc__set *, uint32_t name, const uint8_t *sig, uint32_t nbytes); /* -1: none */
int hc__slot_assign(hc__set *, uint32_t name, hc__sig *); /* takes a reference; 0 or NO_MEMORY */
void hc__slot_free(hc__set *, int32_t slot);
void hc__slot_touch(hc__set *, int32_t slot);
void hc__slots_free(hc__set *);
void hc__slots_clear_gone(hc__set *);
void hc__slots_compare(hc__set *, uint32_t name);   /* RIVALS: the items of this name are others now */
int hc__slot_raised(const hc__set *, int32_t slot); /* by any source */
int hc__bit(uint64_t bits);                         /* index of the lowest one */

/* ---- the set ----------------------------------------------------------------------------------------------- */

/* A first meeting under way at this node. At most two signatures: the one of the lowest rank, and one other. */
struct hc__first {
    hc__first *prev, *next;         /* all of the set */
    hc__first *out_prev, *out_next; /* to go up; at the root: ready */
    hc__sig *sigs[2];
    int32_t ranks[2]; /* lowest set rank of each */
    uint32_t name;
    uint8_t nsigs, sent, out, rooted;
    uint64_t have[]; /* bits of sources */
};

typedef struct hc__running {
    struct hc__running *next;
    uint64_t batch, started;
    uint32_t nnames, room;
    uint8_t warned;
    uint32_t names[];
} hc__running;

typedef struct hc__query hc__query;

enum hc__flag { HC__F_STOP = 1, HC__F_PREEMPT = 2, HC__F_JOINALL = 4, HC__F_LEAVE = 8 };
#define HC__F_LEAVER (HC__F_STOP | HC__F_LEAVE) /* with these goes who has left */
#define HC__NOBODY (-1)                         /* has left */
#define HC__OF_WORLD(rank) (-2 - (rank))        /* has left the World, and with it this set; its own inverse */

/* A stall that somebody was told to print. */
#define HC__PRINTED 8
typedef struct hc__printed {
    uint64_t key[2], at; /* at 0: never used */
} hc__printed;

struct hc__set {
    hc_engine *engine;
    hc__set *next_dirty;
    uint32_t id, wire; /* number; with its generation: what messages call it */
    int32_t set_rank, set_size, parent, nchildren;
    hc_child *children;
    uint32_t nsources; /* 0: this rank; 1..: the children */
    uint32_t nwords, stride;
    uint8_t dirty;
    uint8_t stopping;   /* HC_EV_STOP here: nothing new is taken */
    uint8_t stopped;    /* STOP is in the log */
    uint8_t leaving;    /* HC_REQUEST_LAST was asked for here */
    uint8_t left;       /* LEAVE is in the log */
    uint8_t or_sent;    /* hc__flag */
    uint8_t or_out;     /* hc__flag */
    uint8_t up_flying;  /* T4: a message to the parent has not left yet */
    uint8_t joined;     /* this rank has joined */
    uint8_t loose;      /* ... and had requests pending at that time (L5) */
    uint8_t flush_owed; /* a caller waits for what cannot be raised before JOINALL */
    uint64_t q;         /* entries applied */
    uint64_t changed;   /* position of the last change of any slot */
    uint64_t freed;     /* position of the last freeing of any slot */

    hc__names names;
    uint32_t oldest, newest, unraised; /* pending list: ends, and the first that is not raised */
    uint32_t nwaited;                  /* pending requests that a caller waits for */
    uint64_t unraised_bytes;

    hc__slot *slots; /* 64 a row */
    uint64_t *rows;
    int32_t lru_oldest, lru_newest;
    uint32_t nslots;

    hc__first *firsts, *firsts_last, *out, *out_last;
    uint32_t *joined_firm, *joined_loose; /* ranks a source */
    uint32_t out_firm, out_loose;         /* to go up; at the root: all that are joined */
    int32_t last_joined;
    int32_t leaver; /* the first to stop or leave: the log's word, or what was heard before it spoke */
    uint64_t join_ticket, joined_at;

    uint64_t next_batch;
    hc__running *running, *running_last;

    hc__query *queries;
    uint64_t next_ask, asked_ticket; /* the request that next_ask is about */
    uint32_t asked_times, nqueries;
    char *last_report;                /* HC__TEXT bytes, or NULL */
    hc__printed printed[HC__PRINTED]; /* root */
};

void hc__touch(hc__set *); /* something is to be sent or committed when the step ends */
hc__set *hc__set_find(const hc_engine *, uint32_t id);
hc__set *hc__set_called(const hc_engine *, uint32_t wire); /* of this generation, or NULL */
int hc__set_add(hc_engine *, const hc_set_config *);
int hc__set_remove(hc_engine *, uint32_t id);
void hc__set_free(hc__set *);
uint32_t hc__set_source(const hc__set *, int32_t peer); /* of a child, or 0 */

/* ---- enqueue.c, raise.c -------------------------------------------------------------------------------------- */

void hc__enqueue(hc__set *, const hc_request *);
void hc__flush(hc_engine *, uint64_t ticket); /* R1 */
void hc__raise_all(hc__set *);
void hc__raise_again(hc__set *); /* L5 */
void hc__pending_unlink(hc__set *, uint32_t name);

/* ---- tree.c ----------------------------------------------------------------------------------------------------- */

void hc__tree_have_slot(hc__set *, int32_t slot); /* by this rank; hc__tree_rise follows */
void hc__tree_have_first(hc__set *, uint32_t name, uint32_t source, hc__sig *, int32_t rank, int rooted);
void hc__tree_rise(hc__set *, uint32_t from_word, uint32_t to_word); /* T2, T3 for slots */
void hc__tree_clash(hc__set *, int32_t slot);
void hc__tree_flag(hc__set *, uint8_t flag);
void hc__tree_joined(hc__set *, uint32_t source, uint32_t firm, uint32_t loose, int32_t last);
int hc__tree_whole(const hc__set *, uint32_t source); /* wholly joined */
int hc__tree_has(const hc__set *, uint32_t name, uint32_t source);
void hc__first_drop(hc__set *, hc__first *);
void hc__tree_clear(hc__set *); /* the log has ended */
/* What has risen and waits for the next message up; at the root it is ready for the next entry. */
typedef uint8_t *hc__write_first(const hc__first *, uint8_t *);
int hc__tree_any_out(const hc__set *);                                         /* slots and first meetings */
uint8_t *hc__tree_write_firsts(const hc__set *, uint8_t *, hc__write_first *); /* u32 n, n first meetings */
void hc__tree_clear_out(hc__set *);

/* ---- up.c: the messages that rise --------------------------------------------------------------------------------- */

void hc__up_send(hc__set *);
int hc__up_receive(hc__set *, uint32_t source, const uint8_t *, size_t);

/* ---- entry.c, log.c, commit.c: the log ---------------------------------------------------------------------------- */

enum hc__outcome { HC__AGREED, HC__DISAGREED, HC__ROOTLESS };

typedef struct hc__entry_first {
    uint8_t outcome;
    hc__sig_view sig; /* AGREED, ROOTLESS; of DISAGREED the name only */
    uint64_t key[2];
    const uint8_t *text;
    uint32_t text_len;
} hc__entry_first;

typedef struct hc__entry {
    uint64_t position;
    uint8_t flags; /* hc__flag */
    int32_t last_joined, leaver;
    hc__column_view clash, commit, rootless;
    uint32_t nfirsts;
    hc__entry_first *firsts; /* lent */
} hc__entry;

/* A request of this entry that will run: its agreed signature and, where this rank takes part, its name. */
typedef struct hc__agreed {
    hc__sig *sig;
    uint32_t name; /* HC__NONE: this rank has joined */
    uint8_t cached;
} hc__agreed;

/* T8. HC__HEADER bytes before it are free for a header. NULL: nothing to commit. */
uint8_t *hc__entry_make(hc__set *, size_t *nbytes);
int hc__entry_read(hc_engine *, hc__reader *, int32_t set_size, hc__entry *); /* form only */
int hc__entry_check(hc__set *, hc__entry *);                                  /* against this rank's state */
void hc__log_apply(hc__set *, const hc__entry *);
void hc__log_end(hc__set *);
int hc__commit(hc__set *); /* root: 1 when an entry was made */
/* Messages, header included. */
int hc__entry_receive(hc__set *, const uint8_t *, size_t);
void hc__send_up(hc_engine *, int32_t peer, const uint8_t *, size_t);   /* to a parent */
void hc__send_down(hc_engine *, int32_t peer, const uint8_t *, size_t); /* bytes: lent or longer lived */
uint8_t *hc__write_leaver(const hc__set *, uint8_t flags, uint8_t *);
int32_t hc__read_leaver(const hc_engine *, hc__reader *, uint8_t flags, int32_t set_size);

/* ---- fuse.c, complete.c, join.c, stop.c ------------------------------------------------------------------------------------ */

void hc__fuse(hc__set *, const hc__agreed *, uint32_t n);
hc_action *hc__complete(hc_engine *, uint64_t ticket, int status, const char *text, uint64_t position);
void hc__finish(hc__set *, uint32_t name, int status, const char *text, uint64_t position);
int hc__batch_done(hc__set *, uint64_t batch, int status, const char *text);
void hc__running_free(hc__set *);
void hc__join(hc__set *, uint64_t ticket);
void hc__stop(hc__set *);
void hc__heard(hc__set *, uint8_t flags, int32_t leaver); /* a child's flags */
void hc__leave(hc__set *);                                /* HC_REQUEST_LAST: of this set, the World: of all */
void hc__leave_look(hc__set *);                           /* what is pending here, or who has left, has changed */
const char *hc__shut_down_text(hc__set *);
void hc__join_void(hc__set *);              /* T6: loose joins, when slots are freed */
void hc__join_again(hc__set *);             /* L5 */
void hc__join_all(hc__set *, int32_t last); /* L6 */

/* ---- stall.c, who.c, report.c, fail.c ------------------------------------------------------------------------------------------ */

/* A question under way: which ranks lack the item with this key (0, 0: which have not joined)? */
struct hc__query {
    hc__query *next;
    uint64_t key[2];
    uint64_t deadline;
    uint32_t first_asker; /* source */
    uint32_t unanswered;  /* children */
    uint32_t lacking, silent;
    uint32_t nranks;
    int32_t ranks[HC__LISTED]; /* set ranks that lack the item */
    int32_t silent_rank;       /* World rank of the first silent child */
    uint8_t collecting;
    uint64_t bits[]; /* two sets of sources: who asks, who has not answered */
};

typedef struct hc__report {
    uint8_t reporter; /* the one who receives it is to print it */
    uint32_t awaited, nranks, text_len;
    int32_t ranks[HC__LISTED];
    const char *text;
} hc__report;

void hc__stall_tick(hc__set *);
uint64_t hc__stall_deadline(const hc__set *);
int hc__query_is_join(const uint64_t key[2]);
int hc__query_asks(const hc__query *, uint32_t source);
uint8_t *hc__query_message(hc__set *, int message, const uint64_t key[2], size_t more, uint8_t **p);
uint8_t *hc__write_ranks(uint8_t *, const int32_t *ranks, uint32_t n);
void hc__report_write(const hc__set *, const hc__query *, char text[HC__TEXT], hc__report *); /* at the root */
void hc__report_down(hc__set *, const hc__query *, const hc__report *);
void hc__report_late(hc__set *, const uint64_t key[2], const hc__report *); /* the question has expired here */
void hc__who(hc__set *, uint32_t source, const uint64_t key[2]);
uint64_t hc__who_deadline(const hc__set *);
void hc__who_tick(hc__set *);
int hc__stall_receive(hc__set *, int message, uint32_t source, const uint8_t *, size_t);
void hc__stall_forget(hc__set *, const uint64_t key[2]);
void hc__stall_free(hc__set *);
void hc__fail(hc_engine *, int status, int32_t lost, const char *text, int32_t from);
int hc__fail_receive(hc_engine *, int32_t from, const uint8_t *, size_t);
int hc__message(hc_engine *, int32_t peer, const uint8_t *, size_t);

static inline uint64_t hc__later(uint64_t from, uint64_t by) { /* never wraps */
    return by > HC__NEVER - from ? HC__NEVER : from + by;
}

/* ---- the engine ---------------------------------------------------------------------------------------------------------- */

typedef struct hc__lent {
    struct hc__lent *next;
    size_t room, used;
} hc__lent;

/* A message for a set that is not here yet. */
typedef struct hc__early {
    struct hc__early *next;
    int32_t peer;
    uint32_t wire;
    size_t nbytes;
    uint8_t bytes[];
} hc__early;

typedef struct hc__counters {
    hc_counter messages_up, messages_down, bytes_up, bytes_down;
    hc_counter entries, batches, cached_commits, first_commits, mismatches, evictions, clashes;
} hc__counters;

#define HC__FAIL_FIXED (HC__HEADER + 4 + 4 + 4)

struct hc_engine {
    hc_engine_config config;
    uint64_t now;
    hc__set **sets;
    uint32_t nsets; /* room in sets */
    hc__set *dirty;
    uint32_t over[HC_MAX_SETS]; /* generations of each number below this one have ended here */
    hc__early *early;
    size_t early_bytes;

    hc_action *actions;
    uint32_t nactions, actions_room, actions_reserved;
    hc_action spare;
    hc__lent *lent;
    hc__sig *dead;
    uint8_t *scratch;
    size_t scratch_room;

    uint64_t due;    /* the nearest deadline; the last WAKE_AT */
    uint8_t retime;  /* deadlines may have changed */
    uint8_t starved; /* memory ran out in this step */
    uint8_t flooded; /* a failure has been passed on */
    uint8_t failed;
    char *failure; /* why, HC__TEXT bytes; NULL before, or when there was no memory for it */
    uint8_t
        last_words[HC__FAIL_FIXED + HC__TEXT]; /* the message that floods, and its text: there is always room for it */
    uint64_t bytes;
    hc__counters counters;
};

#endif
