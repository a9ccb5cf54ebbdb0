# SPDX-License-Identifier: Apache-2.0
# choose.pxi - what the algorithms between nodes would do, for the model and the benchmarks.

cdef extern from "transport/net/choose.h" nogil:
    ctypedef struct hc__net_model:
        double alpha, beta, gamma
    ctypedef struct hc__stages:
        int32_t depth, extra
        int32_t radix[31]
    ctypedef struct hc__splits:
        pass
    ctypedef struct hc__sum:
        int64_t count
        uint8_t dtype, reduction, exact, scatters
    ctypedef struct hc__choice:
        int algorithm, whole, kind
        const hc__stages *stages
        double seconds
    const char *hc__algorithm_name(int)
    int hc__algorithm_named(const char *)
    hc__choice hc__net_choose(const hc__net_model *, const hc__splits *, int, const hc__sum *)
    void hc__splits_of(int32_t, int32_t, hc__splits *)


def net_choice(int32_t members, int64_t count, str dtype, str algorithm, bint exact, double alpha, double beta,
               double gamma, int32_t group=0):
    """How an allreduce (SUM) of `count` elements runs among so many members between nodes.

    :param algorithm: "auto", or a value of HPCCOLL_ALGORITHM
    :param alpha: seconds per message; beta: per byte; gamma: per byte that a sum reads
    :param group: every so many members share a switch; 0: not known
    :returns: the algorithm, whether all data is exchanged in each stage, the dtype that travels, the radices of the
        stages (a ring has none), the members without a position, and the predicted seconds
    :raises InvalidArgumentError: an algorithm or a dtype is unknown, or members or elements are negative
    """
    cdef hc__net_model model = hc__net_model(alpha, beta, gamma)
    cdef hc__splits splits
    cdef hc__sum what = hc__sum(count, 0, HC_SUM, exact, 0)
    cdef int chosen = hc__algorithm_named(algorithm.encode())
    if chosen < 0 or members < 1 or count < 0 or dtype not in DTYPES:
        raise errors.InvalidArgumentError(f"{algorithm!r} of {count} elements of {dtype} among {members} members")
    what.dtype = DTYPES.index(dtype)
    hc__splits_of(members, group, &splits)
    found = hc__net_choose(&model, &splits, chosen, &what)
    radices = tuple([found.stages.radix[i] for i in range(found.stages.depth)]) if found.stages else ()
    extra = found.stages.extra if found.stages else 0
    return (hc__algorithm_name(found.algorithm).decode(), bool(found.whole), DTYPES[found.kind], radices, extra,
            found.seconds)
