/* SPDX-License-Identifier: Apache-2.0
 *
 * nets.c - makes the net between the nodes of a World, over MPI or UCX, as hpccoll/net does for Python.
 */
#include "api/codes.h"
#include "api/nets.h"
#include "api/start_steps.h"

#include "core/fnv.h"
#include "transport/net/ucx_interfaces.h"
#include "transport/net/ucx_net.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_BYTES 512
#define WHY_BYTES (HC_UCX_WHY + 64)

int hc__net_is_mpi(const hc__base *base) {
    return strcmp(base->settings.net, "mpi") == 0 || (base->mpi && strcmp(base->settings.net, "ucx") != 0);
}

/* ---- MPI --------------------------------------------------------------------------------------------------- */

static int make_mpi(hc__base *base, hc_rendezvous *r, const void *comm, int one_machine) {
    const char *why = "MPI_Comm_idup did not end in time, or failed";
    int status = HC_UNSUPPORTED;
    if (base->mpi)
        status = base->mpi->comm_duplicate(comm, r->timeout, base->comm);
    else
        why = "net=mpi (HPCCOLL_NET), and this World was not made of an MPI communicator: hpccoll_world_from_mpi() "
              "makes such a World";
    if (status >= 0)
        status = base->mpi->net_new(base->comm, one_machine, &base->job->net);
    if (status >= 0)
        snprintf(base->nodes.net, sizeof base->nodes.net, "MPI of the family of %s", base->mpi->name);
    return hc__start_agree(r, status, why);
}

/* ---- the interfaces of all machines ------------------------------------------------------------------------ */

/* The interfaces of all machines, and this one's number among them. */
typedef struct surroundings {
    hc_interface *all, *own;
    int n, nown;
    uint32_t mine;
} surroundings;

/* The network namespace of the running kernel: ranks in one see the same interfaces. */
static uint64_t network_namespace(void) {
    struct stat found = {0};
    char text[80] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, 40);
    if (fd >= 0)
        close(fd);
    stat("/proc/self/ns/net", &found);
    n = n > 0 ? n : 0;
    snprintf(text + n, sizeof text - (size_t)n, " %llu", (unsigned long long)found.st_ino);
    return hc_fnv(text, strlen(text));
}

typedef struct network {
    uint64_t number;
    int32_t rank, interfaces;
} network;

static int by_number(const void *left, const void *right) {
    const network *a = left, *b = right;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Keeps the interfaces of the lowest rank in each network namespace, whose number becomes that of the machine. */
static void keep_one_of_each(network *networks, int32_t size, const hc_interface *reported, int32_t most,
                             surroundings *s, int32_t rank) {
    qsort(networks, (size_t)size, sizeof *networks, by_number);
    for (int32_t first = 0, end; first < size; first = end) {
        for (end = first; end < size && networks[end].number == networks[first].number; end++)
            if (networks[end].rank == rank)
                s->mine = (uint32_t)networks[first].rank;
        for (int32_t i = 0; i < networks[first].interfaces; i++) {
            s->all[s->n] = reported[(size_t)networks[first].rank * (size_t)most + (size_t)i];
            s->all[s->n++].machine = (uint32_t)networks[first].rank;
        }
    }
}

static int exchange_interfaces(hc_rendezvous *r, surroundings *s) {
    int32_t most = 0;
    network mine = {network_namespace(), r->rank, s->nown}, *networks = calloc((size_t)r->size, sizeof *networks);
    int status = hc__start_exchange(r, &mine, sizeof mine, networks);
    for (int32_t rank = 0; rank < r->size && status >= 0; rank++)
        most = networks[rank].interfaces > most ? networks[rank].interfaces : most;
    size_t each = (size_t)most * sizeof *s->own, total = (size_t)r->size * each;
    hc_interface *padded = calloc(1, each + 1), *reported = malloc(total + 1);
    s->all = malloc(total + 1);
    if (status >= 0 && padded)
        memcpy(padded, s->own, (size_t)s->nown * sizeof *s->own);
    if (status >= 0)
        status = hc__start_exchange(r, padded, each, padded && s->all ? reported : NULL);
    if (status >= 0)
        keep_one_of_each(networks, r->size, reported, most, s, r->rank);
    free(reported);
    free(padded);
    free(networks);
    return status;
}

static void say_what_is_there(const surroundings *s, const char *wanted, char why[WHY_BYTES]) {
    size_t at = *wanted ? (size_t)snprintf(why, WHY_BYTES, "HPCCOLL_INTERFACE=%.64s is no interface here that is up",
                                           wanted)
                        : (size_t)snprintf(why, WHY_BYTES,
                                           "no interface here leads to the other hosts: name one by "
                                           "HPCCOLL_INTERFACE");
    for (int i = 0; i < s->nown && at < WHY_BYTES; i++) {
        uint32_t ip = s->own[i].address;
        at += (size_t)snprintf(why + at, WHY_BYTES - at, "%s%s (%u.%u.%u.%u)", i ? ", " : "; there are ",
                               s->own[i].name, ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
    }
}

/* "eth0,mlx5_0:1" */
static int choose_devices(const surroundings *s, const char *wanted, char names[NAMES_BYTES], char why[WHY_BYTES]) {
    char adapters[NAMES_BYTES];
    int status = hc_interfaces_choose(s->all, s->n, s->mine, wanted, names, NAMES_BYTES);
    if (status < 0)
        return status;
    if (!*names) {
        say_what_is_there(s, wanted, why);
        return HC_UNSUPPORTED;
    }
    hc_interfaces_infiniband(adapters, sizeof adapters);
    if (!*wanted && *adapters && strlen(names) + 1 + strlen(adapters) < NAMES_BYTES)
        strcat(strcat(names, ","), adapters);
    return HC_OK;
}

/* ---- UCX --------------------------------------------------------------------------------------------------- */

/* The UCX that the process has loaded, else the named one, else the system's. */
static int open_ucx(const hc__base *base, char why[HC_UCX_WHY]) {
    const char *named = base->settings.ucx_library;
    return hc_ucx_open(*named ? named : "libucp.so.0", why);
}

/* `devices`: those of the user (UCX_NET_DEVICES), which UCX reads itself, or the chosen ones. */
static int begin_ucx(hc_rendezvous *r, const surroundings *s, const char *wanted, hc_net **net, char why[WHY_BYTES]) {
    char names[NAMES_BYTES] = "", reason[HC_UCX_WHY] = "";
    int by_user = hc__settings_variable("UCX_NET_DEVICES") != NULL;
    int status = by_user ? HC_OK : choose_devices(s, wanted, names, why);
    if (status < 0)
        return status;
    const char *const chosen[] = {"NET_DEVICES", names, NULL}, *const none[] = {NULL};
    status = hc_ucx_net_new(r->rank, r->size, by_user ? none : chosen, net, reason);
    if (status < 0)
        snprintf(why, WHY_BYTES, "a net over UCX could not be made: %s", reason);
    return status;
}

typedef struct offer {
    uint64_t address_bytes;
    uint32_t generation, has_rdma;
} offer;

static int connect_all(hc_rendezvous *r, hc_net *net, const offer *offers, const char *addresses, size_t most) {
    const void **starts = calloc((size_t)r->size, sizeof(void *));
    size_t *bytes = calloc((size_t)r->size, sizeof *bytes);
    int status = starts && bytes ? HC_OK : HC_NO_MEMORY, all_rdma = 1;
    for (int32_t rank = 0; rank < r->size && status >= 0; rank++) {
        starts[rank] = addresses + (size_t)rank * most;
        bytes[rank] = offers[rank].address_bytes;
        all_rdma &= (int)offers[rank].has_rdma;
    }
    if (status >= 0)
        status = hc_ucx_net_connect(net, (uint16_t)offers[0].generation, all_rdma, starts, bytes);
    free(starts);
    free(bytes);
    return status;
}

/* Exchanges the addresses of all ranks' nets, and gives them to this rank's. */
static int connect_ucx(hc_rendezvous *r, hc_net *net, uint32_t generation, int has_rdma) {
    offer mine = {.generation = generation, .has_rdma = (uint32_t)has_rdma};
    size_t own_bytes = 0, most = 0;
    const void *own = hc_ucx_net_address(net, &own_bytes);
    offer *offers = calloc((size_t)r->size, sizeof *offers);
    mine.address_bytes = own_bytes;
    int status = hc__start_exchange(r, &mine, sizeof mine, offers);
    for (int32_t rank = 0; rank < r->size && status >= 0; rank++)
        most = offers[rank].address_bytes > most ? offers[rank].address_bytes : most;
    char *padded = calloc(1, most + 1), *addresses = padded ? malloc(most * (size_t)r->size + 1) : NULL;
    if (status >= 0) {
        if (padded)
            memcpy(padded, own, own_bytes);
        status = hc__start_exchange(r, padded, most, addresses);
    }
    if (status >= 0)
        status = hc__start_agree(r, connect_all(r, net, offers, addresses, most), "a net over UCX could not be made");
    free(addresses);
    free(padded);
    free(offers);
    return status;
}

static int make_ucx(hc__base *base, hc_rendezvous *r) {
    char why[WHY_BYTES] = "";
    int has_rdma = 0;
    surroundings s = {.nown = 0};
    int status = hc__start_agree(r, open_ucx(base, why), why);
    if (status < 0)
        return status;
    s.nown = hc_interfaces_read(&s.own);
    status = hc__start_agree(r, s.nown, "the network interfaces cannot be read");
    if (status >= 0)
        status = exchange_interfaces(r, &s);
    if (status >= 0)
        status = hc__start_agree(r, begin_ucx(r, &s, base->settings.interface, &base->job->net, why), why);
    free(s.all);
    free(s.own);
    if (status < 0)
        return status;
    char *devices = hc_ucx_net_devices(base->job->net, &has_rdma);
    snprintf(base->nodes.net, sizeof base->nodes.net, "UCX %s (%.100s) on %.100s", hc_ucx_version(), hc_ucx_file(),
             devices && *devices ? devices : "no device");
    free(devices);
    uint32_t generation = (uint32_t)strtoul(base->job->nonce + 12, NULL, 16); /* 16 of the World's random bits */
    return connect_ucx(r, base->job->net, generation, has_rdma);
}

int hc__net_make(hc__base *base, hc_rendezvous *r, const void *comm, int one_machine) {
    return hc__net_is_mpi(base) ? make_mpi(base, r, comm, one_machine) : make_ucx(base, r);
}
