/* SPDX-License-Identifier: Apache-2.0
 *
 * entry.h - an entry of the log as bytes.
 */
#pragma once

#include "core/request.h"
#include "core/wire.h"

enum hc__outcome { HC__AGREED, HC__DISAGREED, HC__ROOTLESS };

typedef struct hc__entry_first {
    uint8_t outcome;
    hc__sig_view sig; /* AGREED, ROOTLESS; of DISAGREED the name only */
    uint64_t key[2];
    const uint8_t *text;
    uint32_t text_len;
} hc__entry_first;

typedef struct hc__entry { /* points into the bytes that were read */
    uint64_t position;
    uint8_t flags; /* hc__flag */
    int32_t last_joined;
    hc__leaver leaver;
    hc_tuning tuning; /* with TUNE */
    hc__column_view conflict, commit, rootless;
    uint32_t nfirsts;
    hc__entry_first *firsts; /* scratch memory */
} hc__entry;

/* T8: makes an entry of all ready items. HC__HEADER bytes before it are free for a header. NULL: nothing is ready. */
uint8_t *hc__entry_make(hc__set *, size_t *nbytes);
int hc__entry_read(hc__set *, hc__reader *, hc__entry *); /* checks only its form; 0 or an error */
int hc__entry_check(hc__set *, hc__entry *);              /* checks it against this rank's state */
