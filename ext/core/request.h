/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h - signatures: the part of a request that all ranks must agree on.
 *
 * A signature is kept as bytes, which are equal exactly if signatures are equal, and decoded once. Request, first
 * announcement, slot and batch share one object.
 */
#pragma once

#include "core/base.h"

#define HC__MAX_SIGNATURE (1u << 26) /* bytes */
#define HC__WHY_REFUSED 512          /* bytes of the text of a refusal */

/* What a name says. */
enum hc__unnamed {
    HC__NAMED,    /* the program has given it */
    HC__NUMBERED, /* a number, as the caller gave it: ranks may give other numbers to the same call */
    HC__ORDERED   /* the position of the call in the order of this set, which never comes again (numbers.h) */
};

typedef struct hc__sig hc__sig;
struct hc__sig {
    uint64_t key[2]; /* hash of the name */
    uint32_t refs;
    uint32_t nbytes;
    uint32_t size;       /* of this block */
    uint64_t fuse_class; /* requests of one class may share a batch; 0: none may */
    uint64_t payload;    /* bytes of all tensors */
    const uint8_t *bytes;
    uint8_t unnamed;    /* enum hc__unnamed */
    hc__sig *next;      /* in the list of dead signatures, or of this rank's refusals of a name */
    hc_request request; /* ticket 0; points into this block */
};

typedef struct hc__sig_view { /* points into the checked bytes */
    const uint8_t *bytes;
    uint32_t nbytes;
    const uint8_t *name;
    uint32_t name_len;
    uint32_t ntensors, ndims; /* dims of all tensors together */
    int32_t root;
    uint8_t operation, is_refusal, is_counted;
} hc__sig_view;

/* 1: several tensors that are agreed and completed together, or one tensor that was requested as a group. */
static inline int hc__is_group(const hc_request *request) {
    return request->ntensors > 1 || (request->flags & HC_REQUEST_GROUP);
}

static inline int hc__is_refusal(const hc_request *request) {
    return request->flags & HC_REQUEST_REFUSED;
}

int hc__unnamed(const void *name, size_t bytes); /* enum hc__unnamed */
/* Encodes a request; the bytes live until the next call. Returns an error text, or NULL. */
const char *hc__sig_encode(hc_engine *, const hc_request *, hc__sig_view *);
/* Checks all bytes and fills the view. Returns an error text, or NULL. `set_size` bounds the root. */
const char *hc__sig_check(const uint8_t *, size_t, int32_t set_size, hc__sig_view *);
/* Copies and decodes checked bytes. The caller owns the only reference. NULL: out of memory. */
hc__sig *hc__sig_new(hc_engine *, const hc__sig_view *, const uint64_t key[2]);
hc__sig *hc__sig_ref(hc__sig *);
void hc__sig_unref(hc_engine *,
                   hc__sig *);       /* freed at the next step, because actions may point at it; NULL is allowed */
void hc__sig_free_dead(hc_engine *); /* the next step begins */
int hc__sig_is(const hc__sig *, const uint8_t *bytes, uint32_t nbytes);
