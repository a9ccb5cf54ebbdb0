/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_job.h - the argument of the pack kernels: the same struct on the host and, by value, on the device.
 *
 * It includes no header, so a device compiler needs none.
 */
#ifndef HC_PACK_JOB_H
#define HC_PACK_JOB_H

#define HC_PACK_CHUNK 8192 /* elements: the unit of work, so that one huge tensor unbalances nothing */
#define HC_PACK_THREADS 256
#define HC_PACK_UNIT 16    /* bytes: the largest access, and the alignment of tensors in the buffer */
#define HC_PACK_INLINE 169 /* entries that fit into the 4096 bytes of arguments that every driver takes */

typedef struct hc_pack_entry {
    unsigned long long tensor; /* its address */
    unsigned long long count;  /* elements, more than 0 */
    unsigned place;            /* position in the buffer, in units of 16 bytes */
    unsigned first;            /* the number of its first chunk */
} hc_pack_entry;

typedef struct hc_pack_job {
    unsigned long long buffer; /* its address, a multiple of 16 */
    unsigned long long table;  /* the entries' address on the device; 0: they are below */
    double scale;
    unsigned entries, chunks;
    unsigned unpack; /* 0: tensors to buffer; 1: buffer to tensors */
    float divisor;   /* applied after the factor, if the width stays the same */
    hc_pack_entry entry[HC_PACK_INLINE];
} hc_pack_job;

#endif
