/* SPDX-License-Identifier: Apache-2.0
 *
 * late_signal.c - a function for Py_AtExit, which runs when the interpreter has ended: it raises SIGUSR2, and then
 * makes a file.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

void late_signal(void);
void late_signal(void) {
    char name[32];
    raise(SIGUSR2);
    snprintf(name, sizeof name, "late%d", (int)getpid());
    close(creat(name, 0600));
}
