/* SPDX-License-Identifier: Apache-2.0
 *
 * mapping.c - a library for LD_PRELOAD: the next mapping of shared memory of hpccoll fails, or kills the process, where
 * the variable STRIKE says "fail" or "kill".
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static int is_hpccolls(int fd) {
    char link[64], path[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/hpccoll-") != NULL;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    const char *how = getenv("STRIKE");
    if (how && (flags & MAP_SHARED) && fd >= 0 && is_hpccolls(fd)) {
        if (strcmp(how, "kill") == 0)
            kill(getpid(), SIGKILL);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    return next(at, bytes, protection, flags, fd, offset);
}
