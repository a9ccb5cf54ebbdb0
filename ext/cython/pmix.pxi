# SPDX-License-Identifier: Apache-2.0
# pmix.pxi - exchanges of ranks without MPI through their launcher's PMIx server.

cdef extern from "rendezvous/pmix.h" nogil:
    int HC_PMIX_WHY
    int hc_pmix_join(const char *prefix, int32_t *rank, int32_t *size, char *why)
    int hc_pmix_exchange(const void *mine, size_t bytes, uint64_t ns, size_t *sizes, char **all_bytes, char *why)


def pmix_join(prefix):
    """Connect this process to its launcher's server, once: (rank, size). Raises StartError.

    `prefix`: the folder where the launcher has PMIx, "" or None: not known.
    """
    cdef bytes path = os.fsencode(prefix or "")
    cdef const char *where = NULL
    cdef int32_t rank = 0, size = 0
    cdef char why[256]
    cdef int status
    if path:
        where = path
    why[0] = 0
    with nogil:
        status = hc_pmix_join(where, &rank, &size, why)
    if status < 0:
        raise errors.StartError(f"the World was not made: {why.decode(errors='replace')}")
    return rank, size


def pmix_exchange(bytes mine, int size):
    """Exchange the bytes of all `size` ranks, an allgather without a time limit. Raises StartError."""
    cdef char why[256]
    cdef char *every = NULL
    cdef const char *data = mine
    cdef size_t nbytes = len(mine), at = 0
    cdef size_t *sizes = <size_t *>malloc((size + 1) * sizeof(size_t))
    cdef int status
    if sizes == NULL:
        raise MemoryError
    why[0] = 0
    with nogil:
        status = hc_pmix_exchange(data, nbytes, 0, sizes, &every, why)
    try:
        if status < 0:
            raise errors.StartError(
                f"the World was not made: {why.decode(errors='replace') or hc_status_text(status).decode()}"
            )
        found = []
        for rank in range(size):
            found.append(every[at:at + sizes[rank]])
            at += sizes[rank]
        return found
    finally:
        free(every)
        free(sizes)
