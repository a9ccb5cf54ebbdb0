/* SPDX-License-Identifier: Apache-2.0
 *
 * enqueue.h - enqueues a request.
 */
#ifndef HC_CORE_ENQUEUE_H
#define HC_CORE_ENQUEUE_H

#include "core/base.h"

void hc__enqueue(hc__set *, const hc_request *); /* a refusal is a COMPLETE */

#endif
