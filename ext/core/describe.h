/* SPDX-License-Identifier: Apache-2.0
 *
 * describe.h - describes requests in texts.
 */
#pragma once

#include "core/text.h"

void hc__describe(hc__text *, const hc_request *); /* allreduce 'name' */
/* Names the first difference between two requests of one name, with both values. */
void hc__describe_mismatch(hc__text *, int32_t rank_a, const hc_request *a, int32_t rank_b, const hc_request *b);
void hc__describe_root_joined(hc__text *, const hc_request *);
