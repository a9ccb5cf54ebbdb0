/* SPDX-License-Identifier: Apache-2.0
 *
 * enqueue.h - enqueues a request.
 */
#pragma once

#include "core/base.h"

void hc__enqueue(hc__set *, const hc_request *); /* a refusal is a COMPLETE */
