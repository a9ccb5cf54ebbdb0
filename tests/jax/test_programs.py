# SPDX-License-Identifier: Apache-2.0
"""Operations inside of JAX's transformations, programs that outlive Worlds, and ranks that disagree."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import hpccoll
import hpccoll.jax as hvd
from hpccoll.rendezvous import SingleProcess

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job")]


def test_control_flow():
    size, x = hvd.size(), jnp.arange(4.0) + hvd.rank()
    mean = np.arange(4.0) + (size - 1) / 2
    steps = jax.jit(lambda x: lax.scan(lambda c, _: (hvd.allreduce(c), None), x, None, length=5)[0])
    np.testing.assert_array_equal(steps(x), mean)
    loop = jax.jit(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, hvd.allreduce(c[1])), (0, x))[1])
    np.testing.assert_array_equal(loop(x), mean)
    either = jax.jit(lambda flag, x: lax.cond(flag, hvd.allreduce, lambda x: x, x))
    np.testing.assert_array_equal(either(True, x), mean)
    np.testing.assert_array_equal(either(False, x), x)


@pytest.mark.slow
def test_batches():
    x = jnp.arange(6.0).reshape(2, 3) + hvd.rank()
    whole = hvd.allreduce(x)
    for axis in (0, 1):
        np.testing.assert_array_equal(jax.jit(jax.vmap(hvd.allreduce, axis, axis))(x), whole)
    each = jax.jit(jax.vmap(lambda x: hvd.allgather(x)))(x)
    np.testing.assert_array_equal(each, np.stack([hvd.allgather(row) for row in x]))
    each = jax.vmap(lambda x: hvd.sendrecv(x, hvd.rank(), hvd.rank()))(x)
    np.testing.assert_array_equal(each, x)


@pytest.mark.slow
def test_derivatives():
    rank, size = hvd.rank(), hvd.size()
    x = jnp.arange(3.0) + 1 + rank
    total = np.arange(3.0) * size + sum(range(1, size + 1))

    def cube(x):
        return (hvd.allreduce(x, hvd.Sum) ** 3).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(cube))(x), 3 * total**2, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(cube))(x), 3 * total**2, rtol=1e-6)
    forward = jax.jit(lambda x: jax.jvp(cube, (x,), (jnp.ones(3),))[1])(x)
    np.testing.assert_allclose(forward, (3 * total**2).sum() * size, rtol=1e-6)
    product = jax.jit(lambda x: jax.jvp(jax.grad(cube), (x,), (jnp.ones(3),))[1])(x)
    np.testing.assert_allclose(product, 6 * total * size, rtol=1e-6)
    weights = jnp.arange(3.0 * size) + rank
    gathered = jax.jit(jax.grad(lambda x: (hvd.allgather(x) * weights).sum()))(x)
    own = np.arange(3.0 * rank, 3.0 * rank + 3)
    np.testing.assert_allclose(gathered, own * size + sum(range(size)), rtol=1e-6)
    shares = jax.grad(lambda x: hvd.reducescatter(x, hvd.Sum).sum() * (rank + 1))(jnp.ones(size))
    np.testing.assert_allclose(shares, np.arange(size) + 1)
    given = jax.jit(jax.grad(lambda x: hvd.broadcast(x, 0).sum()))(x)
    np.testing.assert_allclose(given, size if rank == 0 else 0)
    right, left = (rank + 1) % size, (rank - 1) % size
    back = jax.jit(jax.grad(lambda x: hvd.sendrecv(x, right, left).sum() * (rank + 1)))(x)
    np.testing.assert_allclose(back, right + 1)
    with pytest.raises(ValueError, match="MAX has no derivative"):
        jax.grad(lambda x: hvd.allreduce(x, hvd.Max).sum())(x)
    with pytest.raises(ValueError, match=r"scan .* has no derivative"):
        jax.grad(lambda x: hvd.scan(x).sum())(x)


def test_what_is_not_needed_any_more_takes_the_result():
    """A donated array and an intermediate value; XLA copies nothing, also for an array that the caller keeps."""
    copies = re.compile(r"ENTRY.*\bcopy\(", re.DOTALL)  # one that is a part of another loop costs nothing

    def total(x):
        return hvd.allreduce(x, hvd.Sum, name="in place")

    kept, donated = jnp.ones(1000), jnp.ones(1000)
    for program in (jax.jit(total), jax.jit(total, donate_argnums=0), jax.jit(lambda x: total(x * 2))):
        assert not copies.search(program.lower(kept).compile().as_text())
    place = donated.unsafe_buffer_pointer()
    result = jax.jit(total, donate_argnums=0)(donated)
    assert donated.is_deleted() and result.unsafe_buffer_pointer() == place
    np.testing.assert_array_equal(result, hvd.size())
    np.testing.assert_array_equal(jax.jit(total)(kept), hvd.size())
    np.testing.assert_array_equal(kept, 1)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("n", [1, 10_000])
@pytest.mark.parametrize("count", [2, 12])
def test_ranks_have_independent_operations_in_other_orders(count, n):
    """Also in programs so small that XLA would run them one step after another."""
    order = range(count) if hvd.rank() % 2 else reversed(range(count))

    def program(x):
        total = jnp.zeros(n)
        for i in order:
            total = jnp.sin(total) * 0 + total + hvd.allreduce(x * i, hvd.Sum, name=f"{n}.{i} of {count}")
        return total

    np.testing.assert_array_equal(jax.jit(program)(jnp.ones(n)), hvd.size() * count * (count - 1) / 2)


def test_empty_results_in_other_orders():
    """XLA puts what is empty at one place, and runs what has one place one after the other."""
    order = range(6) if hvd.rank() % 2 else range(5, -1, -1)
    more = {"name": "group of empty and others", "op": hvd.Sum}

    def program(x):
        sums = {i: hvd.allreduce(x[:, :i] * 2, name=f"empty {i}") for i in order}
        rows = {i: hvd.allgather(x[:, :i] * 2, name=f"empty rows {i}") for i in order}
        group = hvd.grouped_allreduce([x * 2, jnp.ones(2), x[:, :0], jnp.arange(3), x.astype("bfloat16")], **more)
        return [sums[i] for i in range(6)], [rows[i] for i in range(6)], group

    sums, rows, group = jax.jit(program)(jnp.ones((0, 6)))
    assert [x.shape for x in sums] == [x.shape for x in rows] == [(0, i) for i in range(6)]
    assert [(x.shape, str(x.dtype)) for x in group] == [
        ((0, 6), "float32"), ((2,), "float32"), ((0, 0), "float32"), ((3,), "int32"), ((0, 6), "bfloat16"),
    ]  # fmt: skip
    np.testing.assert_array_equal(group[1], hvd.size() * np.ones(2))
    np.testing.assert_array_equal(group[3], hvd.size() * np.arange(3))
    share = jax.jit(lambda x: hvd.reducescatter(x, hvd.Sum, name="fewer rows than ranks"))(jnp.ones((1, 2)))
    assert share.shape == (int(hvd.rank() == 0), 2)
    same = jax.jit(lambda x: hvd.sendrecv(x, hvd.rank(), hvd.rank()))(jnp.ones((3, 0)))
    assert same.shape == (3, 0)


def test_what_ranks_disagree_about_is_an_error_on_all():
    if hvd.size() == 1:
        return
    program = jax.jit(lambda x: hvd.allreduce(x, name="shapes"))
    with pytest.raises((RuntimeError, ValueError), match=r"MismatchError: allreduce 'shapes': rank 0 has float32\[2\]"):
        jax.block_until_ready(program(jnp.ones(2 + hvd.rank())))
    several = jax.jit(lambda x: [hvd.allreduce(x[i:], name=f"several {i}") for i in range(8)])
    with pytest.raises((RuntimeError, ValueError), match=r"MismatchError: allreduce 'several [0-7]'"):
        jax.block_until_ready(several(jnp.ones(9 + hvd.rank())))
    rows = jax.jit(lambda x: hvd.allgather(x, name="rows"))
    with pytest.raises((RuntimeError, ValueError), match=r"ResultSizeError: allgather 'rows': rank 0 .* has an out of"):
        jax.block_until_ready(rows(jnp.ones(2 + hvd.rank())))
    assert float(hvd.allreduce(1.0)) == 1.0


def test_what_one_rank_refuses_in_a_trace_is_an_error_on_all():
    """Also in a nested function, and where the next program has a call of the same place."""
    if hvd.size() == 1:
        return
    refuses, x = hvd.size() - 1, jnp.ones(3)

    @functools.partial(jax.jit, static_argnums=1)
    def total(x, op):
        return hvd.allreduce(x, op)

    for number in range(2):
        mine = hvd.rank() == refuses
        says = "op is 'sum'" if mine else f"MismatchError: allreduce .* rank {refuses} has refused this call"
        with pytest.raises((RuntimeError, ValueError), match=says):
            jax.block_until_ready(jax.jit(lambda x, op="sum" if mine else hvd.Sum: total(x * 2, op))(x + number))
        np.testing.assert_array_equal(jax.jit(lambda x: total(x, hvd.Sum))(x), hvd.size())


def test_a_name_that_is_in_flight_is_refused():
    """Rank 0's first request is in flight until it has its error, because the others ask for nothing before."""
    program, told = jax.jit(lambda x: hvd.allreduce(x, name="twice")), "told"
    if hvd.size() > 1 and hvd.rank() == 0:
        first = hpccoll.allreduce_async(np.ones(4, np.float32), hpccoll.AVERAGE, name="twice")
        with pytest.raises((RuntimeError, ValueError), match="DuplicateNameError"):
            jax.block_until_ready(program(jnp.ones(4)))
        assert hvd.broadcast_object(told, 0) == told
        np.testing.assert_array_equal(first.wait(), 1.0)
    else:
        assert hvd.broadcast_object(None if hvd.rank() else told, 0) == told
        np.testing.assert_array_equal(program(jnp.ones(4)), 1.0)


def test_several_local_devices_are_refused():
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if len(jax.devices()) == 1:
        pytest.skip("one device: run with XLA_FLAGS=--xla_force_host_platform_device_count=2")
    spread = NamedSharding(Mesh(np.array(jax.devices()), "d"), PartitionSpec("d"))
    with pytest.raises(ValueError, match=r"local devices .* one process drives one device"):
        jax.jit(hvd.allreduce)(jax.device_put(jnp.ones(8), spread))
    with pytest.raises(ValueError, match="one process drives one device"):
        hvd.allreduce(jax.device_put(jnp.ones(8), spread))


def test_programs_on_a_second_device_are_refused():
    """Programs of two devices run at the same time, as does what is called outside: a name would mix their values."""
    if len(jax.devices()) == 1:
        pytest.skip("one device: run with XLA_FLAGS=--xla_force_host_platform_device_count=2")
    right, left = (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()
    for function in (lambda x: hvd.allreduce(x, name="devices"), lambda x: hvd.sendrecv(x, right, left)):
        program = jax.jit(function)
        np.testing.assert_array_equal(program(jnp.ones(3)), 1)
        with pytest.raises(ValueError, match="one process drives one device"):
            program(jax.device_put(jnp.ones(3), jax.devices()[1]))
        np.testing.assert_array_equal(program(jnp.ones(3)), 1)
    np.testing.assert_array_equal(hvd.allreduce(jax.device_put(jnp.ones(3), jax.devices()[1])), 1)


def test_operations_where_jit_is_disabled():
    """Also behind a program, which they wait for with a compiled one."""
    rank, size = hvd.rank(), hvd.size()
    program = jax.jit(lambda x: hvd.allreduce(x, hvd.Sum, name="before disabled"))
    np.testing.assert_array_equal(program(jnp.ones(2)), size)
    with jax.disable_jit():
        np.testing.assert_array_equal(program(jnp.full(2, rank)), sum(range(size)))
        np.testing.assert_array_equal(lax.fori_loop(0, 2, lambda _, x: hvd.allreduce(x, hvd.Sum), jnp.ones(2)), size**2)


def test_programs_outlive_worlds():
    program = jax.jit(lambda x: hvd.allreduce(x, name="outlives"))
    assert float(program(1.0)) == 1.0
    hvd.shutdown()
    with pytest.raises(
        (RuntimeError, ValueError), match="ShutDownError: a compiled program runs while there is no World"
    ):
        jax.block_until_ready(program(1.0))
    hvd.init()
    assert float(program(1.0)) == 1.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", [hvd.shutdown, hvd.join, lambda: hpccoll.join_async().wait()])
def test_the_end_waits_for_programs(end):
    """The last step of a training computes for a while; its operation begins after shutdown() or join() was called."""

    def total(x):
        turns = 0 if hvd.rank() else 60
        late = lax.fori_loop(0, turns, lambda _, a: jnp.tanh(a @ a), jnp.eye(200) * x[0])
        return hvd.allreduce(x + 0 * late[0, 0], hvd.Sum, name="last step")

    for function in (total, lambda x: (hvd.barrier(), total(x))[1]):
        program = jax.jit(function)
        jax.block_until_ready(program(jnp.ones(3)))
        result = program(jnp.ones(3))
        size = hvd.size()
        end()
        np.testing.assert_array_equal(result, size)
        hvd.init()


def test_programs_are_traced_anew_for_another_size():
    """A mean over n ranks has the derivative 1 / n, and an allgather n rows; programs contain both."""
    mean = jax.jit(jax.grad(lambda x: hvd.allreduce(x, name="other size")))
    rows = jax.jit(lambda x: hvd.allgather(x, name="rows of another size"))
    mine = jnp.ones((1, 2)) * (hvd.rank() + 1)
    before = hvd.size()
    assert float(mean(1.0)) == pytest.approx(1 / before)
    assert rows(mine).shape == (before, 2)
    hvd.shutdown()
    hpccoll.init(rendezvous=SingleProcess(), nodes="1")
    assert float(mean(1.0)) == 1.0
    np.testing.assert_array_equal(rows(mine), mine)
    hvd.shutdown()
    hvd.init()
    assert float(mean(1.0)) == pytest.approx(1 / before)
    assert rows(mine).shape == (before, 2)


def test_what_a_caller_keeps_is_refused_for_another_size():
    """JAX cannot trace it anew: a compiled program, and a pullback, which have the number of ranks in them."""
    ones = jnp.ones((1, 2))
    mean = jax.jit(jax.grad(lambda x: hvd.allreduce(x, name="kept"))).lower(1.0).compile()
    pullbacks = [
        jax.vjp(lambda x: hvd.allgather(x, name="kept rows"), ones)[1],
        jax.vjp(jax.jit(lambda x: hvd.allgather(x, name="kept rows of a program")), ones)[1],
    ]
    before, rows = hvd.size(), jnp.ones((hvd.size(), 2))
    assert float(mean(1.0)) == pytest.approx(1 / before)
    hvd.shutdown()
    hpccoll.init(rendezvous=SingleProcess(), nodes="1")
    try:
        for kept in [lambda: mean(1.0), *(lambda pull=pull: pull(rows) for pull in pullbacks)]:
            if before == 1:
                jax.block_until_ready(kept())
            else:
                with pytest.raises((RuntimeError, ValueError), match=rf"of {before}, and this process is rank 0 of 1"):
                    jax.block_until_ready(kept())
    finally:
        hvd.shutdown()
        hvd.init()


def test_what_is_received_has_its_own_shape_and_dtype():
    """Rank 0 sends two float16 and receives four float32, as the ranks beside it see it, too."""
    rank, size = hvd.rank(), hvd.size()

    def sent_by(rank):
        return jnp.arange(2, dtype=jnp.float16) + 1 if rank == 0 else jnp.arange(4, dtype=jnp.float32) + rank

    after, before = (rank + 1) % size, (rank - 1) % size

    def exchanged(x):
        return hvd.sendrecv(x, after, before, like=sent_by(before))

    def weighted(x):
        return (exchanged(x).astype(jnp.float32) * (rank + 1)).sum()

    for change in (lambda function: function, jax.jit):
        received = change(exchanged)(sent_by(rank))
        assert received.dtype == sent_by(before).dtype
        np.testing.assert_array_equal(received, sent_by(before))
        gradient = change(jax.grad(weighted))(sent_by(rank))
        assert gradient.dtype == sent_by(rank).dtype
        np.testing.assert_array_equal(gradient, np.full(sent_by(rank).shape, after + 1))
    with pytest.raises(ValueError, match="receives int32, which has no derivative to send back"):
        jax.make_jaxpr(jax.grad(lambda x: 1.0 * hvd.sendrecv(x, after, before, like=jnp.int32(0))))(1.0)


@pytest.mark.parametrize("x", [1.0, np.float64(1.0), np.ones(2)], ids=["number", "scalar", "array"])
def test_numbers_that_are_differentiated_get_the_dtype_that_jax_gives_them(x):
    value, pull = jax.vjp(lambda x: hvd.allreduce(x, name="number"), x)
    assert value.dtype == jnp.asarray(x).dtype == jnp.float32
    np.testing.assert_allclose(pull(jnp.ones_like(value))[0], np.full(np.shape(x), 1 / hvd.size()))


def test_an_exported_program_comes_back():
    def program(x):
        hvd.barrier()
        return hvd.allreduce(x, hvd.Sum, name="exported"), hvd.sendrecv(x, hvd.rank(), hvd.rank())

    ours = [export.DisabledSafetyCheck.custom_call(name) for name in ("hpccoll", "hpccoll.nothing")]
    made = export.export(jax.jit(program), disabled_checks=ours)(jnp.ones(2))
    total, same = jax.jit(export.deserialize(made.serialize()).call)(jnp.ones(2) * 3)
    np.testing.assert_array_equal(total, np.full(2, 3 * hvd.size()))
    np.testing.assert_array_equal(same, np.full(2, 3))


def test_an_exported_program_is_called_several_times_and_differentiated():
    """Beside an operation of its name, in a nested function, and in its own derivative; rank k weights with k + 1."""
    rank, size = hvd.rank(), hvd.size()

    def program(x):
        square = hvd.allgather(x, name="exported twice") ** 2
        return (rank + 1) * (square.sum() + hvd.allgather(2 * x, name="exported twice").sum())

    ours = [export.DisabledSafetyCheck.custom_call(name) for name in ("hpccoll", "hpccoll.nothing")]
    made = export.export(jax.jit(program), disabled_checks=ours)(jnp.ones(2))
    call = export.deserialize(made.serialize(vjp_order=1)).call
    nested = jax.jit(call)

    def several(x):
        return call(x), call(3 * x), nested(x), nested(2 * x), hvd.allreduce(x, hvd.Sum, name="exported twice")

    *sums, total = jax.jit(several)(jnp.ones(2))
    np.testing.assert_allclose(sums, [2 * size * (rank + 1) * (x * x + 2 * x) for x in (1, 3, 1, 2)])
    np.testing.assert_array_equal(total, size)
    gradient = jax.jit(jax.grad(lambda x: call(x) + call(3 * x)))(jnp.ones(2))
    np.testing.assert_allclose(gradient, size * (size + 1) / 2 * (2 + 2 + 18 + 6))
