/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.c - texts of statuses, and the last error of each thread.
 *
 * `make bindings` generates the numbers of hpccoll.h from core/hc.h; the build fails if they differ.
 */
#include "api/codes.h"
#include "api/hpccoll.h"
#include "core/hc.h"

#include <stdarg.h>
#include <stdio.h>

#define SAME(name) _Static_assert((int)HPCCOLL_##name == (int)HC_##name, "api/hpccoll.h has " #name " as core/hc.h");
#define X(name, ...) SAME(name)
HC_DTYPES(X)
HC_OPERATIONS(X)
HC_REDUCTIONS(X)
HC_STATUSES(X)
#undef X
_Static_assert((int)HPCCOLL_DTYPES == (int)HC_DTYPE_COUNT, "api/hpccoll.h has all dtypes");
_Static_assert((int)HPCCOLL_OPERATIONS == (int)HC_OPERATION_COUNT, "api/hpccoll.h has all operations");
_Static_assert((int)HPCCOLL_REDUCTIONS == (int)HC_REDUCTION_COUNT, "api/hpccoll.h has all reductions");

static _Thread_local char last_error[HC__ERROR_BYTES];

int hc__error(int status, const char *format, ...) {
    va_list arguments;
    last_error[0] = 0;
    if (format) {
        va_start(arguments, format);
        vsnprintf(last_error, sizeof last_error, format, arguments);
        va_end(arguments);
    }
    if (!last_error[0])
        snprintf(last_error, sizeof last_error, "%s", hc_status_text(status));
    return status;
}

const char *hpccoll_last_error(void) {
    return last_error;
}

const char *hpccoll_strerror(int status) {
    return hc_status_text(status);
}

const char *hpccoll_version(void) {
    return HPCCOLL_VERSION;
}
