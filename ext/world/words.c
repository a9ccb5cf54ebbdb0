/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c - see words.h.
 */
#include "world/words.h"

#include "core/hc.h"

/* Horovod has the first reductions of the table only. */
static const char *horovods_reduction(int code) {
    static const char *const names[HC_REDUCTION_COUNT] = {
        [HC_AVERAGE] = "Average", [HC_SUM] = "Sum", [HC_ADASUM] = "Adasum",
        [HC_MIN] = "Min",         [HC_MAX] = "Max", [HC_PRODUCT] = "Product",
    };
    const char *name = code >= 0 && code < HC_REDUCTION_COUNT ? names[code] : 0;
    return name ? name : hc_reduction_name(code);
}

const hc_words hc_words_table[HC_WORDS_COUNT] = {
    [HC_WORDS_OWN] = {.array = "array",
                      .an_array = "an array",
                      .x = "x",
                      .out = "out",
                      .prescale = "prescale",
                      .postscale = "postscale",
                      .reduction = hc_reduction_name},
    [HC_WORDS_HOROVOD] = {.array = "tensor",
                          .an_array = "a tensor",
                          .x = "the tensor",
                          .out = "result",
                          .prescale = "prescale_factor",
                          .postscale = "postscale_factor",
                          .reduction = horovods_reduction},
};
