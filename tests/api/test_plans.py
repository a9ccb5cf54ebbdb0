# SPDX-License-Identifier: Apache-2.0
"""Persistent operations: their values, what they cost the control plane, how they fail and end."""

import array
import re
import time

import numpy as np
import pytest
from test_jobs import INIT, job

import hpccoll
from hpccoll import _core, errors, testing

pytestmark = pytest.mark.timeout(200)
ROWS = [0, 3, 20_000]
"""Rows have three int64. Few of them go flat through shared memory, many in chunks."""
CONTROL = ("messages_up", "messages_down", "control_messages_local", "requests", "entries")
"""Between nodes there are also signs of life, as in any wait that lasts."""


def values(rank: int, rows: int, step: int) -> np.ndarray:
    return np.random.default_rng([rank, rows, step]).integers(0, 9, (rows, 3))


def all_values(world: hpccoll.World, rows: list[int], step: int) -> list[np.ndarray]:
    return [values(rank, n, step) for rank, n in enumerate(rows)]


@pytest.mark.parametrize("rows", ROWS)
def test_all_operations_several_times(everywhere, rows):
    def program(world):
        size, me, root = world.size, world.rank, world.size - 1
        shares = [(rows + rank) // size for rank in range(size)]  # for each rank, from every rank
        x, uneven = np.empty((rows, 3), np.int64), np.empty((rows + me, 3), np.int64)
        target = np.empty_like(x)
        given = np.empty((sum(shares), 3), np.int64)
        even = np.empty((sum(shares) // size + (me < sum(shares) % size), 3), np.int64)
        plans = {
            "allreduce": world.allreduce_init(x, out=target),
            "reduce": world.reduce_init(x, op=hpccoll.MAX, root=root),
            "broadcast": world.broadcast_init(x, root),
            "allgather": world.allgather_init(uneven),
            "reducescatter": world.reducescatter_init(x),
            "alltoall": world.alltoall_init(given, shares),
            "gather": world.gather_init(uneven, root),
            "scatter": world.scatter_init(given if me == root else given[:0], root, shares),
            "even": world.scatter_init(given if me == root else None, root, out=even),
            "scan": world.scan_init(x),
            "exscan": world.exscan_init(x, hpccoll.MAX),
            "barrier": world.barrier_init(),
        }
        for step in range(3):
            all_x = [values(rank, rows, step) for rank in range(size)]
            x[:] = all_x[me]
            uneven[:] = values(me, rows + me, step)
            given[:] = values(me, sum(shares), step)
            hpccoll.start_all(plans.values())
            results = dict(zip(plans, hpccoll.wait_all(plans.values()), strict=True))
            assert results["allreduce"] is target and (target == sum(all_x)).all()
            assert (results["reduce"] == np.max(all_x, axis=0)).all() if me == root else results["reduce"] is None
            assert (results["broadcast"] == all_x[root]).all()
            assert (results["allgather"] == np.concatenate([values(r, rows + r, step) for r in range(size)])).all()
            assert (results["reducescatter"] == np.array_split(sum(all_x), size)[me]).all()
            received, counts = results["alltoall"]
            begin = sum(shares[:me])
            parts = [values(r, sum(shares), step)[begin : begin + shares[me]] for r in range(size)]
            assert (received == np.concatenate(parts)).all() and list(counts) == [shares[me]] * size
            everything = np.concatenate([values(r, rows + r, step) for r in range(size)])
            assert (results["gather"] == everything).all() if me == root else results["gather"] is None
            roots = values(root, sum(shares), step)
            assert (results["scatter"] == roots[begin : begin + shares[me]]).all()
            assert results["even"] is even and (even == np.array_split(roots, size)[me]).all()
            assert (results["scan"] == sum(all_x[: me + 1])).all()
            assert (results["exscan"] == world.exscan(x, hpccoll.MAX)).all()
            assert me == 0 or (results["exscan"] == np.max(all_x[:me], axis=0)).all()
            assert results["barrier"] is None
        for plan in plans.values():
            plan.free()

    everywhere(program)


def test_a_group_of_several_dtypes(everywhere):
    def program(world):
        arrays = [np.empty(5), np.empty(9, np.int32), np.empty((2, 3), np.float32), np.empty(1), np.empty(3, np.int32)]
        out = [np.empty_like(x) for x in arrays]
        plan = world.allreduce_init(arrays, out=out)
        root = world.reduce_init(arrays, op=hpccoll.MAX, root=world.size - 1)
        in_place = world.allreduce_init([x.copy() for x in arrays[:2]])
        for step in range(3):
            for k, x in enumerate(arrays):
                x[...] = world.rank + 10 * k + step
            hpccoll.start_all([plan, root])
            assert plan.active and root.active
            while not plan.test():
                pass
            results, most = hpccoll.wait_all([plan, root])
            assert all(a is b for a, b in zip(results, out, strict=True)) and not plan.active
            for k, x in enumerate(arrays):
                assert (out[k] == sum(rank + 10 * k + step for rank in range(world.size))).all()
                assert world.rank != world.size - 1 or (most[k] == world.size - 1 + 10 * k + step).all(), (k, x)
            assert most is None or len(most) == 5
            assert [x.dtype for x in in_place()] == [x.dtype for x in arrays[:2]]
        plan.start()
        with pytest.raises(errors.InvalidArgumentError, match="started and is not over"):
            plan.start()
        plan.wait()
        plan.free()
        with pytest.raises(errors.InvalidArgumentError, match="was freed"):
            plan.start()
        root.free()
        if world.size > 1:
            mixed = [np.ones(1), np.ones(1, np.int32 if world.rank else np.float64)]
            with pytest.raises(errors.MismatchError, match=r"float64\[1\] float64\[1\].*float64\[1\] int32\[1\]"):
                world.allreduce_init(mixed)

    everywhere(program)


def test_messages_around_a_ring(everywhere):
    def program(world):
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        sizes = [1, 1000, 70_000]
        out, come = [np.empty(n) for n in sizes], [np.empty(n) for n in sizes]
        receives = [world.recv_init(x, left, tag=k) for k, x in enumerate(come)]
        sends = [world.send_init(x, right, tag=k) for k, x in enumerate(out)]
        any_source = world.recv_init(np.empty(1), tag=9)
        for step in range(5):
            for x in out:
                x[:] = world.rank * 10 + step
            hpccoll.start_all([*receives, *sends])
            assert hpccoll.wait_all([*receives, *sends]) == [left] * 3 + [None] * 3
            assert all((x == left * 10 + step).all() for x in come)
            any_source.start()
            world.send(np.ones(1), right, tag=9)  # a plan's messages are messages like others
            assert any_source.wait() == left
        for plan in (*receives, *sends, any_source):
            plan.free()

    everywhere(program)


def test_messages_of_plans_keep_their_order_among_others(everywhere):
    """Sends of a plan and others, receives of a plan and others, under one tag: in the order of the program."""

    def program(world):
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        x, y = np.zeros(2), np.zeros(2)
        own, other = np.random.default_rng(world.rank), np.random.default_rng([1, world.rank])
        send, receive = world.send_init(x, right), world.recv_init(y, left)
        for step in range(0, 60, 6):
            handles = []
            for k in range(6):
                if own.random() < 0.5:
                    x[:] = step + k
                    send()
                else:
                    handles.append(world.send_async(np.full(2, float(step + k)), right))
            for k in range(6):
                if other.random() < 0.5:
                    assert receive() == left
                else:
                    world.recv(y, left)
                assert (y == step + k).all(), (step, k, y)
            for handle in handles:
                handle.wait()
        send.free()
        receive.free()

    everywhere(program)


def test_few_bytes_to_a_neighbour_wake_no_thread(threads):
    def program(world):
        other = 1 - world.rank
        x, y = np.full(100, world.rank), np.empty(100, int)
        plans = [world.recv_init(y, other), world.send_init(x, other)]
        world.barrier()
        before = world.stats()["wakes"]
        for _ in range(50):
            hpccoll.start_all(plans)
            assert hpccoll.wait_all(plans) == [other, None] and (y == other).all()
        assert world.stats()["wakes"] == before
        plans[1].start()  # its receive is not posted, and nobody waits there
        assert plans[1].test()
        plans[0]()
        for plan in plans:
            plan.free()

    testing.run(threads(2), program)


def test_a_receive_that_is_started_without_its_send_is_reported(threads, heard):
    def program(world):
        if world.rank == 1:
            heard(r"a receive of 8 bytes from rank 1 .*has waited ")
            world.send(np.ones(1), 0)
        else:
            assert world.recv_init(np.empty(1), 1)() == 1

    testing.run(threads(2, stall_warning=0.2), program)


def test_a_start_sends_no_control_message(everywhere):
    def program(world):
        x = np.arange(3.0)
        plans = [world.allreduce_init(x), world.barrier_init()]
        plans += [world.broadcast_init(x), world.allreduce_init(np.ones(20_000))]
        plans.append(world.allreduce_init([np.ones(n, f"f{4 + 4 * (n % 2)}") for n in range(20)]))
        world.barrier()
        before = world.stats()
        for _ in range(10):
            for plan in plans:
                plan()
        after = world.stats()
        assert {name: after[name] - before[name] for name in CONTROL} == dict.fromkeys(CONTROL, 0)
        assert after["plan_starts"] - before["plan_starts"] == 60  # a group of two dtypes is two
        for plan in plans:
            plan.free()

    everywhere(program)


def test_ranks_start_plans_in_any_order(everywhere):
    """Beside named operations, each rank in an order of its own."""

    def program(world):
        own = np.random.default_rng(world.rank)
        arrays = [np.empty(n) for n in (1, 1, 50, 20_000)]
        plans = [world.allreduce_init(x, out=x) for x in arrays]
        for step in range(10):
            for x in arrays:
                x[:] = world.rank + step
            handles = [world.allreduce_async(np.ones(10), name=f"{i}") for i in own.permutation(3)]
            for i in own.permutation(len(plans)):
                plans[i].start()
            for i in own.permutation(len(plans)):
                while own.random() < 0.3 and not plans[i].test():
                    pass
                plans[i].wait()
            total = sum(range(world.size)) + world.size * step
            assert all((x == total).all() for x in arrays)
            assert all((handle.wait() == world.size).all() for handle in handles)
        for plan in plans:
            plan.free()

    everywhere(program)


def test_strided_arrays_groups_and_arrays_of_others(threads):
    torch = pytest.importorskip("torch")

    def program(world):
        field = np.arange(12.0).reshape(3, 4)
        column, target = field[:, 1], np.zeros((3, 2))
        tensor = torch.ones(3)
        plans = [
            world.allreduce_init(column, out=target[:, 0]),
            world.allreduce_init([np.ones(2), field]),
            world.allreduce_init(tensor, out=tensor),
            world.allreduce_init(torch.ones(2)),
        ]
        for step in range(1, 4):
            column[:] = step
            results = [plan() for plan in plans]
            assert (target[:, 0] == 2 * step).all() and not target[:, 1].any()
            assert (results[1][0] == 2).all() and (results[1][1] == 2 * field).all()
            assert results[2] is tensor and (tensor == 2**step).all()
            assert isinstance(results[3], torch.Tensor) and (results[3] == 2).all()

    testing.run(threads(2), program)


def test_in_place_average_and_factors(everywhere):
    def program(world):
        x = np.full(5, 2.0 * (world.rank + 1), np.float32)
        with world.allreduce_init(x, hpccoll.AVERAGE, out=x, prescale=0.5) as plan:
            assert plan() is x
        assert np.allclose(x, (world.size + 1) / 2)
        alone = world.split(world.rank)
        with alone.allreduce_init(x, hpccoll.SUM, postscale=2.0) as plan:
            assert np.allclose(plan(), world.size + 1)
        alone.shutdown()

    everywhere(program)


# ---- what is wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda r, w: w.allreduce_init(np.ones(3 + r)), r"float64\[4\].*\(tensors differs\)"),
        (
            lambda r, w: w.allreduce_init([np.array(True)] * (1 + r), hpccoll.MAX),
            r"bool\[\] bool\[\] \(tensors differs",
        ),
        (
            lambda r, w: w.allreduce_init(np.ones(3), hpccoll.MIN if r else hpccoll.SUM),
            "MIN.*reduction differs",
        ),
        (lambda r, w: w.broadcast_init(np.ones(3), r), "root differs"),
        (
            lambda r, w: w.barrier_init() if r else w.allreduce_init(np.ones(1)),
            r"rank 1 has barrier \(operation differs\)",
        ),
    ],
)
def test_ranks_that_disagree(threads, make, words):
    def program(world):
        with pytest.raises(errors.MismatchError, match=words) as raised:
            make(world.rank, world)
        assert (world.allreduce(np.ones(1)) == 2).all()
        return str(raised.value)

    assert len(set(testing.run(threads(2), program))) == 1


def test_an_out_of_the_wrong_size(threads):
    def program(world):
        out = np.empty((4 + world.rank, 2))
        with pytest.raises(errors.ResultSizeError, match="on rank 1 out has 5 rows, the result has 4") as raised:
            world.allgather_init(np.ones((2, 2)), out=out)
        with pytest.raises(errors.ResultSizeError, match="gather_init: on rank 0 out has 99 rows"):
            world.gather_init(np.ones((2, 2)), out=np.empty((99, 2)))
        with pytest.raises(errors.ResultSizeError, match=r"scatter_init: on rank .* out has 99 rows"):
            world.scatter_init(np.ones((2, 2)), out=np.empty((99, 2)))
        return str(raised.value)

    assert len(set(testing.run(threads(2), program))) == 1


def test_the_others_hear_of_what_one_rank_refuses(threads):
    def program(world):
        for _ in range(2):
            if world.rank:
                with pytest.raises(errors.InvalidArgumentError, match="not the root"):
                    world.scatter_init(None)
            else:
                with pytest.raises(
                    errors.MismatchError, match=r"scatter_init: rank 1 has refused this call: .*not the"
                ):
                    world.scatter_init(np.ones(4))
            x = np.full(3, world.rank + 1.0)
            with world.allreduce_init(x) as plan:
                np.testing.assert_array_equal(plan(), np.full(3, 3.0))

    testing.run(threads(2), program)


def test_what_one_rank_does_wrong(threads):
    def program(world):
        for x in ([1.0, 2.0], 3, (1.0,)):
            with pytest.raises(errors.InvalidArgumentError, match=r"x is of type \w+: .* so it needs an array"):
                world.broadcast_init(x)
        x = np.ones(2)
        receive = world.recv_init(x, world.rank)
        assert receive.test() and receive.wait() is None  # nothing was started
        receive.start()
        for wrong in (receive.start, receive, receive.free):
            with pytest.raises(errors.InvalidArgumentError, match="was started and is not over"):
                wrong()
        with pytest.raises(TimeoutError):
            receive.wait(0.01)
        world.send(np.ones(3), world.rank)
        with pytest.raises(errors.ResultSizeError, match=r"24 bytes came .* 16 bytes"):
            receive.wait()
        receive.start()
        world.send(np.full(2, 7.0), world.rank)
        assert receive.wait() == world.rank and (x == 7).all()
        receive.free()
        receive.free()
        with pytest.raises(errors.InvalidArgumentError, match="was freed"):
            receive.start()

    testing.run(threads(1), program)


def test_a_plan_after_the_end_of_its_world(threads):
    def program(world):
        plans = [world.allreduce_init(np.ones(n)) for n in (1, 50_000)]
        plans[0]()
        world.barrier()
        world.shutdown()
        for plan in plans:
            with pytest.raises(errors.ShutDownError):
                plan.start()
            plan.free()

    testing.run(threads(2), program)
    testing.run(threads(2, nodes="1+1"), program)


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda given: array.array("B", given), memoryview])
def test_each_start_converts_a_result_that_is_a_copy(threads, kind):
    def program(world):
        x = np.frombuffer(b"abc", np.uint8) + world.rank
        given = memoryview(x) if kind is memoryview else kind(x.tobytes())
        calls = [world.broadcast_init(given, 1), world.allgather_init(given), world.alltoall_init(given, [3, 0])]
        grouped = world.allreduce_init([given, np.ones(1, np.uint8)], hpccoll.MAX)
        for _ in range(2):
            copy, rows, (received, counts) = (plan() for plan in calls)
            assert type(copy) is type(rows) is type(received) is type(given)
            assert (bytes(copy), bytes(rows)) == (b"bcd", b"abcbcd")
            assert bytes(received) == (b"" if world.rank else b"abcbcd")
            assert counts.sum() == (0 if world.rank else 6)
            assert bytes(grouped()[0]) == b"bcd"

    testing.run(threads(2), program)


def test_a_plan_that_was_freed_without_a_wait_is_over(threads):
    def program(world):
        plan = world.allreduce_init(np.ones(2))
        plan.start()
        while not plan.test():
            time.sleep(0.001)
        plan.free()
        assert not plan.active and plan.wait() is None

    testing.run(threads(2), program)


def test_a_plan_keeps_no_file_open():
    script = (
        "opened = lambda: len(os.listdir('/proc/self/fd'))\n"
        "hpccoll.barrier()\n"
        "before = opened()\n"
        "plans = [hpccoll.allreduce_init(np.ones(n)) for n in (1, 100_000) for _ in range(10)]\n"
        "assert opened() < before + 5, (before, opened())\n"
        "assert all(plan()[0] == size for plan in plans)\n"
        "del plans\n"
        "assert opened() < before + 5, (before, opened())\n"
        "print('fine')\n"
    )
    status, output = job(2, INIT + script)
    assert (status, output.count("fine")) == (0, 2), output


def test_freed_plans_give_all_back():
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("/hpccoll-" in line and "-plan-" in line for line in maps)

    def program(world):
        for n in (1, 1, 30_000):
            with world.allreduce_init(np.ones(n)) as plan:
                plan()
            dropped = world.barrier_init()
            dropped()
            del dropped
        assert _core.plans_between_nodes(world.base.loop) == 0
        return [world.allreduce_init(np.ones(n)) for n in (1, 30_000)]  # freed with the World

    before = mapped()
    testing.make_and_run(2, program)
    testing.make_and_run(3, program, nodes="2+1")
    assert mapped() == before


# ---- ranks that do not come ---------------------------------------------------------------------------------

LATE = """
x = np.ones(N)
plan = hpccoll.allreduce_init(x)
plan()
hpccoll.barrier()
if rank == 1: time.sleep(5)
plan()
print("through", flush=True)
hpccoll.shutdown()
"""


@pytest.mark.parametrize("n", [1, 100_000])
def test_a_start_without_its_partner_is_reported(n: int) -> None:
    status, output = job(2, INIT + LATE.replace("N", str(n)), stall_warning=1)
    assert status == 0, output
    awaits = r"awaits rank 1 \(host \S+, pid \d+\), where this start was not made, and " if n == 1 else ""
    assert re.search(rf"rank 0: a start of allreduce 'plan \d+' {awaits}has waited ", output), output
    assert output.count("through") == 2


@pytest.mark.parametrize(("n", "nodes"), [(1, ""), (100_000, ""), (1, "2")])
def test_a_partner_is_killed(n: int, nodes: str) -> None:
    script = """
x = np.ones(N)
plan = hpccoll.allreduce_init(x)
for i in range(100): plan()
if rank == 1: os.kill(os.getpid(), signal.SIGKILL)
try:
    while True: plan()
except hpccoll.PeerLostError as error:
    print("told:", error, flush=True)
"""
    _, output = job(2, INIT + script.replace("N", str(n)), nodes=nodes, alone="--enable-recovery", peer_timeout=6)
    assert re.search(r"told: rank 1 \(host \S+, pid \d+\) was lost", output), output
