# SPDX-License-Identifier: Apache-2.0
"""Every operation, in a compiled program and outside, with its result on every rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO

import hpccoll
import hpccoll.jax as hvd
from hpccoll.jax.internals import enable_x64

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job")]


def both(function, *arrays):
    """The results of a function outside of jit and inside, which are equal."""
    outside, inside = function(*arrays), jax.jit(function)(*arrays)
    for one, other in zip(jax.tree.leaves(outside), jax.tree.leaves(inside), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    return inside


def test_reductions():
    rank, size = hvd.rank(), hvd.size()
    x = jnp.arange(5.0) + rank
    mean = (size - 1) / 2
    np.testing.assert_array_equal(both(hvd.allreduce, x), np.arange(5.0) + mean)
    np.testing.assert_array_equal(both(lambda x: hvd.allreduce(x, hvd.Max), x), np.arange(5.0) + size - 1)
    summed = both(lambda x: hvd.allreduce(x, hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), x)
    np.testing.assert_array_equal(summed, 2 * size * (np.arange(5.0) + mean))
    first, second = both(lambda x: hvd.grouped_allreduce([x, x.astype(jnp.int32)], hvd.Sum), x)
    np.testing.assert_array_equal(first, size * (np.arange(5.0) + mean))
    assert second.dtype == jnp.int32
    np.testing.assert_array_equal(both(lambda x: hvd.scan(x), x), (rank + 1) * (np.arange(5.0) + rank / 2))
    np.testing.assert_array_equal(both(lambda x: hvd.exscan(x), x), rank * (np.arange(5.0) + (rank - 1) / 2))
    reduced = both(lambda x: hvd.reduce(x, op=hvd.Sum, root_rank=size - 1), x)
    assert (reduced is not None) == (rank == size - 1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    x = jnp.ones((2, 3), dtype)
    op = hvd.Max if dtype == "bool" else hvd.Sum
    if not hpccoll._core.reduction_defined(op.code, hpccoll._core.DTYPES.index(dtype)):
        pytest.skip("not defined")
    result = both(lambda x: hvd.allreduce(x, op), x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(result, complex), 1 if dtype == "bool" else hvd.size())


def test_arrays_of_64_bits_stay_so_where_jax_makes_no_others():
    """A program has such arrays from `enable_x64`; jax.numpy cuts them to 32 bits without a word, 2**40 to 0."""
    rank, size = hvd.rank(), hvd.size()
    with enable_x64(True):
        x = jnp.asarray([2**40 + rank])
        y = jnp.asarray([1 + 2.0**-40])
    np.testing.assert_array_equal(both(lambda x: hvd.broadcast(x, 0), x), [2**40])
    np.testing.assert_array_equal(both(lambda x: hvd.allgather(x), x), 2**40 + np.arange(size))
    assert float(both(lambda y: hvd.allreduce(y, hvd.Sum), y)[0]) == size * (1 + 2.0**-40)
    np.testing.assert_array_equal(hvd.broadcast_parameters({"x": x})["x"], [2**40])
    np.testing.assert_array_equal(hvd.allreduce_gradients({"x": x}, hvd.Max)["x"], [2**40 + size - 1])
    right, left = (rank + 1) % size, (rank - 1) % size
    np.testing.assert_array_equal(both(lambda x: hvd.sendrecv(x, right, left), x), [2**40 + left])


def test_rows():
    rank, size = hvd.rank(), hvd.size()
    gathered = both(lambda x: hvd.allgather(x), jnp.full((2, 3), rank))
    np.testing.assert_array_equal(gathered[:, 0], np.repeat(np.arange(size), 2))
    counts = [r + 1 for r in range(size)]
    uneven = both(lambda x: hvd.allgather(x, rows=counts), jnp.full(rank + 1, rank))
    np.testing.assert_array_equal(uneven, np.repeat(np.arange(size), counts))
    np.testing.assert_array_equal(hvd.allgather(jnp.full(rank + 1, rank)), uneven)  # outside nobody needs the rows
    whole = both(lambda x: hvd.gather(x, 0), jnp.full(2, rank))
    assert (whole is not None) == (rank == 0)
    exchanged = both(lambda x: hvd.alltoall(x), 10 * rank + jnp.arange(2 * size))
    np.testing.assert_array_equal(exchanged[::2], 10 * np.arange(size) + 2 * rank)
    to, of = [r + 1 for r in range(size)], [rank + 1] * size
    sent = both(lambda x: hvd.alltoall(x, to, rows=of), jnp.full((sum(to), 2), rank))
    np.testing.assert_array_equal(sent[:, 0], np.repeat(np.arange(size), rank + 1))
    share = both(lambda x: hvd.reducescatter(x, hvd.Sum), jnp.arange(2.0 * size + 1))
    assert len(share) == 2 + (rank == 0)
    np.testing.assert_array_equal(both(lambda x: hvd.scatter(x, 0), jnp.arange(2 * size)), [2 * rank, 2 * rank + 1])
    np.testing.assert_array_equal(both(lambda x: hvd.broadcast(x, size - 1), jnp.full(3, rank)), size - 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_functions_for_arrays_give_arrays_of_jax_back(dtype):
    x = jnp.arange(3).astype(dtype) + hvd.rank()
    result = hpccoll.allreduce(x, hpccoll.SUM)
    assert isinstance(result, jax.Array) and result.dtype == x.dtype
    expected = hvd.size() * np.arange(3) + sum(range(hvd.size()))
    np.testing.assert_array_equal(np.asarray(result, np.float32), expected)
    with pytest.raises(hpccoll.UnsupportedError, match="is being traced: use"):
        jax.jit(hpccoll.allreduce)(x)


def test_messages_keep_their_order():
    rank, size = hvd.rank(), hvd.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    np.testing.assert_array_equal(both(lambda x: hvd.sendrecv(x, right, left), jnp.full(3, rank)), left)

    def ring(x):
        if rank == 0:
            hvd.send(x, right, tag=3)
            got = hvd.recv(x, left, tag=3)
        else:
            got = hvd.recv(x, left, tag=3)
            hvd.send(x + got, right, tag=3)
        hvd.barrier()
        return got

    expected = size * (size - 1) // 2 if rank == 0 else rank * (rank - 1) // 2
    if size > 1:
        np.testing.assert_array_equal(both(ring, jnp.full(3, rank)), expected)


def test_process_sets():
    rank, size = hvd.rank(), hvd.size()
    sets = [hvd.add_process_set([r]) for r in range(size)] if size > 1 else [hvd.global_process_set]
    mine = sets[rank]
    program = jax.jit(lambda x: hvd.allreduce(x, hvd.Sum, process_set=mine))
    x = jnp.full(2, 1.0 + rank)
    np.testing.assert_array_equal(program(x), 1.0 + rank)
    if size > 1:
        with pytest.raises(ValueError, match="does not contain rank"):
            hvd.allreduce(jnp.ones(1), process_set=sets[(rank + 1) % size])
        for one in sets:
            hvd.remove_process_set(one)
        with pytest.raises((RuntimeError, ValueError), match="process set has ended"):
            jax.block_until_ready(program(x))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: hvd.allreduce(x, 7), "op is 7"),
        (lambda x: hvd.allreduce(x, hvd.Adasum), "no Adasum"),
        (lambda x: hvd.allreduce(x.astype(jnp.int32), prescale_factor=0.5), "factors go with"),
        (lambda x: hvd.allreduce(x, name=""), "a name is a string"),
        (lambda x: hvd.allreduce(x, compression="fp16"), "compression is 'fp16'"),
        (lambda x: hvd.allreduce(BCOO((jnp.ones(1), jnp.zeros((1, 1), int)), shape=(3,))), r"is sparse: use .*todense"),
        (lambda x: hvd.grouped_allreduce([]), "at least one array"),
        (lambda x: hvd.allreduce(np.array(["text"])), "does not make an array of JAX"),
        (lambda x: hvd.allreduce(x, prescale_factor="2"), "a factor is '2'"),
        (lambda x: jax.jit(lambda root: hvd.broadcast(x, root))(0), "known when the program is traced"),
        (lambda x: jax.jit(lambda by: hvd.allreduce(x, prescale_factor=by))(2.0), "known when the program is traced"),
        (lambda x: hvd.recv(3, 0), "like is 3"),
        (lambda x: hvd.recv(x.astype(jnp.float8_e4m3fn), 0), "float8_e4m3fn is not supported"),
        (lambda x: hvd.sendrecv(x, 0, 0, like=jax.ShapeDtypeStruct((3,), jnp.int4)), "int4 is not supported"),
        (lambda x: hvd.sendrecv(x, 0, 0, like=jax.random.key(0)), "key<fry> is not supported"),
        (lambda x: hvd.sendrecv(x, 0, 0, like=3), "like is 3"),
        (lambda x: hvd.broadcast(x, 99), "root_rank is 99"),
        (lambda x: hvd.send(x, 0, tag=-1), "tag is -1"),
        (lambda x: hvd.allgather(x, rows=[1]), "rows"),
        (lambda x: hvd.scan(x, hvd.Average), "scan has no Average"),
        (lambda x: hvd.reducescatter(x.sum()), "at least one dimension"),
        (lambda x: hvd.allreduce(x.astype(jnp.float8_e4m3fn)), "float8_e4m3fn is not supported; one of: bool"),
        (lambda x: hvd.broadcast(x.astype(jnp.float8_e4m3fn), 0), "float8_e4m3fn is not supported; one of: bool"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(call, words):
    for function in (call, jax.jit(call)):
        with pytest.raises(ValueError, match=words):
            function(jnp.ones(3))
