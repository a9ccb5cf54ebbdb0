/* SPDX-License-Identifier: Apache-2.0
 *
 * up.h - the messages from a node to its parent.
 */
#pragma once

#include "core/base.h"

void hc__up_send(hc__set *); /* if there is something to send, and the last message has left */
int hc__up_receive(hc__set *, uint32_t source, const uint8_t *, size_t);
