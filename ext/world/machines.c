/* SPDX-License-Identifier: Apache-2.0
 *
 * machines.c - see machines.h.
 */
#include "world/machines.h"

#include "core/hc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void hc_machine_name(char name[HC_MACHINE_BYTES]) {
    char host[65] = "", boot[40] = "";
    struct stat shm = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    gethostname(host, sizeof host - 1);
    if (file && fscanf(file, "%39s", boot) != 1)
        boot[0] = 0;
    if (file)
        fclose(file);
    stat("/dev/shm", &shm);
    snprintf(name, HC_MACHINE_BYTES, "%s (boot %s, /dev/shm %llx)", host, boot, (unsigned long long)shm.st_dev);
}

typedef struct machine {
    int32_t ranks, seen;
    int32_t block, node; /* of the last rank that was seen */
} machine;

/* The sum of "3+1"; -1: the text is something else. */
static int64_t sum_of(const char *blocks) {
    int64_t sum = 0;
    char *end;
    for (const char *at = blocks;; at = end + 1) {
        long ranks = strtol(at, &end, 10);
        if (end == at || ranks < 1 || ranks > INT32_MAX || (*end && *end != '+'))
            return -1;
        sum += ranks;
        if (!*end)
            return sum;
    }
}

/* Whether the blocks fit a machine of so many ranks, whose lowest is `first`. */
static int check(const char *nodes, int32_t ranks, int32_t first, char why[HC_WHY]) {
    int64_t sum = sum_of(nodes);
    if (sum < 0)
        return hc__refuse(why, HC_INVALID,
                          "HPCCOLL_NODES=%s: it is a number of nodes (\"2\") or ranks per node "
                          "(\"3+1\")",
                          nodes);
    if (strchr(nodes, '+'))
        return sum == ranks
                   ? HC_OK
                   : hc__refuse(why, HC_INVALID, "HPCCOLL_NODES=%s places %lld ranks, the machine of rank %d has %d",
                                nodes, (long long)sum, (int)first, (int)ranks);
    return sum <= ranks ? HC_OK
                        : hc__refuse(why, HC_INVALID, "HPCCOLL_NODES=%s: the machine of rank %d has only %d rank%s",
                                     nodes, (int)first, (int)ranks, ranks > 1 ? "s" : "");
}

/* The block of rank i of a machine with n ranks. */
static int32_t block_of(const char *nodes, int32_t n, int32_t i) {
    int32_t block = 0;
    if (!strchr(nodes, '+')) {
        int32_t blocks = (int32_t)strtol(nodes, NULL, 10), larger = n % blocks, ranks = n / blocks;
        return i < larger * (ranks + 1) ? i / (ranks + 1) : larger + (i - larger * (ranks + 1)) / ranks;
    }
    for (char *at = (char *)nodes; (i -= (int32_t)strtol(at, &at, 10)) >= 0; at++)
        block++;
    return block;
}

static int32_t number_nodes(machine *machines, const int32_t *machine_of, int32_t size, const char *nodes,
                            int32_t *node_of, char why[HC_WHY]) {
    int32_t found = 0;
    for (int32_t rank = 0; rank < size; rank++) {
        machine *m = &machines[machine_of ? machine_of[rank] : 0];
        if (*nodes && !m->seen && check(nodes, m->ranks, rank, why) < 0)
            return HC_INVALID;
        int32_t block = *nodes ? block_of(nodes, m->ranks, m->seen) : 0;
        if (!m->seen || block != m->block)
            m->node = found++;
        m->block = block;
        m->seen++;
        node_of[rank] = m->node;
    }
    return found;
}

int32_t hc_machines_to_nodes(const int32_t *machine_of, int32_t size, const char *nodes, int32_t *node_of,
                             char why[HC_WHY]) {
    machine *machines = calloc((size_t)size, sizeof *machines);
    if (!machines)
        return hc__refuse(why, HC_NO_MEMORY, "%s", hc_status_text(HC_NO_MEMORY));
    for (int32_t rank = 0; rank < size; rank++)
        machines[machine_of ? machine_of[rank] : 0].ranks++;
    int32_t found = number_nodes(machines, machine_of, size, nodes, node_of, why);
    free(machines);
    return found;
}
