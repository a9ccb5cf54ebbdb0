/* SPDX-License-Identifier: Apache-2.0
 *
 * no_thread.c - a library for LD_PRELOAD: where the variable REFUSE is N > 0, the N-th thread from now is refused, as
 * the system refuses it at the limit of processes (ulimit -u).
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
    static int before;
    const char *refused = getenv("REFUSE");
    if (refused && ++before == atoi(refused))
        return EAGAIN;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, how, run, argument);
}
