/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_interfaces.c - reads the network interfaces of this machine, and chooses those that lead to the others.
 */
#include "transport/net/ucx_interfaces.h"

#include "core/hc.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD 9 /* the port for look-ups of routes; no packet is sent to it */

static uint32_t ip_of(const struct sockaddr *socket) {
    struct sockaddr_in ip;
    memcpy(&ip, socket, sizeof ip);
    return ntohl(ip.sin_addr.s_addr);
}

static int is_ipv4(const struct ifaddrs *one) {
    return one->ifa_addr && one->ifa_addr->sa_family == AF_INET && one->ifa_netmask;
}

int hc_interfaces_read(hc_interface **found) {
    struct ifaddrs *list = NULL;
    int n = 0;
    if (getifaddrs(&list) < 0)
        return HC_TRANSPORT;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next)
        n += is_ipv4(at);
    *found = calloc((size_t)n + 1, sizeof **found);
    n = 0;
    for (const struct ifaddrs *at = list; at && *found; at = at->ifa_next) {
        if (!is_ipv4(at))
            continue;
        hc_interface *one = &(*found)[n++];
        one->address = ip_of(at->ifa_addr);
        one->mask = ip_of(at->ifa_netmask);
        one->is_up = (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING);
        snprintf(one->name, sizeof one->name, "%s", at->ifa_name);
        one->name[strcspn(one->name, ":")] = 0; /* an alias, as eth0:1 */
    }
    freeifaddrs(list);
    return *found ? n : HC_NO_MEMORY;
}

/* ---- names and networks ------------------------------------------------------------------------------------ */

/* "10.1.0.0/16", or one address, as "10.1.2.3" */
static int read_network(const char *word, uint32_t *address, uint32_t *mask) {
    char text[64], *slash, *end;
    struct in_addr ip;
    long bits = 32;
    snprintf(text, sizeof text, "%s", word);
    if ((slash = strchr(text, '/'))) {
        *slash = 0;
        bits = isdigit((unsigned char)slash[1]) ? strtol(slash + 1, &end, 10) : -1;
        if (bits < 0 || bits > 32 || *end)
            return 0;
    }
    if (inet_pton(AF_INET, text, &ip) != 1)
        return 0;
    *address = ntohl(ip.s_addr);
    *mask = bits ? ~0u << (32 - bits) : 0;
    return 1;
}

/* Reads the next word of a list, and returns the place behind it; NULL: the list has ended. */
static const char *next_word(const char *at, char word[64]) {
    if (!*at)
        return NULL;
    at += strspn(at, " ");
    snprintf(word, 64, "%.*s", (int)strcspn(at, ", "), at);
    at += strcspn(at, ",");
    return at + (*at == ',');
}

int hc_interfaces_no_network(const char *wanted, char word[64]) {
    uint32_t address, mask;
    for (const char *at = wanted; (at = next_word(at, word));)
        if (strchr(word, '/') && !read_network(word, &address, &mask))
            return 1;
    return 0;
}

static int is_wanted(const hc_interface *one, const char *wanted) {
    uint32_t address, mask;
    char word[64];
    for (const char *at = wanted; (at = next_word(at, word));) {
        if (strcmp(word, one->name) == 0)
            return 1;
        if (read_network(word, &address, &mask) && ((one->address ^ address) & mask) == 0)
            return 1;
    }
    return 0;
}

/* Appends a name, unless the list has it: an interface may have several addresses. */
static void add_name(char *names, size_t space, const char *name) {
    size_t length = strlen(name), at = strlen(names);
    for (const char *there = names; *there; there += strcspn(there, ","), there += *there == ',')
        if (strcspn(there, ",") == length && strncmp(there, name, length) == 0)
            return;
    if (at + length + 2 <= space)
        snprintf(names + at, space - at, "%s%s", at ? "," : "", name);
}

/* ---- what leads to the other machines ---------------------------------------------------------------------- */

static int is_loopback(const hc_interface *one) {
    return one->address >> 24 == 127;
}

static int by_address(const void *left, const void *right) {
    const hc_interface *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* Networks before their machines. */
static int by_network(const void *left, const void *right) {
    const hc_interface *a = left, *b = right;
    uint32_t of_a = a->address & a->mask, of_b = b->address & b->mask;
    if (of_a != of_b)
        return of_a < of_b ? -1 : 1;
    if (a->mask != b->mask)
        return a->mask < b->mask ? -1 : 1;
    return (a->machine > b->machine) - (a->machine < b->machine);
}

static int same_network(const hc_interface *a, const hc_interface *b) {
    return a->mask == b->mask && ((a->address ^ b->address) & a->mask) == 0;
}

/* Sorts the interfaces by address, and keeps those that can lead to another machine: up, no loopback, and no address
 * that another machine has, too. Returns their number. */
static int keep_usable(hc_interface *all, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (all[i].is_up && !is_loopback(&all[i]))
            all[kept++] = all[i];
    n = kept;
    kept = 0;
    qsort(all, (size_t)n, sizeof *all, by_address);
    for (int first = 0, end; first < n; first = end) {
        int is_decoy = 0;
        for (end = first; end < n && all[end].address == all[first].address; end++)
            is_decoy |= end > first;
        if (!is_decoy)
            all[kept++] = all[first];
    }
    return kept;
}

static int count_machines(const hc_interface *all, int n, uint32_t mine) {
    uint32_t *numbers = malloc(((size_t)n + 1) * sizeof *numbers);
    int count = 0;
    if (!numbers)
        return HC_NO_MEMORY;
    numbers[count++] = mine;
    for (int i = 0; i < n; i++) {
        int known = 0;
        for (int k = count - 1; k >= 0 && !known; k--) /* those of a machine mostly stand together */
            known = numbers[k] == all[i].machine;
        if (!known)
            numbers[count++] = all[i].machine;
    }
    free(numbers);
    return count;
}

/* Adds the interfaces of the machine `mine` in networks that all machines have. `usable` is sorted again. */
static void add_common(hc_interface *usable, int n, uint32_t mine, int machines, char *names, size_t space) {
    qsort(usable, (size_t)n, sizeof *usable, by_network);
    for (int first = 0, end; first < n; first = end) {
        int there = 0;
        for (end = first; end < n && same_network(&usable[first], &usable[end]); end++)
            there += end == first || usable[end].machine != usable[end - 1].machine;
        for (int i = first; i < end && there == machines; i++)
            if (usable[i].machine == mine)
                add_name(names, space, usable[i].name);
    }
}

/* The address from which this machine sends to another one; 0: no route. */
static uint32_t source_towards(uint32_t address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DISCARD)}, from;
    socklen_t bytes = sizeof from;
    uint32_t found = 0;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(address);
    /* The connect() of a datagram socket chooses a route, and sends nothing. */
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        getsockname(fd, (struct sockaddr *)&from, &bytes) == 0)
        found = ntohl(from.sin_addr.s_addr);
    if (fd >= 0)
        close(fd);
    return found;
}

static void add_routes(const hc_interface *usable, int nusable, const hc_interface *all, int n, uint32_t mine,
                       char *names, size_t space) {
    for (int other = 0; other < nusable; other++) {
        uint32_t source = usable[other].machine != mine ? source_towards(usable[other].address) : 0;
        for (int i = 0; i < n && source; i++)
            if (all[i].machine == mine && all[i].is_up && all[i].address == source && !is_loopback(&all[i]))
                add_name(names, space, all[i].name);
    }
}

int hc_interfaces_choose(const hc_interface *all, int n, uint32_t mine, const char *wanted, char *names, size_t space) {
    int machines = *wanted ? 1 : count_machines(all, n, mine);
    *names = 0;
    if (machines < 2) { /* UCX 1.20 connects to itself over an address that is no loopback */
        for (int i = 0; i < n; i++)
            if (all[i].machine == mine && all[i].is_up && (!*wanted || is_wanted(&all[i], wanted)))
                add_name(names, space, all[i].name);
        return machines < 0 ? machines : HC_OK;
    }
    hc_interface *usable = malloc(((size_t)n + 1) * sizeof *usable);
    if (!usable)
        return HC_NO_MEMORY;
    memcpy(usable, all, (size_t)n * sizeof *usable);
    int nusable = keep_usable(usable, n);
    add_common(usable, nusable, mine, machines, names, space);
    if (!*names)
        add_routes(usable, nusable, all, n, mine, names, space);
    free(usable);
    return HC_OK;
}

/* ---- InfiniBand -------------------------------------------------------------------------------------------- */

static int is_active(const char *folder) {
    char file[300], state[64] = "";
    snprintf(file, sizeof file, "%s/state", folder);
    FILE *from = fopen(file, "re");
    if (from && !fgets(state, sizeof state, from))
        *state = 0;
    if (from)
        fclose(from);
    return strstr(state, "ACTIVE") != NULL;
}

void hc_interfaces_infiniband(char *names, size_t space) {
    static const char folder[] = "/sys/class/infiniband/";
    glob_t found;
    *names = 0;
    if (glob("/sys/class/infiniband/*/ports/*", 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *device = found.gl_pathv[i] + sizeof folder - 1, *port = strrchr(device, '/') + 1;
        char name[128];
        snprintf(name, sizeof name, "%.*s:%s", (int)strcspn(device, "/"), device, port);
        if (is_active(found.gl_pathv[i]))
            add_name(names, space, name);
    }
    globfree(&found);
}
