# SPDX-License-Identifier: Apache-2.0
# processes.pxi - where the processes of a World's ranks are, for texts.


cdef char *copy_processes(object places, hc_processes *out) except NULL:
    """Fill `out` from the (host, pid) of each rank. All that it points to is in the memory returned, to be freed."""
    numbers = {host: i for i, host in enumerate(dict.fromkeys(host for host, _ in places))}
    names = [host.encode("utf-8", "replace") + b"\0" for host in numbers]
    cdef size_t n = len(places), nhosts = len(names), at
    cdef char *memory = <char *>malloc(nhosts * sizeof(char *) + 2 * n * sizeof(int32_t) + sum(map(len, names)) + 1)
    if memory is NULL:
        raise MemoryError
    cdef const char **hosts = <const char **>memory
    cdef int32_t *host_of = <int32_t *>(memory + nhosts * sizeof(char *))
    cdef int32_t *pids = host_of + n
    cdef char *text = <char *>(pids + n)
    for at, name in enumerate(names):
        memcpy(text, <const char *>name, len(name))
        hosts[at] = text
        text += len(name)
    for at, (host, pid) in enumerate(places):
        host_of[at], pids[at] = numbers[host], pid
    out.hosts, out.host_of, out.pids = hosts, host_of, pids
    return memory
