# SPDX-License-Identifier: Apache-2.0
"""Sends and receives: threads in several layouts and the ranks of an MPI job; test_store.py has those without MPI."""

import threading
import time

import numpy as np
import pytest

import hpccoll
from hpccoll import ANY_SOURCE, testing
from hpccoll.net import Drivers

SIZES = [0, 1, 7, 8192, 8193, 32768, 100_003, 1 << 20]


def pattern(sender, receiver, number, n):
    """Bytes that no other message has."""
    return np.random.default_rng((sender, receiver, number)).integers(0, 256, n, np.uint8)


def test_all_sizes_between_all_pairs(everywhere):
    def program(world):
        sends = [
            world.send_async(pattern(world.rank, r, k, n), r, tag=k)
            for k, n in enumerate(SIZES)
            for r in range(world.size)
        ]
        for k, n in reversed(list(enumerate(SIZES))):
            for r in range(world.size):
                x = np.zeros(n, np.uint8)
                assert world.recv(x, r, tag=k) == r
                assert (x == pattern(r, world.rank, k, n)).all()
        for handle in sends:
            assert handle.wait(20) is None

    everywhere(program)


def test_large_ones_in_both_directions_at_once(everywhere):
    n = 16 << 20

    def program(world):
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        out, x = np.full(n // 8, float(world.rank)), np.empty(n // 8)
        receive = world.recv_async(x, left)
        world.send(out, right)
        assert receive.wait(60) == left == receive.peer
        assert (x == left).all()

    everywhere(program)


def test_order_is_kept_for_each_sender_and_tag(everywhere):
    def program(world):
        peers = range(world.size)
        sends = [
            world.send_async(np.full(n, i), r, tag=i % 3)
            for i, n in enumerate([1, 5000, 1, 1, 5000, 1] * 5)
            for r in peers
        ]
        for tag in (2, 0, 1):
            for r in peers:
                for i, n in enumerate([1, 5000, 1, 1, 5000, 1] * 5):
                    if i % 3 == tag:
                        x = np.zeros(n, np.int64)
                        world.recv(x, r, tag=tag)
                        assert (x == i).all()
        for handle in sends:
            handle.wait(20)

    everywhere(program)


def test_receives_posted_first_take_in_their_order(everywhere):
    def program(world):
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        xs = [np.zeros(3000, np.int64) for _ in range(20)]
        receives = [world.recv_async(x, left, tag=1) for x in xs]
        world.barrier()
        for i in range(20):
            world.send_async(np.full(3000, i), right, tag=1)
        for i, (x, handle) in enumerate(zip(xs, receives, strict=True)):
            assert handle.wait(20) == left
            assert (x == i).all()
        world.barrier()

    everywhere(program)


def test_any_source_says_who(everywhere):
    def program(world):
        size = 2500 if world.size % 2 else 3
        if world.rank:
            world.send(np.full(size, world.rank), 0, tag=5)
        else:
            came = set()
            for _ in range(1, world.size):
                x = np.zeros(size, np.int64)
                handle = world.recv_async(x, ANY_SOURCE, tag=5)
                source = handle.wait(20)
                assert source == handle.peer
                assert (x == source).all()
                came.add(source)
            assert came == set(range(1, world.size))

    everywhere(program)


def test_a_small_send_needs_no_receive(everywhere):
    def program(world):
        for r in range(world.size):
            for i in range(50):
                world.send(np.full(100, i), r, tag=2**32 - 1)
        world.barrier()
        for r in range(world.size):
            for i in range(50):
                x = np.zeros(100, np.int64)
                world.recv(x, r, tag=2**32 - 1)
                assert (x == i).all()

    everywhere(program)


def test_a_flood_of_small_ones_is_held_back_and_arrives(everywhere):
    """Beyond a receiver's credit, a small send waits for its receive like a large one."""

    def program(world):
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        sends = [world.send_async(np.full(1000, i), right) for i in range(300)]
        world.barrier()
        assert sends[0].wait(20) is None
        assert not sends[-1].done()
        world.barrier()  # nobody receives before all have looked
        for i in range(300):
            x = np.zeros(1000, np.int64)
            world.recv(x, left)
            assert (x == i).all()
        for handle in sends:
            handle.wait(20)
        world.barrier()
        world.send(np.zeros(1000, np.int64), right)  # all was received: it is lent again
        world.barrier()
        world.recv(x, left)

    everywhere(program)


def test_beside_collectives_in_flight(everywhere):
    def program(world):
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        for step in range(10):
            sums = [world.allreduce_async(np.full(20_000, float(i)), name=f"s{i}") for i in range(4)]
            x = np.zeros(30_000)
            receive = world.recv_async(x, left, tag=step)
            world.send(np.full(30_000, float(world.rank + step)), right, tag=step)
            for i, handle in enumerate(sums):
                assert (handle.wait() == i * world.size).all()
            receive.wait(20)
            assert (x == left + step).all()

    everywhere(program)


@pytest.mark.parametrize(("sent", "capacity"), [(10, 5), (100_000, 10), (100_000, 99_999), (1, 0), (100_000, 0)])
def test_a_longer_message_is_the_receivers_error(everywhere, sent, capacity):
    def program(world):
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        x = np.full(capacity, 7, np.uint8)
        handle = world.send_async(np.zeros(sent, np.uint8), right, tag=9)
        said = f"a message of {sent} bytes came for a receive of {capacity} bytes from rank {left} .tag 9."
        with pytest.raises(hpccoll.ResultSizeError, match=said):
            world.recv(x, left, tag=9)
        assert (x == 7).all()
        handle.wait(20)
        assert world.allreduce(1) == world.size

    everywhere(program)


def test_a_timeout_leaves_the_handle_valid(everywhere):
    def program(world):
        left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        x = np.zeros(4)
        handle = world.recv_async(x, left, tag=3)
        with pytest.raises(TimeoutError, match=rf"receive of 32 bytes from rank {left} \(tag 3\)"):
            handle.wait(0.01)
        assert not handle.done()
        assert handle.peer == left
        world.barrier()
        world.send(np.ones(4), right, tag=3)
        assert handle.wait(20) == left
        assert (x == 1).all()

    everywhere(program)


def test_arguments(everywhere):
    def program(world):
        x = np.zeros(2)
        for bad in (-1, -3, world.size, "0", None):
            with pytest.raises(hpccoll.InvalidArgumentError, match="dest is"):
                world.send(x, bad)
        for bad in (-3, world.size):
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"source is .* ANY_SOURCE is -1, and PROC"):
                world.recv(x, bad)
        for bad in (-1, 2**32, 0.5):
            with pytest.raises(hpccoll.InvalidArgumentError, match="tag is"):
                world.send(x, 0, tag=bad)
        for bad in (-2, 2**32):
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"tag is .* ANY_TAG is -1"):
                world.recv(x, 0, tag=bad)
        x.flags.writeable = False
        with pytest.raises(hpccoll.InvalidArgumentError, match="read-only"):
            world.recv(x, 0)
        assert world.allreduce_async(1).peer == -1
        world.barrier()

    everywhere(program)


def test_array_likes(everywhere):
    def program(world):
        right = (world.rank + 1) % world.size
        world.send_async([1.5, 2.5], right)
        world.send_async(np.arange(20.0)[::2], np.int64(right), tag=np.uint32(1))
        memory, strided = bytearray(16), np.zeros((10, 2))
        world.recv(memory)
        assert np.frombuffer(memory).tolist() == [1.5, 2.5]
        world.recv(strided[:, 1], tag=1)
        assert strided[:, 1].tolist() == list(range(0, 20, 2))
        assert not strided[:, 0].any()

    everywhere(program)


def test_sets_do_not_hear_each_other(everywhere):
    def program(world):
        half = world.split(world.rank % 2, -world.rank)
        left, right = (half.rank - 1) % half.size, (half.rank + 1) % half.size
        half.send_async(np.array([1]), right)
        world.send_async(np.array([2]), world.rank)
        x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
        assert world.recv(y) == world.rank
        assert half.recv(x, left) == left
        assert (x[0], y[0]) == (1, 2)
        half.shutdown()

    everywhere(program)


def test_the_end_of_a_set_ends_what_never_met(threads):
    def program(world):
        half = world.subset([0, 1])
        if not half:
            return
        other = 1 - half.rank
        handles = [
            half.recv_async(np.zeros(1), other, tag=8),
            half.send_async(np.zeros(100_000), other, tag=9),
        ]
        half.send(np.zeros(10), other, tag=10)  # nobody receives it
        half.shutdown()
        for handle in handles:
            with pytest.raises(hpccoll.ShutDownError):
                handle.wait(20)
        with pytest.raises(hpccoll.ShutDownError):
            half.send(np.zeros(1), 0)

    def again(world):
        """The set's number is used again; what was sent in the old one is not received in the new one."""
        program(world)
        pair = world.subset([0, 1])
        if pair:
            handle = pair.recv_async(np.zeros(10), tag=10)
            pair.barrier()
            assert not handle.done()
            pair.shutdown()
        world.barrier()

    testing.run(threads(3, nodes="2+1"), again)


def test_a_failure_of_the_world_ends_open_messages(threads):
    """A stall beyond the limit, of a receive that a caller waits for."""
    begun, given_up = threading.Event(), threading.Event()

    def program(world):
        if world.rank == 0:
            assert begun.wait(60)  # the limit is one second, for a busy machine soon over
            with pytest.raises(hpccoll.StallError, match=r"a receive of 8 bytes from rank 1 .*tag 4. has"):
                world.recv(np.zeros(1), 1, tag=4)
            given_up.set()
        else:
            handles = [
                world.send_async(np.zeros(100_000), 0, tag=5),
                world.recv_async(np.zeros(1)),
            ]
            begun.set()
            assert given_up.wait(60)  # who waits reports; these do not wait before
            for handle in handles:
                with pytest.raises(hpccoll.StallError, match="tag 4"):
                    handle.wait(20)
        with pytest.raises(hpccoll.BrokenWorldError, match="tag 4"):
            world.send(np.zeros(1), 0)

    testing.run(threads(2, stall_warning=0.2, stall_limit=1), program)


def test_a_wait_that_lasts_reports_itself(threads, heard):
    def program(world):
        if world.rank == 0:
            world.recv(np.zeros(1), 1, tag=4)
        else:
            heard(
                r"hpccoll: rank 0: a receive of 8 bytes from rank 1 \(host \S+, pid \d+\) \(tag 4\) has waited [\d.]+ s"
            )
            world.send(np.zeros(1), 0, tag=4)

    testing.run(threads(2, stall_warning=0.2), program)


@pytest.mark.parametrize("nodes", ["", "2"])
def test_an_open_receive_costs_nothing(threads, nodes):
    worlds = threads(2, nodes=nodes)

    def begin(world):
        handle = world.recv_async(np.zeros(1), 1 - world.rank)
        world.barrier()
        return handle

    def end(world):
        world.barrier()
        world.send(np.ones(1), 1 - world.rank)
        handles[world.rank].wait(20)

    def messages():
        return [n for world in worlds for name, n in world.stats().items() if "messages" in name]

    handles = testing.run(worlds, begin)
    for _ in range(30):  # a busy machine takes its time to come to rest
        time.sleep(0.6)
        before, cpu = messages(), time.process_time()
        time.sleep(1)
        spent, same = time.process_time() - cpu, messages() == before
        if same and spent < 0.1:
            break
    assert same and spent < 0.1
    testing.run(worlds, end)


def test_without_a_background_thread(threads):
    def program(world):
        other = 1 - world.rank
        x = np.zeros(100_000)
        handle = world.recv_async(x, other)
        world.send(np.full(100_000, 3.0), other)
        while not handle.done():
            pass
        assert (x == 3).all()

    testing.run(threads(2, nodes="2", drivers=Drivers.CALLERS), program)


def test_stats_and_trace_know_messages(threads):
    worlds = threads(2)

    def program(world):
        handle = world.recv_async(np.zeros(5))
        world.send(np.zeros(5), 1 - world.rank)
        handle.wait(20)
        stats = world.stats()
        assert (stats["p2p_ops"], stats["p2p_bytes"]) == (2, 80)
        records = world.base.loop.trace()[1]
        assert {"send", "receive"} <= {r["operation"] for r in records if r["kind"] == "complete"}

    testing.run(worlds, program)
