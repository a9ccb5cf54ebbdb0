/* SPDX-License-Identifier: Apache-2.0
 *
 * cores.c - the cores that the ranks of a node may use, and whether they are enough.
 *
 * Each rank can have its own core if no set of processors is smaller than the number of ranks that are bound to it
 * (Hall's theorem). All launchers bind so that two masks are disjoint, or one contains the other; then it is enough to
 * check the ranks' masks and their union. A control group with a quota counts as a set of cores.
 */
#include "transport/shm/cores.h"

#include "core/fnv.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS (HC_CORES_MOST / 64)
#define PATH_ROOM 4096

static int lies_in(const hc_cores *part, const hc_cores *whole) {
    for (int w = 0; w < WORDS; w++)
        if (part->word[w] & ~whole->word[w])
            return 0;
    return 1;
}

/* ---- the quota of a control group -------------------------------------------------------------------- */

static int read_file(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static long read_number(const char *folder, const char *name) {
    char path[PATH_ROOM + 32], text[32], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    long number = read_file(path, text, sizeof text) ? strtol(text, &end, 10) : -1;
    return number > 0 ? number : 0;
}

/* Thousandths of a core; 0: no limit. */
static uint32_t quota_of(const char *folder) {
    char path[PATH_ROOM + 32], text[64], *end;
    long limit, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_file(path, text, sizeof text)) { /* "max 100000", or "150000 100000" */
        limit = strtol(text, &end, 10);
        period = end == text ? 0 : strtol(end, NULL, 10);
    } else {
        limit = read_number(folder, "cpu.cfs_quota_us");
        period = read_number(folder, "cpu.cfs_period_us");
    }
    return limit > 0 && period > 0 ? (uint32_t)((double)limit * 1000 / (double)period) : 0;
}

typedef struct strictest {
    uint32_t quota;
    uint64_t group;
} strictest;

static void look_at(const char *folder, strictest *found) {
    uint32_t quota = quota_of(folder);
    if (quota && (!found->quota || quota < found->quota))
        *found = (strictest){quota, hc_fnv(folder, strlen(folder))};
}

/* One line of /proc/self/cgroup, "0::/a/b" or "4:cpu,cpuacct:/a/b": each folder from the top to the group. */
static void look_along(const char *root, char *line, strictest *found) {
    char folder[PATH_ROOM], *controllers = strchr(line, ':'), *path = controllers ? strchr(++controllers, ':') : NULL;
    if (!path)
        return;
    *path++ = 0;
    int is_cpu = strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0 ||
                 strstr(controllers, ",cpu,") ||
                 (strlen(controllers) > 4 && strcmp(controllers + strlen(controllers) - 4, ",cpu") == 0);
    if (*controllers && !is_cpu)
        return;
    int used = snprintf(folder, sizeof folder, "%s%s", root, is_cpu ? "/cpu" : "");
    for (char *rest, *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (strcmp(part, "..") == 0)
            continue; /* the group is outside this name space */
        used += snprintf(folder + used, sizeof folder - (size_t)used, "/%s", part);
        if (used >= (int)sizeof folder)
            return;
        look_at(folder, found);
    }
}

uint32_t hc_cores_quota(const char *root, const char *own, uint64_t *group) {
    char text[PATH_ROOM], folder[PATH_ROOM], *rest;
    strictest found = {0};
    look_at(root, &found);
    snprintf(folder, sizeof folder, "%s/cpu", root);
    look_at(folder, &found);
    if (read_file(own, text, sizeof text))
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            look_along(root, line, &found);
    *group = found.group;
    return found.quota;
}

/* ---- the cache that its cores share ------------------------------------------------------------------ */

/* A virtual machine shows invented caches. */
static int is_virtual(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 31 & 1;
#else
    return 0;
#endif
}

/* "0-7,64-71" */
static void read_list(const char *text, hc_cores *found) {
    for (char *end; *text; text = *end == ',' ? end + 1 : "") {
        long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i >= 0 && i < HC_CORES_MOST; i++)
            found->word[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

static int32_t first_of(const hc_cores *cores) {
    for (int w = 0; w < WORDS; w++)
        if (cores->word[w])
            return w * 64 + __builtin_ctzll(cores->word[w]);
    return -1;
}

uint32_t hc_cores_l3(const hc_cores *cores, const char *processors) {
    char folder[PATH_ROOM], path[PATH_ROOM + 32], text[512];
    for (int index = 0; index < 8; index++) {
        hc_cores l3 = {.quota = 0};
        snprintf(folder, sizeof folder, "%s/cpu%d/cache/index%d", processors, (int)first_of(cores), index);
        snprintf(path, sizeof path, "%s/shared_cpu_list", folder);
        if (read_number(folder, "level") != 3 || !read_file(path, text, sizeof text))
            continue;
        read_list(text, &l3);
        return lies_in(cores, &l3) ? 1 + (uint32_t)first_of(&l3) : 0;
    }
    return 0;
}

/* ---- what a process may use -------------------------------------------------------------------------- */

void hc_cores_read(hc_cores *cores) {
    cpu_set_t mask[HC_CORES_MOST / CPU_SETSIZE];
    memset(cores, 0, sizeof *cores);
    CPU_ZERO_S(sizeof mask, mask);
    int known = sched_getaffinity(0, sizeof mask, mask) == 0;
    long online = known ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < HC_CORES_MOST; i++)
        if (known ? CPU_ISSET_S(i, sizeof mask, mask) : i < online)
            cores->word[i / 64] |= UINT64_C(1) << (i % 64);
    cores->l3 = is_virtual() ? 0 : hc_cores_l3(cores, "/sys/devices/system/cpu");
    cores->quota = hc_cores_quota("/sys/fs/cgroup", "/proc/self/cgroup", &cores->group);
}

int32_t hc_cores_count(const hc_cores *cores) {
    int32_t n = 0;
    for (int w = 0; w < WORDS; w++)
        n += __builtin_popcountll(cores->word[w]);
    return n;
}

/* ---- are there enough? ------------------------------------------------------------------------------- */

static hc_crowd within(const hc_cores *const *all, int32_t n, const hc_cores *mask) {
    hc_crowd found = {.cores = hc_cores_count(mask)};
    for (int32_t r = 0; r < n; r++)
        found.ranks += lies_in(all[r], mask);
    return found;
}

static hc_crowd with_quota_of(const hc_cores *const *all, int32_t n, const hc_cores *one) {
    hc_crowd found = {.cores = one->quota / 1000.0, .by_quota = 1};
    for (int32_t r = 0; r < n; r++)
        found.ranks += all[r]->quota == one->quota && all[r]->group == one->group;
    return found;
}

static int is_worse(const hc_crowd *one, const hc_crowd *than) {
    return one->ranks * than->cores > than->ranks * one->cores;
}

/* 1: the ranks of the machine that are not among these `n` have cores enough beside theirs. A launcher that binds ranks
 * gives each its own. */
static int have_others(int32_t n, const hc_crowd *together, int32_t machine, int32_t online) {
    return machine - n <= online - together->cores;
}

hc_crowd hc_cores_crowd(const hc_cores *const *all, int32_t n, int32_t machine, int32_t online) {
    hc_cores any = {.quota = 0};
    for (int32_t r = 0; r < n; r++)
        for (int w = 0; w < WORDS; w++)
            any.word[w] |= all[r]->word[w];
    hc_crowd together = within(all, n, &any);
    int32_t as_many = have_others(n, &together, machine, online) ? n : machine; /* ranks on the cores of n */
    together.ranks = as_many;
    hc_crowd worst = together;
    for (int32_t r = 0; r < n; r++) {
        hc_crowd bound = within(all, n, all[r]), granted = with_quota_of(all, n, all[r]);
        bound.ranks = bound.ranks * as_many / n;
        granted.ranks = granted.ranks * machine / n;
        worst = is_worse(&bound, &worst) ? bound : worst;
        worst = all[r]->quota && is_worse(&granted, &worst) ? granted : worst;
    }
    worst.shared = worst.ranks > worst.cores;
    return worst.shared ? worst : together;
}
