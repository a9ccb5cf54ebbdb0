/* SPDX-License-Identifier: Apache-2.0
 *
 * results.h - memory for results, and reserves of it.
 */
#pragma once

#include "transport/batch.h"

typedef struct hc__hierarchy hc__hierarchy;
typedef struct hc__vote hc__vote; /* verdict.h */

/* For a result of more bytes than this, all ranks vote before its rows move, because a rank may lack memory. A smaller
 * result that finds no memory uses a reserve, allocated before the ranks exchange their rows: one per piece of a batch,
 * up to RESERVES. For pieces beyond RESERVES all ranks vote. */
#ifndef HC__ASKED_BYTES
#define HC__ASKED_BYTES ((int64_t)256 << 10)
#endif
#define HC__RESERVES 4096

/* Memory for results, and the votes on it. */
typedef struct hc__results {
    hc__vote *votes; /* of all ranks, during a verdict */
    void **reserves; /* room for nreserves, at most HC__RESERVES; an element may be NULL */
    int64_t nreserves;
    char why[160]; /* base.text, if there was no memory */
} hc__results;

/* Sets *out to the memory for `rows` rows of the piece's result: the caller's, or new memory. It uses *spare (freed
 * first) if this rank needs no result, or if the caller's `out` has the wrong size: then the batch goes on, because
 * other ranks need this one, and ends with RESULT_SIZE. */
int hc__place_result(hc__hierarchy *, hc_piece *, int64_t rows, void **spare, void **out);
/* Lets the node choose how it stores results; hc__place_result() calls it. passing: bytes of input and results. */
void hc__expect_result(hc__hierarchy *, int64_t passing);
