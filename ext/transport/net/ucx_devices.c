/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_devices.c - the transports and devices of a net over UCX, as UCX names them.
 */
#include "transport/net/ucx_net.h"
#include "transport/net/ucx_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Transports inside a host, and those of GPUs. */
static int is_inside_host(const char *name) {
    static const char *const inside[] = {"self/", "sysv/", "posix/", "cma/", "knem/", "xpmem/", "cuda", "rocm", "ze_"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (strncmp(name, inside[i], strlen(inside[i])) == 0)
            return 1;
    return 0;
}

/* UCX describes its resources in lines as "#  3 :  tcp  -- tcp/eth0 ...". */
static char *resources_of(hc__ucx_net *net) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return NULL;
    hc__ucx.ucp_context_print_info(net->context, stream);
    fclose(stream);
    return text;
}

static int has_word(const char *words, const char *word, size_t length) {
    for (const char *at = words; (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ' ') && (at[length] == ',' || !at[length]))
            return 1;
    return 0;
}

char *hc_ucx_net_devices(hc_net *base, int *has_rdma) {
    char *text = resources_of((hc__ucx_net *)base), *found = text ? calloc(1, strlen(text) + 1) : NULL;
    *has_rdma = 0;
    for (char *at = text; found && (at = strstr(at, "-- "));) {
        char *name = at += 3;
        size_t length = strcspn(name, " \t\n"), filled = strlen(found);
        at += length;
        if (!length || !*at || is_inside_host(name))
            continue;
        *at++ = 0;
        *has_rdma |= strncmp(name, "tcp/", 4) != 0;
        if (!has_word(found, name, length))
            sprintf(found + filled, "%s%s", filled ? ", " : "", name);
    }
    free(text);
    return found;
}
