/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h - a net between threads of one process: for tests, for a World of one, and for Worlds made of threads.
 */
#pragma once

#include "transport/net/net.h"

/* Makes nets[0..n-1], which deliver to each other; each is freed by itself. */
int hc_local_net_new(int32_t n, hc_net **nets);
