/* SPDX-License-Identifier: Apache-2.0
 *
 * nodes.h - ranks with a node control segment, for scenarios.
 */
#ifndef MM_NODES_H
#define MM_NODES_H

#include "memory_model/explorer.h"
#include "transport/shm/control_segment.h"

extern hc_node_control *mm_controls[MM_THREADS]; /* of each rank */
extern const int32_t mm_ranks[MM_THREADS];       /* 0, 1, ... */

void mm_make_controls(int ranks);
void mm_free_controls(void);

#define MM_LONG UINT64_C(10000000000) /* ns: a sleep without end for the explorer */

/* Calls until it is done. Ranks that sleep wake each other by doorbells; the others look again. */
#define MM_UNTIL_DONE(rank, sleeps, call)                         \
    for (int status_; (status_ = (call)) != HC_DONE;) {           \
        mm_check(status_ >= 0, "a call has failed");              \
        if (status_ == HC_IDLE && !(sleeps))                      \
            mm_wait();                                            \
        if (status_ != HC_IDLE || !(sleeps))                      \
            continue;                                             \
        uint32_t seen_ = hc_doorbell_listen(mm_controls[rank]);   \
        status_ = (call);                                         \
        if (status_ == HC_IDLE)                                   \
            hc_doorbell_sleep(mm_controls[rank], seen_, MM_LONG); \
        if (status_ == HC_DONE)                                   \
            break;                                                \
    }

#endif
