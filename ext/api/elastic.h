/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.h - a World that is a generation of an elastic job.
 */
#pragma once

#include "api/base.h"

/* The next World of this process reports to the launcher which ranks this one has lost. */
void hc__report_lost(const hc__base *);
