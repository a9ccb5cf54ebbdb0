// SPDX-License-Identifier: Apache-2.0
//
// A node of the stand-in for LSF has more cores than this machine: core N is processor N modulo those that are there.
// Preloaded, so that mpirun can bind a rank to a core that only the described node has.

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

int sched_setaffinity(pid_t process, size_t size, const cpu_set_t *wanted) {
    static cpu_set_t there;
    cpu_set_t real;
    int processors[CPU_SETSIZE], count = 0;
    if (!CPU_COUNT(&there) && sched_getaffinity(1, sizeof there, &there))
        return -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &there))
            processors[count++] = i;
    CPU_ZERO(&real);
    for (int i = 0; i < CPU_SETSIZE && i < (int)(8 * size); i++)
        if (CPU_ISSET(i, wanted))
            CPU_SET(processors[i % count], &real);
    return (int)syscall(SYS_sched_setaffinity, process, sizeof real, &real);
}
