/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load.c - finds the MPI library of this process and its family.
 *
 * The library is the one that mpi4py, or the program, uses, because the communicators come from there. A symbol is
 * looked for as the dynamic linker does it for mpi4py: first what the whole process sees (the program, LD_PRELOAD with
 * a profiler's MPI_ functions), then what mpi4py's extension was linked with.
 */
#include "transport/net/mpi_net.h"

#include <dlfcn.h>
#include <stdio.h>

static void *linked; /* the object whose libraries are searched; never closed, as the functions are in use */

static void *find(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    return address || !linked ? address : dlsym(linked, name);
}

/* Whether the library's own interface is the standard's: MPICH 5 answers 0 in the library that has its old one. */
static int speaks_standard(void) {
    int (*version)(int *, int *), major = 0, minor = 0;
    void *address = find("MPI_Abi_get_version");
    *(void **)&version = address;
    return address && version(&major, &minor) == 0 && major > 0;
}

const hc_mpi_family *hc_mpi_load(const char *object, char why[256]) {
    if (object && !linked && !(linked = dlopen(object, RTLD_LAZY | RTLD_LOCAL))) {
        snprintf(why, 256, "%s", dlerror());
        return NULL;
    }
    const hc_mpi_family *family = find("ompi_mpi_comm_self") ? &hc__mpi_openmpi : &hc__mpi_mpich;
    if (speaks_standard())
        family = &hc__mpi_standard;
    const char *lacks = family->load(find);
    if (lacks)
        snprintf(why, 256, "it has no %s", lacks);
    return lacks ? NULL : family;
}

void *hc_mpi_function(const char *name) {
    return find(name);
}

const void *hc_mpi_address(void) {
    return find("MPI_Init");
}
