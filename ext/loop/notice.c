/* SPDX-License-Identifier: Apache-2.0
 *
 * notice.c - a line that is printed unless something ends in time. A thread of its own prints it, without Python's
 * lock: MPI_Init holds that for as long as it hangs.
 */
#include "loop/driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hc_notice {
    pthread_t thread;
    _Atomic uint32_t off; /* futex */
    uint64_t due;
    char text[];
};

static void *wait_and_print(void *argument) {
    hc_notice *notice = argument;
    for (uint64_t now; !atomic_load(&notice->off);) {
        if ((now = hc__loop_now()) >= notice->due) {
            fprintf(stderr, "%s\n", notice->text);
            return NULL;
        }
        hc__futex_wait(&notice->off, 0, notice->due - now);
    }
    return NULL;
}

hc_notice *hc_notice_new(uint64_t ns, const char *text) {
    hc_notice *notice = calloc(1, sizeof *notice + strlen(text) + 1);
    if (!notice)
        return NULL;
    strcpy(notice->text, text);
    notice->due = hc__loop_now() + ns;
    sigset_t all, before; /* signals are the program's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&notice->thread, NULL, wait_and_print, notice);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(notice);
        return NULL;
    }
    return notice;
}

void hc_notice_free(hc_notice *notice) {
    if (!notice)
        return;
    atomic_store(&notice->off, 1);
    hc__futex_wake(&notice->off);
    pthread_join(notice->thread, NULL);
    free(notice);
}
