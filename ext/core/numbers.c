/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.c - counts this rank's calls without a name.
 */
#include "core/numbers.h"

#include "core/state.h"
#include "core/text.h"

#define JOIN_SHIFT 40 /* joins of this rank above, calls since then below */

uint64_t hc__numbers_count(hc__set *s, const hc_request *request) {
    if (!request->order)
        return 0;
    s->pending.unnamed.last = request->order;
    return s->pending.unnamed.joins << JOIN_SHIFT | (request->order - s->pending.unnamed.base);
}

/* Ranks that have joined do not know how many calls the others make meanwhile. */
void hc__numbers_join(hc__set *s) {
    s->pending.unnamed.base = s->pending.unnamed.last;
    s->pending.unnamed.joins++;
}

void hc__numbers_raised(hc__set *s, int is_unnamed) {
    if (!is_unnamed || s->pending.unnamed.ordered || s->pending.unnamed.due != HC__NEVER)
        return;
    s->pending.unnamed.due = hc__later(s->engine->now, HC__NUMBERS_WAIT);
    s->engine->retime = 1;
}

const hc_request *hc__numbers_rename(const hc__set *s, const hc_request *request, uint64_t order,
                                     hc__renamed *renamed) {
    if (!order || !s->pending.unnamed.ordered)
        return request;
    hc__text text = hc__text_on(renamed->name, sizeof renamed->name);
    hc__put(&text, HC_ORDER_PREFIX "#");
    hc__put_int(&text, (int64_t)(order & ((1ull << JOIN_SHIFT) - 1)));
    if (order >> JOIN_SHIFT) {
        hc__put(&text, " after join ");
        hc__put_int(&text, (int64_t)(order >> JOIN_SHIFT));
    }
    renamed->request = *request;
    renamed->request.name = renamed->name;
    renamed->request.name_len = (uint32_t)text.len;
    return &renamed->request;
}
