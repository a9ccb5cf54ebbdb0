/* SPDX-License-Identifier: Apache-2.0
 *
 * tags.h - the tags of a process set's messages between nodes.
 */
#pragma once

/* Tags of a set: the pipeline's channels first, then one tag per purpose. Messages between two ranks with one tag are
 * matched in order, and every rank posts the messages of one batch before those of the next, so one tag per purpose is
 * enough. */
enum hc__tag {
    HC__TAG_CHANNELS = 0,
    HC__TAG_GATHER = 64,
    HC__TAG_BROADCAST = 65,
    HC__TAG_COUNTS = 66,
    HC__TAG_ALLTOALL = 67,
    HC__TAG_ROOTED = 68,
    HC__TAG_SCAN = 69
};
#define HC__MAX_CHANNELS 64
