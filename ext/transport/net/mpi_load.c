/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load.c - finds the MPI library of this process and its family.
 *
 * It must be the library that made the communicators: that of mpi4py or of the program. Symbols are searched as the
 * dynamic linker does for mpi4py: first in the global scope of the process (the program, LD_PRELOAD with a profiler's
 * MPI_ functions), then in the libraries of mpi4py's extension.
 */
#include "transport/net/mpi_net.h"

#include <dlfcn.h>
#include <stdio.h>

static void *linked; /* the object whose libraries are searched; never closed, as the functions are in use */

static void *find(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    return address || !linked ? address : dlsym(linked, name);
}

/* 1: the library has the ABI of the standard. MPICH 5 also has the function, with version 0, in its library of the old
 * ABI. */
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
