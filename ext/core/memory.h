/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h - permanent memory, and scratch memory that lives until the next step.
 */
#pragma once

#include "core/base.h"

/* Memory that lives until hc__free(), zeroed and counted. NULL: out of memory, and the engine will fail (starved). */
void *hc__alloc(hc_engine *, size_t bytes);
void hc__free(hc_engine *, void *, size_t bytes);
void *hc__resize(hc_engine *, void *, size_t old_bytes, size_t new_bytes); /* frees nothing when it fails */

/* Memory that lives until the next step; not zeroed. NULL as above. */
void *hc__scratch(hc_engine *, size_t bytes);
const char *hc__scratch_text(hc_engine *, const char *); /* a copy; "" when memory is gone */
void hc__scratch_reset(hc_engine *);                     /* the next step begins */
void hc__scratch_free(hc_engine *);

typedef struct hc__scratch_block {
    struct hc__scratch_block *next;
    size_t room, used;
} hc__scratch_block;
