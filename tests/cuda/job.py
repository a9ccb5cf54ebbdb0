# SPDX-License-Identifier: Apache-2.0
"""A job whose arrays are in the fake driver's memory: `python job.py NAME` runs the program of that name on each rank.

Results are compared with NumPy's. Every program reads and overwrites in the stream that wait() has put in order.
"""

import asyncio
import gc
import os
import sys
import time

import doubles
import ml_dtypes
import numpy as np
from doubles import Plain, Stream, current, to_cupy, to_torch, values_of

import hpccoll
from hpccoll import _core

DTYPES = [np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name) for name in _core.DTYPES]


def values(dtype, rank, shape):
    rng = np.random.default_rng([rank, len(shape), *shape])
    whole = rng.integers(0 if dtype.kind in "bu" else -2, 3, shape)
    return np.asarray(whole + 1j * rng.integers(-2, 3, shape) if dtype.kind == "c" else whole).astype(dtype)


def expected(op, parts):
    """Reduce with NumPy values whose results are exact; other tests check the host's data plane."""
    functions = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply, "BAND": np.bitwise_and,
                 "BOR": np.bitwise_or, "BXOR": np.bitwise_xor, "LAND": np.logical_and, "LOR": np.logical_or,
                 "LXOR": np.logical_xor}  # fmt: skip
    dtype, name = parts[0].dtype, op.name
    if name == "AVERAGE":
        total = sum(part.astype(np.complex128 if dtype.kind == "c" else np.float64) for part in parts) / len(parts)
        return (np.trunc(total) if dtype.kind in "iu" else total).astype(dtype)
    if dtype.kind == "b":
        name = {"SUM": "LOR", "PRODUCT": "LAND"}.get(name, name)
    total = parts[0] != 0 if name[0] == "L" else parts[0]
    for part in parts[1:]:
        total = functions[name](total, part)
    return total.astype(dtype)


def same(array, want, stream=None):
    got = values_of(array, stream or current.stream)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    if want.dtype.kind in "fcV" or want.dtype == ml_dtypes.bfloat16:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=1e-2, atol=1e-2)
    else:
        np.testing.assert_array_equal(got, want)


def all_ranks(world, dtype, shape):
    return [values(dtype, r, shape) for r in range(world.size)]


def operations(world):
    """Every operation, dtype and reduction."""
    p, r = world.size, world.rank
    for number, dtype in enumerate(DTYPES):
        parts = all_ranks(world, dtype, (13, 3))
        for op in hpccoll.Reduction:
            if _core.reduction_defined(op.value, number):
                same(hpccoll.allreduce(to_cupy(parts[r]), op), expected(op, parts))
        rows = [values(dtype, q, (q + 1, 2)) for q in range(p)]
        same(hpccoll.allgather(to_cupy(rows[r])), np.concatenate(rows))
        same(hpccoll.broadcast(to_cupy(parts[r]), p - 1), parts[p - 1])
        total, at = expected(hpccoll.SUM, parts), [13 // p * q + min(q, 13 % p) for q in range(p + 1)]
        same(hpccoll.reducescatter(to_cupy(parts[r])), total[at[r] : at[r + 1]])
        sent = [values(dtype, q, (3 * p, 2)) for q in range(p)]
        got, came = hpccoll.alltoall(to_cupy(sent[r]))
        same(got, np.concatenate([x[3 * r : 3 * r + 3] for x in sent]))
        assert came.tolist() == [3] * p
        for op in hpccoll.Reduction:
            if _core.reduction_defined(op.value, number):
                prefixes(world, op, parts)
        rooted(world, parts, rows, sent)


def prefixes(world, op, parts):
    """A reduce to the last rank; scans, which have no mean."""
    p, r = world.size, world.rank
    got = hpccoll.reduce(to_cupy(parts[r]), op=op, root=p - 1)
    if r < p - 1:
        assert got is None
    else:
        same(got, expected(op, parts))
    if op is hpccoll.AVERAGE:
        return
    same(hpccoll.scan(to_cupy(parts[r]), op), expected(op, parts[: r + 1]))
    x = to_cupy(parts[r])
    assert hpccoll.exscan(x, op, out=x) is x
    if r:
        same(x, expected(op, parts[:r]))


def rooted(world, parts, rows, sent):
    """Rows to the last rank and from it, evenly and by counts, with and without an `out`."""
    p, r, root = world.size, world.rank, world.size - 1
    handle = hpccoll.gather_async(to_cupy(rows[r]), root)
    got = handle.wait()
    if r == root:
        same(got, np.concatenate(rows))
        assert handle.rows().tolist() == [*range(1, p + 1)]
        out = to_cupy(np.zeros_like(np.concatenate(rows)))
        assert hpccoll.gather(to_cupy(rows[r]), root, out=out) is out
        same(out, np.concatenate(rows))
    else:
        assert got is None
        assert hpccoll.gather(to_cupy(rows[r]), root) is None
    at = [13 // p * q + min(q, 13 % p) for q in range(p + 1)]
    like = to_cupy(parts[r] if r == root else parts[r][:1])
    same(hpccoll.scatter(like, root), parts[root][at[r] : at[r + 1]])
    counts = [3 * p, *[0] * (p - 1)]
    out = to_cupy(np.zeros_like(sent[r][: counts[r]]))
    x, splits = (to_cupy(sent[r]), counts) if r == root else (None, None)
    assert hpccoll.scatter(x, root, splits=splits, out=out) is out
    same(out, sent[root][: counts[r]])


def libraries(world):
    """Types, strided arrays, outputs and other streams keep their values."""
    parts = all_ranks(world, np.dtype(np.float32), (7, 2))
    mine, total = parts[world.rank], sum(parts)
    stream = Stream()
    for x in (Plain(mine, stream), doubles.ByDlpack(mine, stream)):
        result = hpccoll.allreduce(x)
        assert type(result) is hpccoll.DeviceArray
        assert result.__cuda_array_interface__["stream"] is None
        same(result, total)
        same(hpccoll.allgather(x), np.concatenate(parts))
    x = Plain(mine, stream)
    assert hpccoll.allreduce(x, out=x) is x
    same(x, total, stream)
    tensor = hpccoll.allreduce(to_torch(mine))
    assert type(tensor) is doubles.Tensor
    same(tensor, total)
    tensor = hpccoll.allgather(to_torch(mine))
    assert type(tensor) is doubles.Tensor
    same(tensor, np.concatenate(parts))
    narrow = [part.astype(ml_dtypes.bfloat16) for part in parts]
    result = hpccoll.allreduce(doubles.ByDlpack(narrow[world.rank], stream))
    assert type(result) is hpccoll.DeviceArray
    assert not hasattr(result, "__cuda_array_interface__")
    same(hpccoll.allreduce(result), sum(narrow) * np.dtype(ml_dtypes.bfloat16).type(world.size))
    same(hpccoll.allgather(to_torch(narrow[world.rank])), np.concatenate(narrow))
    array = hpccoll.allreduce(to_cupy(mine, step=2))
    assert type(array) is doubles.CupyArray
    same(array, total)
    out, flat = to_cupy(mine, step=2), doubles.CupyArray(mine.shape, mine.dtype)
    assert hpccoll.allreduce(to_cupy(mine), out=out) is out
    flat[...] = out
    same(flat, total)
    gathered = doubles.CupyArray((7 * world.size, 2), np.float32)
    assert hpccoll.allgather(to_cupy(mine), out=gathered) is gathered
    same(gathered, np.concatenate(parts))
    narrow = hpccoll.compression.FP16
    same(
        hpccoll.allreduce(to_cupy(mine), hpccoll.AVERAGE, prescale=4.0, compression=narrow),
        total * 4 / world.size,
    )
    for nothing in (hpccoll.allreduce(to_cupy(mine[:0])), hpccoll.allgather(to_cupy(mine[:0]))):
        assert nothing.shape == (0, 2)


def groups(world):
    """Members of several types and streams are one batch per dtype, and their results are in order."""
    dtypes = [np.float32, np.float64, np.float32, np.int32]
    parts = [all_ranks(world, np.dtype(d), (n + 1,)) for n, d in enumerate(dtypes)]
    mine = [of_ranks[world.rank] for of_ranks in parts]
    for result, of_ranks in zip(hpccoll.allreduce([to_cupy(x) for x in mine]), parts, strict=True):
        same(result, sum(of_ranks))
    mixed = [to_cupy(mine[0]), Plain(mine[1], Stream()), to_torch(mine[2]), Plain(mine[3], Stream())]
    for result, of_ranks in zip(hpccoll.allreduce(mixed), parts, strict=True):
        same(result, sum(of_ranks), Stream())


def asynchronous(world):
    """Many at once, dropped inputs, handles that are polled, awaited and timed out."""
    parts = all_ranks(world, np.dtype(np.float32), (500,))
    mine, total = parts[world.rank], sum(parts)
    for _ in range(3):
        handles = [hpccoll.allreduce_async(to_cupy(mine * n), name=f"t{n}") for n in range(20)]
        gc.collect()
        for n, handle in enumerate(handles):
            result = handle.wait()
            doubles.write(handle.wait(host=True).data.ptr, total * n, current.stream)
            same(result, total * n)
    handle = hpccoll.allreduce_async(to_cupy(mine), name="polled")
    while not handle.done():
        world.progress()
        time.sleep(0)
    assert handle.launched()
    same(handle.wait(), total, Stream())  # no stream need wait: the values are there

    async def three():
        return await asyncio.gather(*[asyncio.ensure_future(wait(n)) for n in range(3)])

    async def wait(n):
        x = Plain(mine, Stream()) if n == 1 else to_cupy(mine)
        return await hpccoll.allreduce_async(x, name=f"awaited {n}")

    for result in asyncio.run(three()):
        same(result, total)
    for n in range(5):
        hpccoll.allgather_async(to_cupy(mine), name=f"dropped {n}")
    hpccoll.barrier()


def in_place_in_order(world):
    """Write, reduce and overwrite repeatedly in one stream; the host waits for nothing."""
    x = to_cupy(np.ones(64, np.float32))
    for step in range(1, 6):
        doubles.write(x.data.ptr, np.full(64, step, np.float32), current.stream)
        hpccoll.allreduce_async(x, name="x", out=x).wait()
        doubles.call("cuMemcpyDtoDAsync_v2", *map(doubles.ctypes.c_uint64, (x.data.ptr, x.data.ptr + 128)),
                     doubles.ctypes.c_size_t(128), doubles.pointer(current.stream.ptr))  # fmt: skip
    same(x, np.full(64, 5 * world.size, np.float32))


def another_stream_before(world):
    """Planted fault: hpccoll gets another stream than the one in which the values are written."""
    x = to_cupy(np.ones(64, np.float32))
    current.stream, written = Stream(), current.stream
    result = hpccoll.allreduce(x)
    same(result, np.full(64, world.size, np.float32))
    written.wait()


def another_stream_after(world):
    """Planted fault: the result is read in a stream that does not wait for it."""
    result = hpccoll.allreduce_async(to_cupy(np.ones(64, np.float32))).wait()
    same(result, np.full(64, world.size, np.float32), Stream())


def refused(world):
    """Errors are the same on all ranks, and the World goes on."""
    mine, stream = np.ones(4, np.float32), Stream()
    for x, said in (
        (Plain(mine, stream, mask=1), "has a mask"),
        (Plain(mine, stream, stream=0), "names stream 0"),
        (Plain(mine.reshape(2, 2), stream, strides=(4, 8)), "is not contiguous"),
        (Plain(mine.reshape(2, 2), stream, strides=(4,)), "a stride for each dimension"),
        (Plain(mine, stream, strides=(16, 4)), "a stride for each dimension"),
        (Plain(mine, stream, strides=()), "a stride for each dimension"),
        (Plain(mine, stream, typestr="<V2"), "not supported"),
        (Plain(mine, stream, data=(4096, False)), "the driver does not know its address 0x1000"),
        ([to_cupy(mine), mine], "a group lies in one memory"),
    ):
        raises(hpccoll.HpccollError, said, hpccoll.allreduce, x)
    locked = Plain(mine, stream)
    locked.more = {"data": (locked.memory.ptr, True)}
    raises(hpccoll.HpccollError, "read-only", hpccoll.allreduce, to_cupy(mine), out=locked)
    raises(hpccoll.HpccollError, "out lies in host memory", hpccoll.allreduce, to_cupy(mine), out=mine)
    raises(
        hpccoll.HpccollError,
        "out has shape",
        hpccoll.allgather,
        to_cupy(mine),
        out=to_cupy(mine.reshape(2, 2)),
    )
    if world.size > 1:
        x = mine if world.rank == 1 else to_cupy(mine)
        raises(hpccoll.MismatchError, "memory", hpccoll.allreduce, x, name="both")
    doubles.use_device(1)
    elsewhere = Plain(mine, stream)
    doubles.use_device(0)
    raises(hpccoll.InvalidArgumentError, "lies on GPU 1, this World uses GPU 0", hpccoll.allreduce, elsewhere)
    same(hpccoll.allreduce(to_cupy(mine)), mine * world.size)


def wrong_rows(world):
    """An `out` whose rows are wrong on one rank: one error on all ranks, and nothing is written."""
    p, bad = world.size, world.size - 1
    x = to_cupy(np.ones((p, 3), np.float32))
    for name, root, rows in (
        ("allgather", (), p * p),
        ("alltoall", (), p),
        ("gather", (bad,), p * p),
        ("scatter", (0,), 1),
    ):
        call = getattr(hpccoll, f"{name}_async")
        out = to_cupy(np.full((rows + 1, 3), -1, np.float32))
        handle = call(x, *root, name=name, out=out if world.rank == bad else None)
        said = f"has an out of {rows + 1} rows, its result has {rows}"
        raises(hpccoll.ResultSizeError, f"{name} '{name}': rank {bad}", handle.wait)
        raises(hpccoll.ResultSizeError, said, handle.wait)
        same(out, np.full((rows + 1, 3), -1, np.float32))
        out = to_cupy(np.full((rows, 3), -1, np.float32))
        handle = call(x, *root, name=name, out=out if world.rank == bad else None)
        result = handle.wait()
        if name != "gather" or world.rank == bad:
            result = result[0] if name == "alltoall" else result  # the rows from each rank come with it
            same(result, np.ones((rows, 3), np.float32))


def raises(kind, said, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"not refused: {said}")


def joined(world):
    """Ranks that have joined contribute neutral elements, also one that has never had an array."""
    for step in range(world.size - world.rank - 1):
        others = world.size - step - 1
        same(
            hpccoll.allreduce(to_cupy(np.ones(9, np.float32)), name=f"x{step}"),
            np.full(9, others, np.float32),
        )
        same(hpccoll.allgather(to_cupy(np.ones(2, np.int32)), name=f"g{step}"), np.ones(2 * others, np.int32))
        same(
            hpccoll.scan(to_cupy(np.ones(9, np.float32)), name=f"s{step}"),
            np.full(9, world.rank + 1, np.float32),
        )
        reduced = hpccoll.reduce(to_cupy(np.ones(9, np.float32)), root=0, name=f"r{step}")
        rows = hpccoll.gather(to_cupy(np.ones(2, np.int32)), 0, name=f"t{step}")
        if world.rank == 0:
            same(reduced, np.full(9, others, np.float32))
            same(rows, np.ones(2 * others, np.int32))
        same(hpccoll.scatter(to_cupy(np.full(world.size, 7)), 0, name=f"u{step}"), np.full(1, 7))
    hpccoll.join()


def sets(world):
    """Process sets share the device of their World."""
    half = world.split(world.rank % 2)
    same(half.allreduce(to_cupy(np.ones(9, np.float32))), np.full(9, half.size, np.float32))
    same(hpccoll.allreduce(to_cupy(np.ones(9, np.float32))), np.full(9, world.size, np.float32))
    half.shutdown()


def messages(world):
    """Messages of any size from rank to rank keep the order of streams, beside messages of host memory."""
    p, r = world.size, world.rank
    right, left, stream = (r + 1) % p, (r - 1) % p, Stream()
    for n in (0, 1, 2048, 2049, 100_000):
        mine, theirs = (values(np.dtype(np.float32), q, (n,)) for q in (r, left))
        x, y, z = to_cupy(mine), to_torch(mine), Plain(mine, stream)
        got = [to_cupy(theirs * 0), to_torch(theirs * 0), Plain(theirs * 0, stream)]
        receives = [hpccoll.recv_async(one, left, tag=k) for k, one in enumerate(got)]
        sends = [hpccoll.send_async(one, right, tag=k) for k, one in enumerate((x, y, z))]
        for k, (one, handle) in enumerate(zip(got, receives, strict=True)):
            assert handle.wait() == left == handle.peer
            same(one, theirs, stream if k == 2 else None)
        for handle in sends:
            assert handle.wait() is None
        doubles.write(x.data.ptr, mine * 0, current.stream)  # behind the wait it is the caller's again
    strided, kept = to_cupy(np.zeros(50, np.float32), step=2), to_cupy(np.full(50, r, np.float32), step=2)
    handle = hpccoll.recv_async(strided)
    hpccoll.send_async(kept, right).wait()
    assert handle.wait(host=True) == left
    dense = doubles.CupyArray((50,), np.float32)
    dense[...] = strided
    same(dense, np.full(50, left, np.float32))


def messages_in_order(world):
    """Under one tag, arrays in host memory stay behind earlier arrays that are still copied from the device."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    sizes = [1, 5000, 3, 1, 5000] * 4
    arrays = [np.full(n, k, np.float32) for k, n in enumerate(sizes)]
    sends = [hpccoll.send_async(x if k % 3 == 1 else to_cupy(x), right, tag=7) for k, x in enumerate(arrays)]
    for k, x in enumerate(arrays):
        if k % 2:
            got = np.zeros_like(x)
            assert hpccoll.recv(got, left, tag=7) == left
            np.testing.assert_array_equal(got, x)
        else:
            on_device = to_cupy(x * 0)
            assert hpccoll.recv(on_device, hpccoll.ANY_SOURCE, tag=7) == left
            same(on_device, x)
    for handle in sends:
        handle.wait()


def messages_that_fail(world):
    """The errors are those of host memory: sizes, timeouts, arguments, the end of a set."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    x, y = to_cupy(np.ones(4, np.float32)), to_cupy(np.ones(5000, np.float32))
    raises(hpccoll.InvalidArgumentError, "dest is 9", hpccoll.send, x, 9)
    locked = Plain(np.ones(4, np.float32), Stream())
    locked.more = {"data": (locked.memory.ptr, True)}
    raises(hpccoll.InvalidArgumentError, "read-only", hpccoll.recv, locked, left)
    handle = hpccoll.recv_async(x, left, tag=3)
    raises(TimeoutError, f"receive of 16 bytes from rank {left} (tag 3)", handle.wait, 0.01)
    hpccoll.barrier()
    other = hpccoll.send_async(y, right, tag=3)
    said = f"a message of 20000 bytes came for a receive of 16 bytes from rank {left} (tag 3)"
    raises(hpccoll.ResultSizeError, said, handle.wait)
    same(x, np.ones(4, np.float32))
    other.wait()
    own = world.subset(range(world.size))
    handles = [own.recv_async(x, left, tag=4), own.send_async(y, right, tag=5)]
    own.shutdown()
    for handle in handles:
        raises(hpccoll.ShutDownError, "shut down", handle.wait)
    same(hpccoll.allreduce(x), np.full(4, world.size, np.float32))


def overlapping(world):
    """Sets with common ranks and different roots work at the same time: they call NCCL in one order."""
    ranks = [*range(world.size)]
    made = {
        7: world.subset(ranks[:3]), 3000: world.subset([1, 0, *ranks[2:]]), 40: world.subset(ranks[:0:-1]),
        500: world,
    }  # fmt: skip
    mine = [(n, one) for n, one in made.items() if one]
    for step in range(12):
        first, handles = (world.rank + step) % len(mine), []
        for n, one in mine[first:] + mine[:first]:
            x = to_cupy(np.full((one.size, n), step + one.rank, np.float32))
            begin = (one.allreduce_async, one.allgather_async, one.reducescatter_async)[step % 3]
            handles += [(n, one, begin(x, name=f"x{step % 2}"))]
        for n, one, handle in handles:
            each = step + np.arange(one.size, dtype=np.float32)
            want = each.repeat(one.size) if step % 3 == 1 else each.sum().repeat((one.size, 0, 1)[step % 3])
            same(handle.wait(), np.tile(want[:, None], n))
    for _, one in mine[:-1]:
        one.shutdown()


def own_device(world):
    """HPCCOLL_DEVICE=local: each rank of a machine has another device."""
    doubles.use_device(world.rank)
    assert world.base.loop.device.number == world.rank
    same(hpccoll.allreduce(Plain(np.ones(3, np.float32), Stream())), np.full(3, world.size, np.float32))


def forked(world):
    """A child process neither uses nor frees its parent's memory."""
    x = to_cupy(np.ones(3, np.float32))  # before the fork: another thread may hold the driver's lock at that moment
    handle = hpccoll.allreduce_async(to_cupy(np.ones(3, np.float32)))
    child = os.fork()
    if child == 0:
        raises(hpccoll.ForkedError, "fork()", hpccoll.allreduce, x)
        del handle
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    same(handle.wait(), np.full(3, world.size, np.float32))


def broken(world):
    """A device that fails is an error of the next operation, on every rank."""
    x = to_cupy(np.ones(9, np.float32))
    for n in range(200):
        try:
            hpccoll.allreduce_async(x, name=f"x{n % 2}", out=x).wait(host=True)
        except hpccoll.HpccollError as error:
            assert "an illegal memory access was encountered (700)" in str(error), error
            return
    raise AssertionError("nothing failed")


def given_up(world):
    """Launched work that never ends is aborted, and has no result."""
    x = to_cupy(np.ones(5000, np.float32))
    try:
        for n in range(3):
            hpccoll.allreduce_async(x, name=f"x{n}", out=x).wait(host=True)
    except hpccoll.HpccollError as error:
        print(f"rank {world.rank} gave up: {error}", flush=True)
        raise
    raise AssertionError("nothing failed")


if __name__ == "__main__":
    names = sys.argv[1:]
    doubles.use_device(0)
    doubles.install_cupy()
    doubles.install_torch()
    own = hpccoll.init(check=False)
    for program in names:
        current.stream = Stream()
        globals()[program](own)
    hpccoll.shutdown()
