/* SPDX-License-Identifier: Apache-2.0
 *
 * type.c - encodes the type of a message's elements in 8 bytes of its header.
 *
 * The 8 bytes hold the number of a dtype, or the name of another type. A name of more than 8 bytes becomes a hash,
 * after a byte that no name begins with. So most errors can name the type of the message, and headers stay small.
 */
#include <stdio.h>
#include <string.h>

#include "core/fnv.h"
#include "transport/p2p/p2p.h"

#define HASHED 0xFF /* no UTF-8 begins with it, and no dtype has it */

static uint64_t type_of(const char *name) {
    uint64_t type = 0;
    size_t bytes = strlen(name);
    if (bytes <= sizeof type) {
        memcpy(&type, name, bytes);
        return type;
    }
    type = hc_fnv(name, bytes);
    *(uint8_t *)&type = HASHED;
    return type;
}

void hc_p2p_name_type(hc_p2p_op *op, int dtype, const char *name) {
    op->type = name ? type_of(name) : (uint64_t)dtype + 1;
    op->type_name = name;
}

const char *hc_p2p_type_text(uint64_t type, char text[HC_P2P_TYPE_TEXT]) {
    const uint8_t *bytes = (const uint8_t *)&type;
    if (type - 1 < HC_DTYPE_COUNT)
        return hc_dtype_name((int)type - 1);
    if (*bytes == HASHED)
        snprintf(text, HC_P2P_TYPE_TEXT, "a type whose text has hash %014llx", (unsigned long long)(type >> 8));
    else
        snprintf(text, HC_P2P_TYPE_TEXT, "%.8s", (const char *)bytes);
    return text;
}
