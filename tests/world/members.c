/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c - prints the numbers of the nodes of some ranks, and the size of equal groups of them.
 *
 *     members ADDRESSES RANKS     ADDRESSES: of the node of each rank, as in s1/n1,s2/n2; "-": no order is known
 */
#include "world/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1024

/* Splits a text at commas. */
static int32_t split(char *text, const char **words) {
    int32_t n = 0;
    for (char *rest, *word = strtok_r(text, ",", &rest); word && n < MOST; word = strtok_r(NULL, ",", &rest))
        words[n++] = word;
    return n;
}

int main(int argc, char **argv) {
    static hc_job job;
    const char *addresses[MOST], *words[MOST];
    int32_t node_of[MOST], ranks[MOST];
    hc_node_place places[MOST];
    hc_members members;
    if (argc != 3)
        return 2;
    int is_known = strchr(argv[1], '/') != NULL;
    job.size = split(argv[1], addresses);
    job.node_of = node_of;
    for (int32_t r = 0; r < job.size; r++)
        node_of[r] = r;
    if (is_known && hc_nodes_order(addresses, job.size, places) < 0)
        return 1;
    job.places = is_known ? places : NULL;
    int32_t n = split(argv[2], words);
    for (int32_t i = 0; i < n; i++)
        ranks[i] = atoi(words[i]);
    job.rank = ranks[0];
    if (hc_members_find(&job, ranks, n, &members) < 0)
        return 1;
    for (int32_t i = 0; i < n; i++)
        printf("%d ", (int)members.nodes[i]);
    printf("group %d\n", (int)members.group);
    hc_members_free(&members);
    return 0;
}
