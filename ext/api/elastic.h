/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.h - a World that is a generation of an elastic job.
 */
#ifndef HC_API_ELASTIC_H
#define HC_API_ELASTIC_H

#include "api/base.h"

/* The next World of this process reports to the launcher which ranks this one has lost. */
void hc__report_lost(const hc__base *);

#endif
