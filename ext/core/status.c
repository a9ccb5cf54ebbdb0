/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c - names and texts of the codes in hc.h, generated from its tables.
 */
#include "core/hc.h"

size_t hc_dtype_size(int dtype) {
    switch (dtype) {
#define X(name, bytes, text) \
    case HC_##name:          \
        return bytes;
        HC_DTYPES(X)
#undef X
    default:
        return 0;
    }
}

int64_t hc_elements(const int64_t *dims, uint32_t n) {
    int64_t most = HC_MAX_ELEMENTS, elements = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (dims[i] < 0 || dims[i] > most)
            return -1;
        most /= dims[i] ? dims[i] : 1;
        elements *= dims[i];
    }
    return elements;
}

const char *hc_dtype_name(int dtype) {
    switch (dtype) {
#define X(name, bytes, text) \
    case HC_##name:          \
        return text;
        HC_DTYPES(X)
#undef X
    default:
        return "?";
    }
}

const char *hc_operation_name(int operation) {
    switch (operation) {
#define X(name, text, traits) \
    case HC_##name:           \
        return text;
        HC_OPERATIONS(X)
#undef X
    default:
        return "?";
    }
}

const uint16_t hc_operation_traits[HC_OPERATION_COUNT] = {
#define X(name, text, traits) [HC_##name] = (traits),
    HC_OPERATIONS(X)
#undef X
};

const char *hc_reduction_name(int reduction) {
    switch (reduction) {
#define X(name, text) \
    case HC_##name:   \
        return text;
        HC_REDUCTIONS(X)
#undef X
    default:
        return "?";
    }
}

const char *hc_status_name(int status) {
    switch (status) {
#define X(name, code, text, exception) \
    case code:                         \
        return #name;
        HC_STATUSES(X)
#undef X
    default:
        return "?";
    }
}

const char *hc_status_text(int status) {
    switch (status) {
#define X(name, code, text, exception) \
    case code:                         \
        return text;
        HC_STATUSES(X)
#undef X
    default:
        return "unknown status";
    }
}

const char *hc_status_exception(int status) {
    switch (status) {
#define X(name, code, text, exception) \
    case code:                         \
        return exception;
        HC_STATUSES(X)
#undef X
    default:
        return "HpccollError";
    }
}
