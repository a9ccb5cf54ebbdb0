/* SPDX-License-Identifier: Apache-2.0
 *
 * node_order.c - reads where a node stands in the network, and orders nodes along it.
 *
 * Slurm gives each task the switches above its node, from the top down, and the node, separated by periods; a second
 * variable says what each part is: "switch.switch.node" (topology/tree), "block.node" (topology/block), or "node" where
 * no topology is configured (srun(1), and get_node_addr() of these plugins). A switch may have no name, and a host may
 * have periods. On HPE Cray EX a node is x1000c0s3b0n1: cabinet, chassis, slot, board, node ("Component Names
 * (xnames)", HPE Cray System Management); a cabinet is usually one group of the dragonfly. Summit's a01n05 is row,
 * cabinet and node, so the natural order of LSF's hosts keeps cabinets together, and with them their leaf switches.
 */
#include "world/node_order.h"

#include "core/hc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- addresses --------------------------------------------------------------------------------------------- */

static const struct row {
    const char *called, *group, *groups;
} rows[] = {
#define X(name, called, group, groups) {called, group, groups},
    HC_ADDRESSES(X)
#undef X
};

const char *hc_address_called(int kind) {
    return kind >= 0 && kind < HC_ADDRESS_KINDS ? rows[kind].called : "?";
}

static const char *group_called(int kind, int many) {
    return kind < 0 || kind >= HC_ADDRESS_KINDS ? "?" : many ? rows[kind].groups : rows[kind].group;
}

/* Writes the address; 0: it is too long. */
static int write_address(hc_address *to, int kind, const char *text) {
    to->kind = kind;
    return snprintf(to->text, sizeof to->text, "%s", text) < (int)sizeof to->text;
}

/* The parts of Slurm's address that the pattern counts; the last one is the node. */
static int from_slurm(const hc_address_facts *facts, hc_address *to) {
    const char *pattern = facts->slurm_pattern;
    if (!facts->slurm || !*facts->slurm || !pattern || !strchr(pattern, '.'))
        return 0;
    const char *last = strrchr(pattern, '.');
    int is_block = last - pattern >= 5 && strncmp(last - 5, "block", 5) == 0;
    if (!write_address(to, is_block ? HC_ADDRESS_BLOCK : HC_ADDRESS_SWITCH, facts->slurm))
        return 0;
    char *at = to->text;
    for (; (pattern = strchr(pattern, '.')); pattern++) {
        if (!(at = strchr(at, '.')))
            return 0;
        *at++ = '/';
    }
    return 1;
}

static int read_xname(const hc_address_facts *facts, char word[64]) {
    FILE *file = facts->xname ? NULL : fopen(HC_XNAME_FILE, "re");
    int found = facts->xname ? sscanf(facts->xname, "%63s", word) : file ? fscanf(file, "%63s", word) : 0;
    if (file)
        fclose(file);
    return found == 1;
}

/* x1000c0s3b0n1 -> x1000/c0s3b0n1 */
static int from_xname(const hc_address_facts *facts, hc_address *to) {
    char form[6] = "", word[64] = "", text[80];
    int cabinet = 0;
    if (!read_xname(facts, word))
        return 0;
    size_t parts = 0;
    for (const char *at = word; *at; parts++) {
        if (parts == 5 || !isalpha((unsigned char)at[0]) || !isdigit((unsigned char)at[1]))
            return 0;
        form[parts] = *at++;
        at += strspn(at, "0123456789");
        cabinet = parts == 0 ? (int)(at - word) : cabinet;
    }
    snprintf(text, sizeof text, "%.*s/%s", cabinet, word, word + cabinet);
    return strcmp(form, "xcsbn") == 0 && write_address(to, HC_ADDRESS_XNAME, text);
}

static int names_host(const char *name, const char *host) {
    size_t n = strlen(name);
    return strncmp(name, host, n) == 0 && (!host[n] || host[n] == '.');
}

/* Reads a line of the file: "host level level". 1: it describes this host. */
static int read_line(char *line, const char *host, hc_address *to) {
    char *rest, text[HC_ADDRESS_BYTES] = "";
    line[strcspn(line, "#\n")] = 0;
    const char *name = strtok_r(line, " \t\r", &rest);
    if (!name || !names_host(name, host))
        return 0;
    size_t at = 0;
    for (const char *level; at < sizeof text && (level = strtok_r(NULL, " \t\r", &rest));)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s/", level);
    if (at < sizeof text)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s", name);
    return at < sizeof text && write_address(to, HC_ADDRESS_FILE, text);
}

static int from_file(const hc_address_facts *facts, hc_address *to) {
    FILE *file = fopen(facts->file, "re");
    char line[512];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        found = read_line(line, facts->host, to);
    if (file)
        fclose(file);
    return found;
}

hc_address hc_address_of(const hc_address_facts *facts) {
    hc_address found = {0}; /* it is sent as it lies in memory */
    int given = facts->file && *facts->file;
    if (given ? from_file(facts, &found) : from_slurm(facts, &found) || from_xname(facts, &found))
        return found;
    write_address(&found, HC_ADDRESS_HOST, facts->host);
    return found;
}

/* ---- the order --------------------------------------------------------------------------------------------- */

typedef struct node {
    const char *text;
    int32_t number;
} node;

/* "/" comes first, so that the nodes of a group follow each other. */
static int weight(char c) {
    return c == '/' ? 1 : c ? (unsigned char)c + 1 : 0;
}

/* The first digit of a number that counts, and the number of those that follow it. */
static const char *number_at(const char **at, size_t *digits) {
    const char *first = *at + strspn(*at, "0");
    *digits = strspn(first, "0123456789");
    *at = first + *digits;
    return first;
}

static int compare_texts(const char *a, const char *b) {
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            size_t na, nb;
            const char *first_a = number_at(&a, &na), *first_b = number_at(&b, &nb);
            int order = na != nb ? (na > nb) - (na < nb) : memcmp(first_a, first_b, na);
            if (order)
                return order;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    return weight(*a) - weight(*b);
}

static int compare(const void *left, const void *right) {
    const node *a = left, *b = right;
    int order = compare_texts(a->text, b->text);
    order = order ? order : strcmp(a->text, b->text);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static int same_group(const char *a, const char *b) {
    const char *end_a = strrchr(a, '/'), *end_b = strrchr(b, '/');
    size_t n = end_a ? (size_t)(end_a - a) : 0;
    return n == (end_b ? (size_t)(end_b - b) : 0) && strncmp(a, b, n) == 0;
}

/* The bytes of the first level and of the "/" after it; 0: the text is only the node. */
static size_t level_bytes(const char *text) {
    const char *end = strchr(text, '/');
    return end ? (size_t)(end - text) + 1 : 0;
}

/* The end of the run of nodes from `first` on that are in one group, whose name begins at byte `at`. Nodes that no
 * group holds make a run, too. */
static int32_t end_of_group(const node *nodes, int32_t n, int32_t first, size_t at) {
    const char *group = nodes[first].text + at;
    size_t bytes = level_bytes(group);
    int32_t end = first + 1;
    while (end < n && level_bytes(nodes[end].text + at) == bytes && strncmp(group, nodes[end].text + at, bytes) == 0)
        end++;
    return end;
}

/* Moves the groups that have fewer nodes than the largest one behind the others, at each level. Without that, a group
 * that the allocation has cut shifts all nodes after it against the blocks of the stages. `nodes`: sorted; the texts
 * are equal before byte `at`. `cut`: scratch for n nodes. A text bounds the depth of the recursion. */
static void put_whole_groups_first(node *nodes, int32_t n, size_t at, node *cut) {
    int32_t largest = 0, whole = 0, behind = 0;
    for (int32_t first = 0, end; first < n; first = end) {
        size_t bytes = level_bytes(nodes[first].text + at);
        end = end_of_group(nodes, n, first, at);
        largest = end - first > largest ? end - first : largest;
        if (bytes)
            put_whole_groups_first(nodes + first, end - first, at + bytes, cut);
    }
    for (int32_t first = 0, end; first < n; first = end) {
        end = end_of_group(nodes, n, first, at);
        int is_whole = end - first == largest;
        memmove(is_whole ? nodes + whole : cut + behind, nodes + first, (size_t)(end - first) * sizeof *nodes);
        *(is_whole ? &whole : &behind) += end - first;
    }
    memcpy(nodes + whole, cut, (size_t)behind * sizeof *nodes);
}

int32_t hc_nodes_order(const char *const *texts, int32_t n, hc_node_place *places) {
    node *nodes = malloc(2 * (size_t)n * sizeof *nodes + 1);
    int32_t group = 0;
    if (!nodes)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < n; i++)
        nodes[i] = (node){texts[i], i};
    qsort(nodes, (size_t)n, sizeof *nodes, compare);
    put_whole_groups_first(nodes, n, 0, nodes + n);
    for (int32_t i = 0; i < n; i++) {
        group += i > 0 && !same_group(nodes[i - 1].text, nodes[i].text);
        places[nodes[i].number] = (hc_node_place){i, group};
    }
    free(nodes);
    return n ? group + 1 : 0;
}

/* ---- what orders them -------------------------------------------------------------------------------------- */

static int all_equal(const char *const *texts, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        if (strcmp(texts[0], texts[i]) != 0)
            return 0;
    return 1;
}

/* Finds an address that two hosts have: some launchers give all ranks the environment of the first host. `places`: of
 * the nodes, by their addresses; `along`: room for n numbers. */
static void find_twins(const hc_node_reports *reports, const hc_node_place *places, int32_t *along, char *why,
                       size_t room) {
    for (int32_t i = 0; i < reports->n; i++)
        along[places[i].position] = i;
    for (int32_t i = 1; i < reports->n && !*why; i++) {
        int32_t a = along[i - 1], b = along[i];
        if (strcmp(reports->addresses[a], reports->addresses[b]) == 0 && strcmp(reports->hosts[a], reports->hosts[b]))
            snprintf(why, room, "%s says %s on %s and on %s", hc_address_called(reports->kind), reports->addresses[a],
                     reports->hosts[a], reports->hosts[b]);
    }
}

/* Orders the nodes by their addresses, or says why that cannot be. Returns the number of groups, or NO_MEMORY. */
static int32_t try_addresses(const hc_node_reports *reports, hc_node_place *places, char *why, size_t room) {
    if (reports->differing && *reports->differing)
        snprintf(why, room, "%s", reports->differing);
    else if (reports->kind == HC_ADDRESS_HOST && reports->file && *reports->file)
        snprintf(why, room, "HPCCOLL_NODE_FILE=%s cannot be read or has no line for these hosts", reports->file);
    if (*why || reports->kind == HC_ADDRESS_HOST)
        return 0;
    int32_t *along = malloc((size_t)reports->n * sizeof *along + 1);
    int32_t groups = along ? hc_nodes_order(reports->addresses, reports->n, places) : HC_NO_MEMORY;
    if (groups >= 0)
        find_twins(reports, places, along, why, room);
    free(along);
    return groups;
}

int hc_nodes_choose(const hc_node_reports *reports, hc_node_order *found) {
    static const char prefix[] = "the nodes are ordered by host names: ";
    char why[sizeof found->why - sizeof prefix] = "";
    hc_node_place *places = malloc((size_t)reports->n * sizeof *places + 1);
    int32_t groups = places ? try_addresses(reports, places, why, sizeof why) : HC_NO_MEMORY;
    int by_host = *why || reports->kind == HC_ADDRESS_HOST;
    const char *const *texts = by_host ? reports->hosts : reports->addresses;
    *found = (hc_node_order){.kind = by_host ? HC_ADDRESS_HOST : reports->kind};
    if (groups >= 0 && by_host)
        groups = hc_nodes_order(texts, reports->n, places);
    if (*why)
        snprintf(found->why, sizeof found->why, "%s%s", prefix, why);
    if (groups < 0 || all_equal(texts, reports->n)) {
        free(places);
        return groups < 0 ? groups : HC_OK;
    }
    found->places = places;
    const char *called = hc_address_called(found->kind);
    if (by_host)
        snprintf(found->said, sizeof found->said, "%s", called);
    else
        snprintf(found->said, sizeof found->said, "%s (%d %s)", called, (int)groups,
                 group_called(found->kind, groups > 1));
    return HC_OK;
}
