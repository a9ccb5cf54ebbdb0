/* SPDX-License-Identifier: Apache-2.0
 *
 * seeds.c - writes the fuzzer's first inputs: for every state the real messages that arrived next.
 *
 *     seeds DIRECTORY
 */
#include "states.h"

#include <stdio.h>

static void put(FILE *f, int byte) {
    fputc(byte & 255, f);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    states_make(1000);
    int written = 0;
    for (int i = 0; i < states_count(); i++) {
        const state *s = state_at(i);
        char path[1024];
        snprintf(path, sizeof path, "%s/state-%04d", argv[1], i);
        FILE *f = fopen(path, "wb");
        if (!f)
            return 1;
        put(f, i);
        put(f, i >> 8);
        for (int k = s->n, n = 0; k < s->total && n < 3; k++) {
            const hc_event *e = &s->events[k];
            if (e->kind != HC_EV_MESSAGE)
                continue;
            put(f, e->peer);
            put(f, 0); /* nothing to repair */
            put(f, (int)e->nbytes);
            put(f, (int)(e->nbytes >> 8));
            fwrite(e->bytes, 1, e->nbytes, f);
            n++;
            written++;
        }
        fclose(f);
    }
    printf("%d states, %d messages\n", states_count(), written);
    return 0;
}
