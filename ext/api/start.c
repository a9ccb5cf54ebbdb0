/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - from a rendezvous to a loop: the reports of the ranks, the nodes, the net, the driving threads.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/nets.h"
#include "api/parts.h"
#include "api/settings.h"
#include "api/start.h"
#include "api/start_steps.h"

#include "core/fnv.h"
#include "transport/arithmetic.h"
#include "world/machines.h"
#include "world/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- the report of a rank ----------------------------------------------------------------------------------- */

/* It has a fixed size, so that rank 0 knows it. Every rank gets the reports of all others, so it is small: it has only
 * a hash of the settings that must be equal. If the hashes differ, the ranks exchange the texts. */
typedef struct hello {
    char host[64], nonce[17];
    uint64_t agreed;  /* the hash */
    uint64_t machine; /* the same of its name, which is equal on ranks that can share memory */
    int32_t pid, thread_level;
    uint8_t background, is_wrong; /* this rank's settings are */
    hc_address address;
} hello;

static void draw_nonce(char nonce[17]) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)getpid() << 32 ^ (uintptr_t)nonce;
    snprintf(nonce, 17, "%016llx", (unsigned long long)number);
}

static hc_address find_address(const hc__base *base, const char *host) {
    return hc_address_of(&(hc_address_facts){.host = host,
                                             .file = base->settings.node_file,
                                             .slurm = hc__settings_variable("SLURM_TOPOLOGY_ADDR"),
                                             .slurm_pattern = hc__settings_variable("SLURM_TOPOLOGY_ADDR_PATTERN")});
}

static void fill_in_hello(const hc__base *base, int wrong, hello *h) {
    char agreed[HC__AGREED_BYTES], machine[HC_MACHINE_BYTES];
    memset(h, 0, sizeof *h);
    gethostname(h->host, sizeof h->host - 1);
    hc_machine_name(machine);
    h->machine = hc_fnv(machine, strlen(machine));
    h->pid = (int32_t)getpid();
    h->thread_level = base->mpi && hc__net_is_mpi(base) ? base->mpi->thread_level() : 3;
    h->background = base->settings.background;
    h->is_wrong = wrong < 0;
    draw_nonce(h->nonce);
    h->address = find_address(base, h->host);
    hc__settings_agreed(&base->settings, agreed);
    h->agreed = hc_fnv(agreed, strlen(agreed));
}

/* ---- nodes -------------------------------------------------------------------------------------------------- */

typedef struct located {
    uint64_t machine;
    int32_t rank;
} located;

static int by_machine(const void *left, const void *right) {
    const located *a = left, *b = right;
    if (a->machine != b->machine)
        return a->machine < b->machine ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Numbers the machines, and counts the ranks on this one. `order`: the ranks sorted by machine. */
static void number_machines(hc__base *base, const located *order, int32_t *machine_of) {
    const int32_t size = base->job->size;
    for (int32_t i = 0, first = 0; i < size; i++) {
        first = order[first].machine == order[i].machine ? first : i;
        machine_of[order[i].rank] = first;
    }
    for (int32_t rank = 0; rank < size; rank++) {
        int here = machine_of[rank] == machine_of[base->job->rank];
        base->settings.loop.machine_size += here;
        base->machine_rank += here && rank < base->job->rank;
    }
}

/* Makes each machine a node, or as many nodes as the knob requests. Returns their number, or a status (error set). */
static int place(hc__base *base, const hello *hellos) {
    char why[HC_WHY];
    size_t size = (size_t)base->job->size;
    located *order = malloc(size * sizeof *order);
    int32_t *machine_of = malloc(size * sizeof *machine_of);
    int nodes = order && machine_of ? HC_OK : hc__error(HC_NO_MEMORY, NULL);
    if (nodes >= 0) {
        for (int32_t r = 0; r < base->job->size; r++)
            order[r] = (located){hellos[r].machine, r};
        qsort(order, size, sizeof *order, by_machine);
        number_machines(base, order, machine_of);
        nodes = hc_machines_to_nodes(machine_of, base->job->size, base->settings.nodes, base->job->node_of, why);
        if (nodes < 0)
            nodes = hc__error(nodes, "the World was not made: %s", why);
        else
            hc_job_find_locals(base->job);
    }
    free(order);
    free(machine_of);
    return nodes;
}

/* ---- processes, the order of the nodes ---------------------------------------------------------------------- */

/* The hosts and the addresses of the nodes, those of the lowest rank on each, and the process of each rank. */
static void collect_nodes(const hc__base *base, const hello *hellos, const char **hosts, const char **addresses,
                          int32_t *pids) {
    for (int32_t r = 0, nodes = 0; r < base->job->size; r++) {
        pids[r] = hellos[r].pid;
        if (base->job->node_of[r] == nodes) {
            hosts[nodes] = hellos[r].host;
            addresses[nodes++] = hellos[r].address.text;
        }
    }
}

/* Writes which kinds of addresses two ranks have; "": all ranks have those of one kind. */
static void compare_kinds(const hc__base *base, const hello *hellos, char *text, size_t room) {
    *text = 0;
    for (int32_t r = 1; r < base->job->size && !*text; r++)
        if (hellos[r].address.kind != hellos[0].address.kind)
            snprintf(text, room, "%s on rank 0; %s on rank %d", hc_address_called(hellos[0].address.kind),
                     hc_address_called(hellos[r].address.kind), (int)r);
}

static int order_by(hc__base *base, const hc_node_reports *reports) {
    hc_node_order found;
    int status = hc_nodes_choose(reports, &found);
    if (status < 0)
        return status;
    if (*found.why && base->job->rank == 0 && base->settings.verbose)
        fprintf(stderr, "hpccoll (C): %s\n", found.why);
    if (*found.said)
        snprintf(base->nodes.order, sizeof base->nodes.order, ", ordered by %s", found.said);
    base->job->places = found.places;
    return HC_OK;
}

/* Stores the process of each rank, for texts, and orders the nodes along the network. A deterministic sum is added in
 * the order of the ranks, on any nodes. */
static int describe_nodes(hc__base *base, const hello *hellos, int32_t nodes) {
    const int32_t size = base->job->size;
    char differing[256];
    const char **texts = malloc(2 * (size_t)nodes * sizeof *texts + (size_t)size * sizeof(int32_t));
    int32_t *pids = (int32_t *)(void *)(texts + 2 * (size_t)nodes);
    const hc_processes processes = {texts, base->job->node_of, pids};
    hc_node_reports reports = {texts,     texts + nodes,           nodes, hellos[0].address.kind,
                               differing, base->settings.node_file};
    int status = HC_NO_MEMORY;
    if (texts) {
        collect_nodes(base, hellos, texts, texts + nodes, pids);
        status = hc_processes_copy(&processes, nodes, size, &base->processes);
    }
    if (status >= 0 && nodes > 1 && !base->settings.loop.deterministic) {
        compare_kinds(base, hellos, differing, sizeof differing);
        status = order_by(base, &reports);
    }
    free(texts);
    return status < 0 ? hc__error(status, NULL) : HC_OK;
}

/* Call it on all ranks if settings differ: the ranks exchange them, and the error names the difference. */
static int name_difference(const hc__base *base, hc_rendezvous *r) {
    char mine[HC__AGREED_BYTES], a[128], b[128];
    char (*all)[HC__AGREED_BYTES] = calloc((size_t)r->size, sizeof *all);
    hc__settings_agreed(&base->settings, mine);
    int status = hc__start_exchange(r, mine, sizeof mine, all);
    for (int32_t rank = 1; status >= 0 && rank < r->size; rank++)
        if (hc__settings_differ(all[0], all[rank], a, b))
            status = hc__error(HC_MISMATCH,
                               "the World was not made: settings differ between ranks: %s on rank 0, %s on rank %d; "
                               "they must be equal on all ranks",
                               a, b, (int)rank);
    free(all);
    return status;
}

/* If the settings of a rank are wrong, all ranks get its error. */
static int compare_settings(const hc__base *base, hc_rendezvous *r, const hello *hellos, int wrong) {
    for (int32_t rank = 0; rank < r->size; rank++)
        if (hellos[rank].is_wrong)
            return hc__start_agree(r, wrong, hpccoll_last_error());
    for (int32_t rank = 1; rank < r->size; rank++)
        if (hellos[rank].agreed != hellos[0].agreed)
            return name_difference(base, r);
    return HC_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------- */

/* Chooses the driving threads from the MPI thread levels of all ranks. Without a net any thread may drive. */
static void choose_driver(hc__base *base, const hello *hellos, int has_net) {
    int level = has_net ? hellos[base->job->rank].thread_level : 3;
    hc_loop_config *loop = &base->settings.loop;
    loop->background = base->settings.background && level == 3;
    loop->one_thread = level < 2;
    loop->heartbeat = 1;
    for (int32_t r = 0; r < base->job->size; r++)
        loop->heartbeat &= hellos[r].background && (!has_net || hellos[r].thread_level == 3);
}

static void say_what_was_chosen(const hc__base *base, const hc_rendezvous *r, int32_t nodes) {
    if (base->job->rank != 0 || !base->settings.verbose)
        return;
    char waiting[128], stores[128], devices[512];
    hc__devices_describe(base, devices, sizeof devices);
    hc_loop_describe_stores(base->job->loop, stores, sizeof stores);
    hc_loop_describe_waiting(base->job->loop, waiting, sizeof waiting);
    fprintf(stderr,
            "hpccoll %s (C): %d rank%s on %d node%s%s%s%s; inside a node shared memory (%s)%s%s%s; %s; waits: %s; "
            "stores: %s%s%s\n",
            HPCCOLL_VERSION, (int)base->job->size, base->job->size > 1 ? "s" : "", (int)nodes, nodes > 1 ? "s" : "",
            *base->settings.nodes ? ", emulated by HPCCOLL_NODES=" : "", base->settings.nodes, base->nodes.order,
            hc_kernels_name(), base->job->net ? ", between nodes " : "", base->nodes.net, devices,
            base->settings.loop.background ? "a background thread drives"
                                           : "waiting callers drive (no background thread)",
            waiting, stores, *r->ops->met ? "; " : "", r->ops->met);
    if (*base->settings.ignored)
        fprintf(stderr, "hpccoll (C): without effect in a program without Python: %s\n", base->settings.ignored);
}

/* 1: this World has a net, also on one node if the net moves the memory of GPUs; 0: it has none; or a status (error
 * set). */
static int needs_net(const hc__base *base, int32_t nodes) {
    int for_devices = strcmp(base->settings.device_mode, "mpi") == 0 && base->job->size > 1;
    if (for_devices && !hc__net_is_mpi(base))
        return hc__error(HC_UNSUPPORTED,
                         "the World was not made: HPCCOLL_DEVICE_MODE=mpi, and the net UCX does not move the memory of "
                         "GPUs");
    return for_devices || nodes > 1;
}

static int build(hc__base *base, hc_rendezvous *r, const void *comm, int wrong, hello *hellos) {
    hello mine;
    fill_in_hello(base, wrong, &mine);
    int status = hc__start_exchange(r, &mine, sizeof mine, hellos);
    if (status < 0 || (status = compare_settings(base, r, hellos, wrong)) < 0)
        return status;
    memcpy(base->job->nonce, hellos[0].nonce, sizeof base->job->nonce);
    int32_t nodes = place(base, hellos);
    if (nodes < 0)
        return nodes;
    if ((status = describe_nodes(base, hellos, nodes)) < 0)
        return status;
    r->processes = &base->processes;
    int has_net = needs_net(base, nodes);
    if (has_net < 0)
        return has_net;
    if (has_net && (status = hc__net_make(base, r, comm, base->settings.loop.machine_size == base->job->size)) < 0)
        return status;
    if (base->mpi && !(has_net && hc__net_is_mpi(base)))
        hc_loop_drive_mpi(base->mpi->progress);
    choose_driver(base, hellos, has_net);
    if ((status = hc__parts_make(base, r)) < 0)
        return status;
    say_what_was_chosen(base, r, nodes);
    return HC_OK;
}

int hc__start(hc__base *base, hc_rendezvous *r, const void *comm, int wrong) {
    const hc__settings *settings = &base->settings;
    hello *hellos = calloc((size_t)base->job->size, sizeof *hellos);
    int status = hellos ? HC_OK : hc__error(HC_NO_MEMORY, NULL);
    if (wrong >= 0 && hc_kernels_select(settings->simd) < 0)
        wrong = hc__error(HC_INVALID, "simd %s: this CPU or this build lacks it", settings->simd);
    if (wrong >= 0)
        wrong = hc__devices_find(base);
    if (status >= 0)
        status = build(base, r, comm, wrong, hellos);
    free(hellos);
    return status;
}
