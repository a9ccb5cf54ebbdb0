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
    hc__choice hc__choose_broadcast(const hc__net_model *, const hc__splits *, int64_t)
    hc__choice hc__choose_reduce(const hc__net_model *, const hc__splits *, const hc__sum *)
    int hc__kind_in_stages(const hc__stages *, const hc__sum *)
    int hc__accumulation_dtype(int)
    double hc__at_once_seconds(const hc__net_model *, int32_t, double)
cdef extern from "transport/net/algorithms.h" nogil:
    ctypedef struct hc__tree:
        int32_t parent, nchildren
    hc__tree hc__tree_of(int32_t, int32_t, double)
    int64_t hc__tree_segment(const hc__net_model *, int32_t, int64_t, int64_t)
    double hc__tree_seconds(const hc__net_model *, int32_t, int64_t, int64_t)
    double hc__staged_seconds(const hc__net_model *, const hc__choice *, double)
    double hc__reduce_tree_seconds(const hc__net_model *, int32_t, const hc__sum *, int64_t)
    const hc__stages *hc__broadcast_stages(const hc__net_model *, const hc__splits *, int64_t, int64_t)
cdef extern from "transport/hierarchy/reduce_way.h" nogil:
    ctypedef struct hc__reduce_way:
        int in_order
        const hc__stages *stages
        int64_t shard_bytes
    hc__reduce_way hc__choose_reduce_way(const hc__net_model *, const hc__splits *, const hc__sum *, int64_t)


cdef object shape_of_stages(const hc__stages *stages):
    # The radices, and the members without a position.
    if stages == NULL:
        return (), 0
    return tuple([stages.radix[i] for i in range(stages.depth)]), stages.extra


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
    radices, extra = shape_of_stages(found.stages)
    return (hc__algorithm_name(found.algorithm).decode(), bool(found.whole), DTYPES[found.kind], radices, extra,
            found.seconds)


def net_broadcast(int32_t members, int64_t nbytes, int64_t most, double alpha, double beta, double gamma):
    """How a broadcast of so many bytes runs among so many members between nodes.

    :param most: bytes of the longest message that the net does not cut
    :param alpha: seconds per message; beta: per byte; gamma: per byte that a sum reads
    :returns: "stages" or "tree", the radices of the stages (a tree has none), the members without a position, the bytes
        of a segment of the tree, and the predicted seconds
    :raises InvalidArgumentError: members or bytes are too few
    """
    cdef hc__net_model model = hc__net_model(alpha, beta, gamma)
    cdef hc__splits splits
    if members < 2 or nbytes < 0 or most < 1:
        raise errors.InvalidArgumentError(f"a broadcast of {nbytes} bytes among {members} members")
    hc__splits_of(members, 0, &splits)
    cdef hc__choice staged = hc__choose_broadcast(&model, &splits, nbytes)
    cdef int64_t segment = hc__tree_segment(&model, members, nbytes, most)
    stages = hc__broadcast_stages(&model, &splits, nbytes, most)
    if stages == NULL:
        return "tree", (), 0, segment, hc__tree_seconds(&model, members, nbytes, segment)
    return ("stages", *shape_of_stages(stages), 0, hc__staged_seconds(&model, &staged, <double>nbytes / <double>most))


def net_reduce(int32_t members, int64_t count, str dtype, int64_t rails, bint exact, double alpha, double beta,
               double gamma):
    """How a reduce (SUM) of `count` elements runs among so many members between nodes.

    :param rails: ranks per node that drive the network
    :param exact: as HPCCOLL_EXACT_SUMS
    :param alpha: seconds per message; beta: per byte; gamma: per byte that a sum reads
    :returns: "at once", "stages" or "tree", the radices of the stages (others have none), the members without a
        position, the bytes of a rail's shard of a chunk, the dtype that travels, and the predicted seconds
    :raises InvalidArgumentError: a dtype is unknown, or members, elements or rails are too few
    """
    cdef hc__net_model model = hc__net_model(alpha, beta, gamma)
    cdef hc__splits splits
    cdef hc__sum what = hc__sum(count, 0, HC_SUM, exact, 0)
    if members < 2 or count < 0 or rails < 1 or dtype not in DTYPES:
        raise errors.InvalidArgumentError(f"a reduce of {count} elements of {dtype} among {members} members")
    what.dtype = DTYPES.index(dtype)
    hc__splits_of(members, 0, &splits)
    cdef double nbytes = <double>count * <double>hc_dtype_size(what.dtype)
    cdef hc__choice staged = hc__choose_reduce(&model, &splits, &what)
    cdef hc__reduce_way way = hc__choose_reduce_way(&model, &splits, &what, rails)
    if way.in_order or members == 2:
        return "at once", (), 0, way.shard_bytes, dtype, hc__at_once_seconds(&model, members - 1, nbytes)
    if way.stages == NULL:
        seconds = hc__reduce_tree_seconds(&model, members, &what, way.shard_bytes * rails)
        return "tree", (), 0, way.shard_bytes, DTYPES[hc__accumulation_dtype(what.dtype)], seconds
    seconds = hc__staged_seconds(&model, &staged, nbytes / <double>(way.shard_bytes * rails))
    return ("stages", *shape_of_stages(way.stages), way.shard_bytes, DTYPES[hc__kind_in_stages(way.stages, &what)],
            seconds)


def net_tree(int32_t members, int32_t place, double segments):
    """The tree of so many segments: a chain, or a binomial tree. The root has place 0.

    :returns: the place above (-1: none), and the number of places below
    """
    cdef hc__tree found = hc__tree_of(members, place, segments)
    return found.parent, found.nchildren
