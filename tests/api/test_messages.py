# SPDX-License-Identifier: Apache-2.0
"""What else MPI has from one rank to another: shorter messages, PROC_NULL, any tag, sendrecv, probes, objects."""

import threading

import numpy as np
import pytest

import hpccoll
from hpccoll import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, testing


def neighbours(world):
    return (world.rank - 1) % world.size, (world.rank + 1) % world.size


@pytest.mark.parametrize(("sent", "capacity"), [(0, 1), (3, 5), (1024, 1025), (3, 100_000), (90_001, 100_000)])
def test_a_shorter_message_fills_the_beginning(everywhere, sent, capacity):
    def program(world):
        left, right = neighbours(world)
        handle = hpccoll.send_async(np.arange(sent) + world.rank, right, tag=9, world=world)
        x, status = np.full(capacity, -7), Status()
        assert hpccoll.recv(x, left, tag=9, status=status, world=world) == left
        assert (status.source, status.tag, status.nbytes, status.count(np.int64)) == (left, 9, 8 * sent, sent)
        assert (x[:sent] == np.arange(sent) + left).all()
        assert (x[sent:] == -7).all()
        handle.wait(20)

    everywhere(program)


def test_a_shorter_message_in_a_strided_array(everywhere):
    def program(world):
        left, right = neighbours(world)
        whole = np.full((10, 3), 5.0)
        receive = hpccoll.recv_async(whole[:, 1], left, world=world)
        hpccoll.send(np.arange(4.0), right, world=world)
        assert receive.wait(20) == left
        assert (receive.nbytes, receive.tag, receive.peer) == (32, 0, left)
        assert whole[:, 1].tolist() == [0, 1, 2, 3, 5, 5, 5, 5, 5, 5]
        assert (whole[:, [0, 2]] == 5).all()

    everywhere(program)


def test_no_rank(everywhere):
    def program(world):
        x, status = np.full(3, 4.0), Status()
        before = x.copy()
        assert hpccoll.send(x, PROC_NULL, world=world) is None
        assert hpccoll.recv(x, PROC_NULL, status=status, world=world) == PROC_NULL
        assert (status.source, status.nbytes) == (PROC_NULL, 0)
        assert hpccoll.recv(x[::2], PROC_NULL, tag=ANY_TAG, world=world) == PROC_NULL
        assert hpccoll.sendrecv(x, PROC_NULL, np.zeros(3), PROC_NULL, world=world) == PROC_NULL
        assert hpccoll.probe(PROC_NULL, world=world).source == PROC_NULL
        assert hpccoll.recv_object(PROC_NULL, world=world) is None
        assert (x == before).all()

    everywhere(program)


def test_a_wrong_sendrecv_sends_nothing(threads):
    def program(world):
        x, (left, right) = np.ones(3), neighbours(world)
        for source, tag in ((world.size, 0), (left, -2)):
            with pytest.raises(hpccoll.InvalidArgumentError):
                hpccoll.sendrecv(x, right, np.zeros(3), source, recvtag=tag, world=world)
        hpccoll.barrier(name="all have tried", world=world)
        assert hpccoll.iprobe(world=world) is None

    testing.run(threads(2), program)


@pytest.mark.parametrize("n", [3, 100_000])
def test_sendrecv_around_the_ring(everywhere, n):
    def program(world):
        left, right = neighbours(world)
        x, status = np.zeros(n), Status()
        got = hpccoll.sendrecv(np.full(n, float(world.rank)), right, x, left, sendtag=4, recvtag=4, world=world)
        assert got == left
        assert (x == left).all()
        hpccoll.sendrecv(x, left, x.copy(), right, sendtag=6, status=status, world=world)
        assert (status.source, status.tag, status.count(float)) == (right, 6, n)

    everywhere(program)


def test_receives_take_any_tag_unless_told(everywhere):
    def program(world):
        left, right = neighbours(world)
        sends = [hpccoll.send_async(np.full(n, n), right, tag=n, world=world) for n in (5, 3000, 1, 3000)]
        for n in (5, 3000, 1, 3000):
            x, status = np.zeros(3000, np.int64), Status()
            assert hpccoll.recv(x, left, status=status, world=world) == left
            assert (status.tag, status.count(x.dtype)) == (n, n)
            assert (x[:n] == n).all()
        hpccoll.wait_all(sends)
        taken = np.zeros(1, np.int64)
        with hpccoll.recv_init(taken, left, world=world) as plan:
            for tag in (8, 9):
                handle = hpccoll.send_async(np.array([tag]), right, tag=tag, world=world)
                assert plan() == left
                assert taken[0] == tag
                handle.wait(20)
        handle = hpccoll.send_async(taken, right, tag=7, world=world)
        receive = hpccoll.recv_async(np.zeros(1, np.int64), world=world)
        assert (receive.wait(20), receive.tag) == (left, 7)
        handle.wait(20)

    everywhere(program)


@pytest.mark.parametrize("n", [2, 50_000])
def test_a_probe_leaves_the_message(everywhere, n):
    def program(world):
        left, right = neighbours(world)
        assert hpccoll.iprobe(left, tag=3, world=world) is None
        hpccoll.barrier(world=world)
        handle = hpccoll.send_async(np.full(n, world.rank), right, tag=3, world=world)
        for _ in range(2):
            status = hpccoll.probe(ANY_SOURCE, world=world)
            assert (status.source, status.tag, status.count(np.int64)) == (left, 3, n)
        assert hpccoll.iprobe(left, tag=3, world=world) == status
        assert hpccoll.iprobe(left, tag=4, world=world) is None
        x = np.zeros(status.count(np.int64), np.int64)
        hpccoll.recv(x, status.source, tag=status.tag, world=world)
        assert (x == left).all()
        handle.wait(20)
        assert hpccoll.iprobe(world=world) is None
        hpccoll.barrier(world=world)

    everywhere(program)


def test_iprobe_sees_a_message_in_the_end(everywhere):
    def program(world):
        left, right = neighbours(world)
        hpccoll.send(np.ones(1), right, tag=8, world=world)
        while hpccoll.iprobe(left, tag=8, world=world) is None:  # the test's time limit ends it
            pass
        hpccoll.recv(np.zeros(1), left, tag=8, world=world)
        hpccoll.barrier(world=world)

    everywhere(program)


def test_a_waiting_probe_sees_what_comes_later_and_no_receive_has_taken(threads):
    def program(world):
        if world.rank:
            hpccoll.recv(np.zeros(1), 0, tag=1, world=world)
            hpccoll.send(np.full(1, 1.0), 0, tag=5, world=world)
            hpccoll.send(np.full(2, 2.0), 0, tag=5, world=world)
            return
        x, found = np.zeros(1), []
        receive = hpccoll.recv_async(x, 1, tag=5, world=world)  # takes the first one
        prober = threading.Thread(target=lambda: found.append(hpccoll.probe(1, tag=5, world=world)))
        prober.start()
        hpccoll.send(np.zeros(1), 1, tag=1, world=world)
        prober.join(60)
        assert receive.wait(20) == 1
        assert (x[0], found[0].count(float)) == (1.0, 2)
        hpccoll.recv(np.zeros(2), 1, tag=5, world=world)

    testing.run(threads(2), program)


def test_the_library_and_the_program_do_not_hear_each_other(everywhere):
    def program(world):
        left, right = neighbours(world)
        hpccoll.send(np.array([1]), right, world=world)
        world.core.send(np.array([2]), right, 0, True, library=True).wait()
        x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
        world.core.recv(y, left, 0, True, library=True).wait()
        hpccoll.recv(x, tag=ANY_TAG, world=world)
        assert (x[0], y[0]) == (1, 2)

    everywhere(program)


def test_an_exact_receive_refuses_a_shorter_message(everywhere):
    """As the backend of torch.distributed has it."""

    def program(world):
        left, right = neighbours(world)
        hpccoll.send(np.ones(2), right, world=world)
        x = np.zeros(3)
        with pytest.raises(hpccoll.ResultSizeError, match=r"of 16 bytes came for a receive of 24 bytes .* must have"):
            world.core.recv(x, left, exact=True).wait(20)
        assert not x.any()

    everywhere(program)


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_objects_from_rank_to_rank(everywhere, size):
    def program(world):
        left, right = neighbours(world)
        if size < 8192 or world.size == 1 or world.rank % 2:
            sender = threading.Thread(
                target=hpccoll.send_object, args=([world.rank, "x" * size], right), kwargs={"tag": 2, "world": world}
            )
            sender.start()
        else:
            sender = None
        status = Status()
        if sender:
            assert hpccoll.recv_object(tag=2, status=status, world=world) == [left, "x" * size]
            sender.join(60)
        else:
            assert hpccoll.recv_object(left, status=status, world=world) == [left, "x" * size]
            hpccoll.send_object([world.rank, "x" * size], right, tag=2, world=world)
        assert (status.source, status.tag) == (left, 2)
        assert status.nbytes > size

    everywhere(program)


def test_gathered_and_scattered_objects(everywhere):
    def program(world):
        for root in {0, world.size - 1}:
            got = hpccoll.gather_object({"rank": world.rank, "text": "x" * world.rank}, root, world=world)
            everybody = [{"rank": r, "text": "x" * r} for r in range(world.size)]
            assert got == (everybody if world.rank == root else None)
            mine = hpccoll.scatter_object(everybody if world.rank == root else None, root, name="objects", world=world)
            assert mine == everybody[world.rank]

    everywhere(program)


def test_objects_that_pickle_refuses(everywhere):
    def program(world):
        last, mine = world.size - 1, threading.Lock() if world.rank == world.size - 1 else 1
        said = f"rank {last} has a lock that pickle refuses"
        with pytest.raises(hpccoll.ObjectError, match=said):
            hpccoll.gather_object(mine, 0, world=world)
        with pytest.raises(hpccoll.ObjectError, match=said):
            hpccoll.scatter_object([mine] * world.size, last, name="refused", world=world)
        if world.rank == last:
            with pytest.raises(hpccoll.ObjectError, match=said):
                hpccoll.send_object(mine, 0, world=world)
        if world.rank == 0:
            with pytest.raises(hpccoll.ObjectError, match=said):
                hpccoll.recv_object(last, world=world)
        assert hpccoll.allreduce(1, world=world) == world.size

    everywhere(program)


def test_scatter_object_wants_one_for_each(threads):
    (world,) = threads(1)
    for wrong, said in ((None, "None"), ([1, 2], "2 objects")):
        with pytest.raises(hpccoll.InvalidArgumentError, match=f"scatter_object of {said}: .* each of 1 ranks"):
            hpccoll.scatter_object(wrong, world=world)
