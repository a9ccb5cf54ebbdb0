/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.h - the handle of a send or a receive.
 */
#pragma once

#include "api/base.h"

/* Checks a message and makes its handle. OK, or a status (error set). */
int hc__message_handle(void *data, int64_t count, hpccoll_dtype, int receives, int peer, int tag, const hpccoll_world *,
                       hc_handle **);
