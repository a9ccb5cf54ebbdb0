# SPDX-License-Identifier: Apache-2.0
# processes.pxi - hosts and pids of a World's ranks, for texts.


cdef char *copy_processes(list hosts, object host_of, object pids, hc_processes *out) except NULL:
    """Fill in `out`. It points into the returned memory, which the caller frees.

    `host_of` is the index in `hosts` of each rank, None where there is one host; `pids` has each rank's.
    """
    names = [host.encode("utf-8", "replace") + b"\0" for host in hosts]
    cdef size_t n = len(pids), nhosts = len(names), at
    cdef char *memory = <char *>malloc(nhosts * sizeof(char *) + 2 * n * sizeof(int32_t) + sum(map(len, names)) + 1)
    if memory is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    cdef const char **where = <const char **>memory
    cdef int32_t *of = <int32_t *>(memory + nhosts * sizeof(char *))
    cdef int32_t *copied = of + n
    cdef char *text = <char *>(copied + n)
    for at, name in enumerate(names):
        memcpy(text, <const char *>name, len(name))
        where[at] = text
        text += len(name)
    copy_numbers(pids, copied, n)
    if host_of is None:
        memset(of, 0, n * sizeof(int32_t))
    else:
        copy_numbers(host_of, of, n)
    out.hosts, out.host_of, out.pids = where, of, copied
    return memory


cdef int copy_numbers(object numbers, int32_t *to, size_t n) except -1:
    cdef const int32_t[::1] found = np.ascontiguousarray(numbers, np.int32)
    if <size_t>len(found) != n:
        raise ValueError(f"{len(found)} numbers for {n} ranks")
    if n:
        memcpy(to, &found[0], n * sizeof(int32_t))
    return 0
