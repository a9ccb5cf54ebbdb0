/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_start.c - see ucx_start.h.
 */
#include "rendezvous/ucx_start.h"

#include "core/fnv.h"
#include "transport/net/ucx_interfaces.h"
#include "transport/net/ucx_net.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_BYTES 512
#define NOT_MADE "a net over UCX could not be made"

static int gather(const hc_exchange *exchange, const void *mine, size_t bytes, void *all) {
    return mine && all ? exchange->allgather(exchange->of, "hpccoll.net", mine, bytes, all) : HC_NO_MEMORY;
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

static int exchange_interfaces(const hc_exchange *exchange, int32_t rank, surroundings *s) {
    const int32_t size = exchange->size;
    int32_t most = 0;
    network mine = {network_namespace(), rank, s->nown}, *networks = calloc((size_t)size, sizeof *networks);
    int status = gather(exchange, &mine, sizeof mine, networks);
    for (int32_t other = 0; other < size && status >= 0; other++)
        most = networks[other].interfaces > most ? networks[other].interfaces : most;
    size_t each = (size_t)most * sizeof *s->own, total = (size_t)size * each;
    hc_interface *padded = calloc(1, each + 1), *reported = malloc(total + 1);
    s->all = malloc(total + 1);
    if (status >= 0 && padded)
        memcpy(padded, s->own, (size_t)s->nown * sizeof *s->own);
    if (status >= 0)
        status = gather(exchange, padded, each, s->all ? reported : NULL);
    if (status >= 0)
        keep_one_of_each(networks, size, reported, most, s, rank);
    free(reported);
    free(padded);
    free(networks);
    return status;
}

static void say_what_is_there(const surroundings *s, const char *wanted, char why[HC_EXCHANGE_WHY]) {
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    size_t at = *wanted
                    ? (size_t)snprintf(why, HC_EXCHANGE_WHY,
                                       "HPCCOLL_INTERFACE=%.64s is no interface of host %s that is up", wanted, host)
                    : (size_t)snprintf(
                          why, HC_EXCHANGE_WHY,
                          "no interface of host %s leads to the other hosts: name one by HPCCOLL_INTERFACE", host);
    for (int i = 0; i < s->nown && at < HC_EXCHANGE_WHY; i++) {
        uint32_t ip = s->own[i].address;
        at += (size_t)snprintf(why + at, HC_EXCHANGE_WHY - at, "%s%s (%u.%u.%u.%u%s)", i ? ", " : "; there are ",
                               s->own[i].name, ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255,
                               s->own[i].is_up ? "" : ", down");
    }
}

/* "eth0,mlx5_0:1" */
static int choose_devices(const surroundings *s, const char *wanted, char names[NAMES_BYTES],
                          char why[HC_EXCHANGE_WHY]) {
    char adapters[NAMES_BYTES], word[64];
    if (hc_interfaces_no_network(wanted, word)) {
        snprintf(why, HC_EXCHANGE_WHY, "HPCCOLL_INTERFACE: %s is no network: write it as 10.1.0.0/16", word);
        return HC_UNSUPPORTED;
    }
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

/* ---- the net ----------------------------------------------------------------------------------------------- */

static int begin(const hc_exchange *exchange, const hc_ucx_terms *terms, const surroundings *s, hc_net **net,
                 char why[HC_EXCHANGE_WHY]) {
    char names[NAMES_BYTES] = "", reason[HC_UCX_WHY] = "";
    int status = terms->by_user ? HC_OK : choose_devices(s, terms->interface, names, why);
    if (status < 0)
        return status;
    const char *const chosen[] = {"NET_DEVICES", names, NULL}, *const none[] = {NULL};
    status = hc_ucx_net_new(terms->rank, exchange->size, terms->by_user ? none : chosen, net, reason);
    if (status < 0)
        snprintf(why, HC_EXCHANGE_WHY, NOT_MADE ": %s", reason);
    return status;
}

typedef struct offer {
    uint64_t address_bytes;
    uint32_t generation, has_rdma;
} offer;

static int connect_all(const hc_exchange *exchange, hc_net *net, const offer *offers, const char *addresses,
                       size_t most) {
    const void **starts = calloc((size_t)exchange->size, sizeof(void *));
    size_t *bytes = calloc((size_t)exchange->size, sizeof *bytes);
    int status = starts && bytes ? HC_OK : HC_NO_MEMORY, all_rdma = 1;
    for (int32_t rank = 0; rank < exchange->size && status >= 0; rank++) {
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
static int connect_net(const hc_exchange *exchange, hc_net *net, uint16_t generation, char why[HC_EXCHANGE_WHY]) {
    size_t own_bytes = 0, most = 0;
    int has_rdma = 0;
    free(hc_ucx_net_devices(net, &has_rdma));
    const void *own = hc_ucx_net_address(net, &own_bytes);
    offer mine = {own_bytes, generation, (uint32_t)has_rdma}, *offers = calloc((size_t)exchange->size, sizeof *offers);
    int status = gather(exchange, &mine, sizeof mine, offers);
    for (int32_t rank = 0; rank < exchange->size && status >= 0; rank++)
        most = offers[rank].address_bytes > most ? offers[rank].address_bytes : most;
    char *padded = calloc(1, most + 1), *addresses = malloc(most * (size_t)exchange->size + 1);
    if (status >= 0 && padded)
        memcpy(padded, own, own_bytes);
    if (status >= 0)
        status = gather(exchange, padded, most, addresses);
    if (status >= 0)
        status = hc_exchange_agree(exchange, connect_all(exchange, net, offers, addresses, most), NOT_MADE, why);
    free(addresses);
    free(padded);
    free(offers);
    return status;
}

int hc_ucx_net_make(const hc_exchange *exchange, const hc_ucx_terms *terms, hc_net **net, char why[HC_EXCHANGE_WHY]) {
    char reason[HC_EXCHANGE_WHY] = "";
    surroundings s = {.nown = 0};
    *net = NULL;
    s.nown = hc_interfaces_read(&s.own);
    int status = hc_exchange_agree(exchange, s.nown, "the network interfaces cannot be read", why);
    if (status >= 0)
        status = exchange_interfaces(exchange, terms->rank, &s);
    if (status >= 0)
        status = hc_exchange_agree(exchange, begin(exchange, terms, &s, net, reason), reason, why);
    free(s.all);
    free(s.own);
    if (status >= 0)
        status = connect_net(exchange, *net, terms->generation, why);
    if (status < 0 && *net) {
        (*net)->ops->free(*net);
        *net = NULL;
    }
    return status;
}

void hc_ucx_net_describe(hc_net *net, int by_user, char *text, size_t space) {
    int has_rdma;
    char *devices = hc_ucx_net_devices(net, &has_rdma), *file = realpath(hc_ucx_file(), NULL);
    snprintf(text, space, "UCX %s (%s) on %s%s", hc_ucx_version(), file ? file : hc_ucx_file(),
             devices && *devices ? devices : "no device", by_user ? " by UCX_NET_DEVICES" : "");
    free(file);
    free(devices);
}
