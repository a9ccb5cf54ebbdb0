/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h - the result of a call that never waits.
 */
#pragma once

/* The result of a call that the driver may have to repeat. */
enum hc_progress {
    HC_IDLE = 0,  /* not done, no progress: the driver may wait */
    HC_MOVED = 1, /* not done, but progress: call again soon */
    HC_DONE = 2
};
