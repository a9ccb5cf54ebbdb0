/* SPDX-License-Identifier: Apache-2.0
 *
 * shortened.c - prints 1 if an allreduce of so many bytes may try the shortcut in a set of so many ranks, else 0.
 *
 *     shortened BYTES RANKS VOTES     VOTES: 1: the set is on several nodes
 */
#include "world/arguments.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static hc_order order;
    static char array[1 << 20];
    hc_operand two[2] = {{.data = array, .dtype = HC_UINT8, .ndim = 1}};
    hc_arguments given = hc_arguments_of(HC_ALLREDUCE);
    hc_shortcut_call call;
    if (argc != 4)
        return 2;
    hc_place place = {.size = atoi(argv[2])};
    two[0].dims[0] = atoi(argv[1]);
    two[1] = two[0];
    hc_operand_measure(&two[0]);
    hc_operand_measure(&two[1]);
    given.operands = two;
    given.n = 1;
    order.size = place.size;
    order.votes = atoi(argv[3]) ? (hc_votes *)(void *)array : NULL;
    printf("%d\n", hc_arguments_shortcut(&given, &place, &order, &call));
    return 0;
}
