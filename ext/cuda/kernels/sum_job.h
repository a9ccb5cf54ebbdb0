/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_job.h - the argument of the kernels of sum.cu: the same struct on the host and, by value, on the device.
 */
#ifndef HC_SUM_JOB_H
#define HC_SUM_JOB_H

#define HC_SUM_THREADS 256
#define HC_SUM_MOST 508 /* sources: as many as fit into the 4096 bytes of arguments that every driver takes */

enum { HC_SUM_ADD, HC_SUM_MULTIPLY, HC_SUM_LEAST, HC_SUM_GREATEST };

typedef struct hc_sum_job {
    unsigned long long to;      /* may be one of the sources */
    unsigned long long count;   /* elements */
    unsigned long long vectors; /* of 16 bytes, from the first element on: 0 where an address does not allow it */
    unsigned short operation, sources;
    float divisor; /* of a mean of floats; else 1 */
    unsigned long long from[HC_SUM_MOST];
} hc_sum_job;

#endif
