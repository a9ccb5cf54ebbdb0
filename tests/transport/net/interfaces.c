/* SPDX-License-Identifier: Apache-2.0
 *
 * interfaces.c FILE WANTED MACHINE... - prints the interfaces that each MACHINE uses, a line each. FILE has a line for
 * each interface: machine, name, address, bits of the network, whether it is up.
 */
#include "core/hc.h"
#include "transport/net/ucx_interfaces.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 20000

int main(int argc, char **argv) {
    static hc_interface all[MOST];
    char address[32], names[512];
    unsigned bits;
    int n = 0;
    FILE *file = argc > 2 ? fopen(argv[1], "r") : NULL;
    if (!file)
        return 1;
    for (; n < MOST; n++) {
        hc_interface *one = &all[n];
        struct in_addr ip;
        if (fscanf(file, "%u %15s %31s %u %u", &one->machine, one->name, address, &bits, &one->is_up) != 5)
            break;
        if (inet_pton(AF_INET, address, &ip) != 1)
            return 1;
        one->address = ntohl(ip.s_addr);
        one->mask = bits ? ~0u << (32 - bits) : 0;
    }
    fclose(file);
    for (int i = 3; i < argc; i++) {
        if (hc_interfaces_choose(all, n, (uint32_t)atoi(argv[i]), argv[2], names, sizeof names) != HC_OK)
            return 1;
        puts(names);
    }
    return 0;
}
