/* SPDX-License-Identifier: Apache-2.0
 *
 * blow.c - strikes at a system call: a library for LD_PRELOAD that counts the calls which open, change, rename, remove
 * or close files of one folder, and at the one that it is told to, fails it or sends a signal to a process.
 *
 * HDF5 and Python reach the kernel through these functions of libc alone, which `strace` shows.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FDS 4096
#define MOST_CALLS 1024

enum kind { NONE, FAIL, BEFORE, AFTER };

static struct {
    char folder[4096];
    size_t nfolder;
    int at, number; /* of the call that is struck, from 1; how many there were */
    enum kind kind;
    int error, signal;
    const volatile int *victim; /* a process number that may come later than this */
    int is_inside[MOST_FDS];
    char names[MOST_CALLS][16];
} blow;

void blow_arm(const char *folder, int at, int kind, int error, int signal, const volatile int *victim) {
    memset(&blow, 0, sizeof blow);
    blow.at = at, blow.kind = (enum kind)kind, blow.error = error, blow.signal = signal, blow.victim = victim;
    snprintf(blow.folder, sizeof blow.folder, "%s", folder);
    blow.nfolder = strlen(folder);
}

int blow_count(void) {
    return blow.number;
}

const char *blow_name(int number) {
    return number > 0 && number <= blow.number && number <= MOST_CALLS ? blow.names[number - 1] : "";
}

static int has_path(const char *path) {
    return blow.nfolder && strncmp(path, blow.folder, blow.nfolder) == 0 &&
           (path[blow.nfolder] == '/' || !path[blow.nfolder]);
}

static int has_fd(int fd) {
    return fd >= 0 && fd < MOST_FDS && blow.is_inside[fd];
}

static void strike(void) {
    kill(*blow.victim, blow.signal);
}

/* 1: the call is to fail. */
static int begins(const char *name) {
    if (blow.number < MOST_CALLS)
        snprintf(blow.names[blow.number], sizeof blow.names[0], "%s", name);
    if (++blow.number != blow.at)
        return 0;
    if (blow.kind == BEFORE)
        strike();
    errno = blow.error;
    return blow.kind == FAIL;
}

static void ends(void) {
    int before = errno;
    if (blow.number == blow.at && blow.kind == AFTER)
        strike();
    errno = before;
}

/* ISO C has no cast from an object's pointer to a function's. */
#define FIND(real, name) \
    if (!real)           \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

/* A function `type name parameters`, which calls the real one with `arguments` and is struck if `inside`. */
#define STRUCK(type, name, parameters, arguments, inside) \
    type name parameters {                                \
        static __typeof__(&name) real;                    \
        FIND(real, name);                                 \
        if (!(inside))                                    \
            return real arguments;                        \
        if (begins(#name))                                \
            return -1;                                    \
        type result = real arguments;                     \
        ends();                                           \
        return result;                                    \
    }

STRUCK(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n), has_fd(fd))
STRUCK(ssize_t, writev, (int fd, const struct iovec *data, int n), (fd, data, n), has_fd(fd))
STRUCK(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at), has_fd(fd))
STRUCK(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at), has_fd(fd))
STRUCK(ssize_t, pwritev, (int fd, const struct iovec *data, int n, off_t at), (fd, data, n, at), has_fd(fd))
STRUCK(int, fsync, (int fd), (fd), has_fd(fd))
STRUCK(int, fdatasync, (int fd), (fd), has_fd(fd))
STRUCK(int, ftruncate, (int fd, off_t size), (fd, size), has_fd(fd))
STRUCK(int, ftruncate64, (int fd, off64_t size), (fd, size), has_fd(fd))
STRUCK(int, truncate, (const char *path, off_t size), (path, size), has_path(path))
STRUCK(int, truncate64, (const char *path, off64_t size), (path, size), has_path(path))
STRUCK(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), has_fd(fd))
STRUCK(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), has_fd(fd))
STRUCK(int, rename, (const char *from, const char *to), (from, to), has_path(from) || has_path(to))
STRUCK(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
       has_path(from) || has_path(to))
STRUCK(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags),
       has_path(from) || has_path(to))
STRUCK(int, link, (const char *from, const char *to), (from, to), has_path(to))
STRUCK(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags), has_path(to))
STRUCK(int, symlink, (const char *from, const char *to), (from, to), has_path(to))
STRUCK(int, symlinkat, (const char *from, int b, const char *to), (from, b, to), has_path(to))
STRUCK(int, unlink, (const char *path), (path), has_path(path))
STRUCK(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), has_path(path))
STRUCK(int, remove, (const char *path), (path), has_path(path))
STRUCK(int, rmdir, (const char *path), (path), has_path(path))
STRUCK(int, mkdir, (const char *path, mode_t mode), (path, mode), has_path(path))
STRUCK(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), has_path(path))

int close(int fd) {
    static __typeof__(&close) real;
    FIND(real, close);
    if (!has_fd(fd))
        return real(fd);
    blow.is_inside[fd] = 0;
    int fails = begins("close");
    int result = real(fd); /* the number is free, whatever close says */
    ends();
    errno = fails ? blow.error : errno;
    return fails ? -1 : result;
}

#define OPENS(name, parameters, arguments)                                      \
    int name parameters {                                                       \
        static __typeof__(&name) real;                                          \
        FIND(real, name);                                                       \
        va_list more;                                                           \
        va_start(more, flags);                                                  \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                           \
        int inside = has_path(path);                                            \
        if (inside && begins("open"))                                           \
            return -1;                                                          \
        int fd = real arguments;                                                \
        if (inside && fd >= 0 && fd < MOST_FDS)                                 \
            blow.is_inside[fd] = 1;                                             \
        if (inside)                                                             \
            ends();                                                             \
        return fd;                                                              \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
