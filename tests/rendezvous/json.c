/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - prints what the keys of a message of the launcher have: a number, a string or the strings of an array.
 *
 *     json KEY...      each line of standard input is a message, and gives a line
 */
#include "rendezvous/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In quotes, so that a missing string is not an empty one. */
static void print_string(const char *value) {
    char *text = hc__json_string(value), quoted[4000];
    hc__json_quote(text ? text : "", quoted, sizeof quoted);
    printf(" %s", text ? quoted : "none");
    free(text);
}

int main(int argc, char **argv) {
    static char line[4000];
    while (fgets(line, sizeof line, stdin)) {
        size_t bytes = strcspn(line, "\n");
        char *message = calloc(1, bytes + 1); /* with nothing behind its end */
        memcpy(message, line, bytes);
        for (int i = 1; i < argc; i++) {
            const char *value = hc__json_get(message, argv[i]);
            printf(" %" PRId64, hc__json_number(value));
            print_string(value);
            for (const char *at = value ? hc__json_first(value) : NULL; at; at = hc__json_next(at))
                print_string(at);
        }
        printf("\n");
        free(message);
    }
    return 0;
}
