/* SPDX-License-Identifier: Apache-2.0
 *
 * left_out.c - stands for the kernels, which are not compiled: no data is moved, and no result needs memory.
 */
#include <stdlib.h>

#define LEFT_OUT(name) \
    void name(void) {  \
        abort();       \
    }
LEFT_OUT(hc_host_convert)
LEFT_OUT(hc_host_copy)
LEFT_OUT(hc_host_neutral)
LEFT_OUT(hc_host_reduce)
LEFT_OUT(hc_result_new)
LEFT_OUT(hc_work_new)

void *hc_host_arithmetic[64]; /* a table of functions; nodes have one of their own */

void hc_result_free(void *memory) {
    if (memory)
        abort();
}
