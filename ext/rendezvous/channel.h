/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.h - authenticated messages over TCP to the launcher: the connecting end of hpccoll/channel.py, which has the
 * protocol.
 */
#pragma once

#include "core/hc.h"

#include <stddef.h>

#define HC_CHANNEL_WHY 256

typedef struct hc_channel hc_channel;

/* `text`: SECRET@HOST:PORT,HOST:PORT. Connects to the first address that answers; an end that is busy is tried again
 * for `ns`. OK, or a status and why. */
int hc_channel_connect(const char *text, uint64_t ns, hc_channel **, char why[HC_CHANNEL_WHY]);
/* Sends a question and waits for its answer, at most `ns`. `*answer`: ends with a 0; the caller frees it. OK; STALLED;
 * or a status and why. */
int hc_channel_ask(hc_channel *, const char *question, uint64_t ns, char **answer, char why[HC_CHANNEL_WHY]);
/* Sends a message within `ns`. OK, or a status and why. */
int hc_channel_send(hc_channel *, const char *message, uint64_t ns, char why[HC_CHANNEL_WHY]);
/* The next message; `ns` is for its beginning, 0: it has come already. `*message`: as `*answer`. OK; STALLED: none has
 * come; or a status and why, and the connection has ended. */
int hc_channel_receive(hc_channel *, uint64_t ns, char **message, char why[HC_CHANNEL_WHY]);
/* Waits for `ns`, or until hc_channel_receive() has something to do. Another thread may use the channel meanwhile. */
void hc_channel_await(const hc_channel *, uint64_t ns);
void hc_channel_close(hc_channel *); /* NULL is allowed */
