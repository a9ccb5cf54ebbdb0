/* SPDX-License-Identifier: Apache-2.0
 *
 * segment.c - memory shared by the ranks of a node: creates, reserves, attaches and unlinks it.
 *
 * A file under /dev/shm grows on the first touch of a page, and a full file system then answers with SIGBUS
 * in the middle of a reduction. So every page is reserved before any rank maps the file, and a full file system
 * becomes an error text.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "transport/shm/segment.h"

#define FILE_PREFIX "hpccoll-"
#define NAME_PREFIX "/" FILE_PREFIX
#define FOLDER "/dev/shm"
#define LEFT_BEHIND_AFTER 60 /* seconds: a start locks and unlinks its file much earlier */

static int fail(char *why, size_t room, const char *what, const char *name, int error) {
    const char *remedy = error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "";
    snprintf(why, room, "%s shared memory %s: %s%s", what, name, strerror(error), remedy);
    return HC_TRANSPORT;
}

static int fail_full(char *why, size_t room, const char *name, size_t bytes, int fd) {
    struct statvfs fs;
    unsigned long long have = fstatvfs(fd, &fs) == 0 ? (unsigned long long)fs.f_bavail * fs.f_frsize : 0;
    snprintf(why, room,
             "shared memory %s needs %zu bytes but /dev/shm has only %llu bytes left; give it more (in a "
             "container: docker run --shm-size=..., or an emptyDir of medium Memory on /dev/shm)",
             name, bytes, have);
    return HC_TRANSPORT;
}

/* The process may not write so large a file, whatever room there is. */
static int fail_of_limit(char *why, size_t room, const char *name, size_t bytes, const struct rlimit *files) {
    snprintf(why, room,
             "shared memory %s needs %zu bytes but a file of this process may have only %llu bytes; raise "
             "the limit (ulimit -f)",
             name, bytes, (unsigned long long)files->rlim_cur);
    return HC_TRANSPORT;
}

static int map(hc_segment *segment, const char *name, int fd, size_t bytes, char *why, size_t room) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        close(fd);
        return fail(why, room, "cannot map", name, error);
    }
    *segment = (hc_segment){.base = base, .bytes = bytes, .fd = fd};
    return HC_OK;
}

/* 1: the file is a segment whose creator was killed before it unlinked it. A creator holds a lock while it lives; the
 * lock is visible in all namespaces and containers that see the file. */
static int is_left_behind(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           time(NULL) - st.st_mtime > LEFT_BEHIND_AFTER && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_left_behind(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    DIR *folder = atomic_flag_test_and_set(&done) ? NULL : opendir(FOLDER);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0)
            continue;
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (is_left_behind(fd))
            unlinkat(dirfd(folder), entry->d_name, 0);
        close(fd);
    }
    closedir(folder);
}

int hc_segment_reserve(int fd, off_t from, size_t bytes, const char *name, char *why, size_t why_room) {
    int error;
    do {
        error = posix_fallocate(fd, from, (off_t)bytes);
    } while (error == EINTR);
    struct rlimit files;
    if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < (rlim_t)from + bytes)
        return fail_of_limit(why, why_room, name, (size_t)from + bytes, &files);
    if (error == ENOSPC || error == EFBIG)
        return fail_full(why, why_room, name, bytes, fd);
    return error != 0 ? fail(why, why_room, "cannot reserve", name, error) : HC_OK;
}

int hc_segment_file(const hc_segment *segment, const char *name, char *why, size_t why_room) {
    int fd = fcntl(segment->fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? fail(why, why_room, "cannot keep", name, errno) : fd;
}

int hc_segment_create(hc_segment *segment, const char *name, size_t bytes, char *why, size_t why_room) {
    if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0 || bytes == 0) {
        snprintf(why, why_room, "shared memory %s: a name begins with " NAME_PREFIX " and has a size", name);
        return HC_INVALID;
    }
    remove_left_behind();
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(why, why_room, "cannot create", name, errno);
    flock(fd, LOCK_SH | LOCK_NB);
    int status = hc_segment_reserve(fd, 0, bytes, name, why, why_room);
    if (status != HC_OK)
        close(fd);
    else
        status = map(segment, name, fd, bytes, why, why_room);
    if (status != HC_OK)
        shm_unlink(name);
    return status;
}

int hc_segment_attach(hc_segment *segment, const char *name, size_t bytes, char *why, size_t why_room) {
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return fail(why, why_room, "cannot attach", name, errno);
    struct stat st;
    if (fstat(fd, &st) != 0 || (size_t)st.st_size != bytes) {
        snprintf(why, why_room, "shared memory %s has %lld bytes where %zu are expected", name, (long long)st.st_size,
                 bytes);
        close(fd);
        return HC_TRANSPORT;
    }
    return map(segment, name, fd, bytes, why, why_room);
}

int hc_segment_unlink(const char *name) {
    return shm_unlink(name) == 0 ? HC_OK : HC_TRANSPORT;
}

void hc_segment_close_file(hc_segment *segment) {
    if (segment->fd < 0)
        return;
    close(segment->fd);
    segment->fd = HC_SEGMENT_WITHOUT_FILE;
}

int hc_segment_private(hc_segment *segment, size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return HC_NO_MEMORY;
    *segment = (hc_segment){.base = base, .bytes = bytes, .fd = -1};
    return HC_OK;
}

void hc_segment_close(hc_segment *segment) {
    if (segment->slice.of != NULL)
        segment->slice.leave(segment);
    else if (segment->base != NULL)
        munmap(segment->base, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    *segment = (hc_segment){.fd = -1};
}
