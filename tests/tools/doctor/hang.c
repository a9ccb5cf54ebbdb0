/* SPDX-License-Identifier: Apache-2.0
 *
 * hang.c - an MPI whose start does not return, or ends the process: preloaded before the real one.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    (void)argc, (void)argv, (void)required, (void)provided;
    const char *how = getenv("PLANTED");
    if (how && strcmp(how, "exit") == 0)
        _exit(3);
    for (;;)
        sleep(1000);
}
