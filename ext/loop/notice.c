/* SPDX-License-Identifier: Apache-2.0
 *
 * notice.c - prints a line unless something ends in time, and later ends the process. It has its own thread and needs
 * no Python lock: a hanging MPI_Init holds that lock.
 */
#include "loop/clock.h"
#include "loop/handle.h"
#include "loop/state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hc_notice {
    pthread_t thread;
    _Atomic uint32_t off; /* futex */
    uint64_t due;         /* UINT64_MAX: never */
    uint64_t limit;       /* likewise */
    const char *final_line;
    char text[];
};

static void end_process(const hc_notice *notice) {
    fprintf(stderr, "%s\n", notice->final_line);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

static void *wait_and_print(void *argument) {
    hc_notice *notice = argument;
    while (!atomic_load(&notice->off)) {
        uint64_t now = hc__loop_now(), next = notice->due < notice->limit ? notice->due : notice->limit;
        if (next == UINT64_MAX)
            break;
        if (now < next) {
            hc__futex_wait(&notice->off, 0, next - now);
        } else if (next == notice->due) {
            fprintf(stderr, "%s\n", notice->text);
            notice->due = UINT64_MAX;
        } else {
            end_process(notice);
        }
    }
    return NULL;
}

hc_notice *hc_notice_new(uint64_t ns, const char *text, uint64_t limit, const char *final_line) {
    size_t room = strlen(text) + 1;
    hc_notice *notice = calloc(1, sizeof *notice + room + strlen(final_line) + 1);
    if (!notice)
        return NULL;
    strcpy(notice->text, text);
    notice->final_line = strcpy(notice->text + room, final_line);
    notice->due = *text ? hc__loop_now() + ns : UINT64_MAX;
    notice->limit = *final_line ? hc__loop_now() + limit : UINT64_MAX;
    sigset_t all, before; /* blocks all signals, so that the program's threads handle them */
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
