/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h - what a call that never waits answers.
 */
#ifndef HC_PROGRESS_H
#define HC_PROGRESS_H

/* What a call that may have to be repeated answers. */
enum hc_progress {
    HC_IDLE = 0,  /* not done, and nothing moved: the driver may wait */
    HC_MOVED = 1, /* not done, but something moved: ask again soon */
    HC_DONE = 2
};

#endif
