# SPDX-License-Identifier: Apache-2.0
"""What else MPI has from one rank to another: shorter messages, PROC_NULL, any tag, sendrecv, probes, objects."""

import threading
import time

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
        handle = world.send_async(np.arange(sent) + world.rank, right, tag=9)
        x, status = np.full(capacity, -7), Status()
        assert world.recv(x, left, tag=9, status=status) == left
        assert (status.source, status.tag, status.nbytes, status.count(np.int64)) == (left, 9, 8 * sent, sent)
        assert status.count("V0") == 0
        assert (x[:sent] == np.arange(sent) + left).all()
        assert (x[sent:] == -7).all()
        handle.wait(20)

    everywhere(program)


def test_a_shorter_message_in_a_strided_array(everywhere):
    def program(world):
        left, right = neighbours(world)
        whole = np.full((10, 3), 5.0)
        receive = world.recv_async(whole[:, 1], left)
        world.send(np.arange(4.0), right)
        assert receive.wait(20) == left
        assert (receive.nbytes, receive.tag, receive.peer) == (32, 0, left)
        assert whole[:, 1].tolist() == [0, 1, 2, 3, 5, 5, 5, 5, 5, 5]
        assert (whole[:, [0, 2]] == 5).all()

    everywhere(program)


def test_no_rank(everywhere):
    def program(world):
        x, status = np.full(3, 4.0), Status()
        before = x.copy()
        assert world.send(x, PROC_NULL) is None
        assert world.recv(x, PROC_NULL, status=status) == PROC_NULL
        assert (status.source, status.nbytes) == (PROC_NULL, 0)
        assert world.recv(x[::2], PROC_NULL, tag=ANY_TAG) == PROC_NULL
        assert world.sendrecv(x, PROC_NULL, np.zeros(3), PROC_NULL) == PROC_NULL
        assert world.probe(PROC_NULL).source == PROC_NULL
        assert world.recv_object(PROC_NULL) is None
        assert (x == before).all()

    everywhere(program)


def test_a_wrong_sendrecv_sends_nothing(threads):
    def program(world):
        x, (left, right) = np.ones(3), neighbours(world)
        for source, tag in ((world.size, 0), (left, -2)):
            with pytest.raises(hpccoll.InvalidArgumentError):
                world.sendrecv(x, right, np.zeros(3), source, recvtag=tag)
        world.barrier(name="all have tried")
        assert world.iprobe() is None

    testing.run(threads(2), program)


@pytest.mark.parametrize("n", [3, 100_000])
def test_sendrecv_around_the_ring(everywhere, n):
    def program(world):
        left, right = neighbours(world)
        x, status = np.zeros(n), Status()
        got = world.sendrecv(np.full(n, float(world.rank)), right, x, left, sendtag=4, recvtag=4)
        assert got == left
        assert (x == left).all()
        world.sendrecv(x, left, x.copy(), right, sendtag=6, status=status)
        assert (status.source, status.tag, status.count(float)) == (right, 6, n)

    everywhere(program)


def test_receives_take_any_tag_unless_told(everywhere):
    def program(world):
        left, right = neighbours(world)
        sends = [world.send_async(np.full(n, n), right, tag=n) for n in (5, 3000, 1, 3000)]
        for n in (5, 3000, 1, 3000):
            x, status = np.zeros(3000, np.int64), Status()
            assert world.recv(x, left, status=status) == left
            assert (status.tag, status.count(x.dtype)) == (n, n)
            assert (x[:n] == n).all()
        hpccoll.wait_all(sends)
        taken = np.zeros(1, np.int64)
        with world.recv_init(taken, left) as plan:
            for tag in (8, 9):
                handle = world.send_async(np.array([tag]), right, tag=tag)
                assert plan() == left
                assert taken[0] == tag
                handle.wait(20)
        handle = world.send_async(taken, right, tag=7)
        receive = world.recv_async(np.zeros(1, np.int64))
        assert (receive.wait(20), receive.tag) == (left, 7)
        handle.wait(20)

    everywhere(program)


@pytest.mark.parametrize("n", [2, 50_000])
def test_a_probe_leaves_the_message(everywhere, n):
    def program(world):
        left, right = neighbours(world)
        assert world.iprobe(left, tag=3) is None
        world.barrier()
        handle = world.send_async(np.full(n, world.rank), right, tag=3)
        for _ in range(2):
            status = world.probe(ANY_SOURCE)
            assert (status.source, status.tag, status.count(np.int64)) == (left, 3, n)
        assert world.iprobe(left, tag=3) == status
        assert world.iprobe(left, tag=4) is None
        x = np.zeros(status.count(np.int64), np.int64)
        world.recv(x, status.source, tag=status.tag)
        assert (x == left).all()
        handle.wait(20)
        assert world.iprobe() is None
        world.barrier()

    everywhere(program)


def test_iprobe_sees_a_message_in_the_end(everywhere):
    def program(world):
        left, right = neighbours(world)
        world.send(np.ones(1), right, tag=8)
        while world.iprobe(left, tag=8) is None:  # the test's time limit ends it
            pass
        world.recv(np.zeros(1), left, tag=8)
        world.barrier()

    everywhere(program)


@pytest.mark.timeout(60)
def test_iprobe_receives_where_no_thread_does(threads):
    def program(world):
        left, right = neighbours(world)
        world.send(np.ones(1), right, tag=8)
        while world.iprobe(left, tag=8) is None:  # the test's time limit ends it
            time.sleep(0)
        world.recv(np.zeros(1), left, tag=8)

    testing.run(threads(2, nodes="1+1", background=False), program)


def test_a_waiting_probe_sees_what_comes_later_and_no_receive_has_taken(threads):
    def program(world):
        if world.rank:
            world.recv(np.zeros(1), 0, tag=1)
            world.send(np.full(1, 1.0), 0, tag=5)
            world.send(np.full(2, 2.0), 0, tag=5)
            return
        x, found = np.zeros(1), []
        receive = world.recv_async(x, 1, tag=5)  # takes the first one
        prober = threading.Thread(target=lambda: found.append(world.probe(1, tag=5)))
        prober.start()
        world.send(np.zeros(1), 1, tag=1)
        prober.join(60)
        assert receive.wait(20) == 1
        assert (x[0], found[0].count(float)) == (1.0, 2)
        world.recv(np.zeros(2), 1, tag=5)

    testing.run(threads(2), program)


def test_the_library_and_the_program_do_not_hear_each_other(everywhere):
    def program(world):
        left, right = neighbours(world)
        world.send(np.array([1]), right)
        world.core.send(np.array([2]), right, 0, True, library=True).wait()
        x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
        world.core.recv(y, left, 0, True, library=True).wait()
        world.recv(x, tag=ANY_TAG)
        assert (x[0], y[0]) == (1, 2)

    everywhere(program)


def test_an_exact_receive_refuses_a_shorter_message(everywhere):
    """As the backend of torch.distributed has it."""

    def program(world):
        left, right = neighbours(world)
        world.send(np.ones(2), right)
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
                target=world.send_object, args=([world.rank, "x" * size], right), kwargs={"tag": 2}
            )
            sender.start()
        else:
            sender = None
        status = Status()
        if sender:
            assert world.recv_object(tag=2, status=status) == [left, "x" * size]
            sender.join(60)
        else:
            assert world.recv_object(left, status=status) == [left, "x" * size]
            world.send_object([world.rank, "x" * size], right, tag=2)
        assert (status.source, status.tag) == (left, 2)
        assert status.nbytes > size

    everywhere(program)


def test_gathered_and_scattered_objects(everywhere):
    def program(world):
        for root in {0, world.size - 1}:
            got = world.gather_object({"rank": world.rank, "text": "x" * world.rank}, root)
            everybody = [{"rank": r, "text": "x" * r} for r in range(world.size)]
            assert got == (everybody if world.rank == root else None)
            mine = world.scatter_object(everybody if world.rank == root else None, root, name="objects")
            assert mine == everybody[world.rank]

    everywhere(program)


def test_objects_that_pickle_refuses(everywhere):
    def program(world):
        last, mine = world.size - 1, threading.Lock() if world.rank == world.size - 1 else 1
        said = f"rank {last} has a lock that pickle refuses"
        with pytest.raises(hpccoll.ObjectError, match=said):
            world.gather_object(mine, 0)
        with pytest.raises(hpccoll.ObjectError, match=said):
            world.scatter_object([mine] * world.size, last, name="refused")
        if world.rank == last:
            with pytest.raises(hpccoll.ObjectError, match=said):
                world.send_object(mine, 0)
        if world.rank == 0:
            with pytest.raises(hpccoll.ObjectError, match=said):
                world.recv_object(last)
        assert world.allreduce(1) == world.size

    everywhere(program)


class KnownToOneRank:
    """What pickle takes on one rank, and another one cannot make again: a class of the sender's main program, say."""

    def __init__(self, maker):
        self.maker = maker

    def __reduce__(self):
        return _made_by, (self.maker,)


_here = threading.local()


def _made_by(maker):
    if getattr(_here, "rank", maker) != maker:
        raise AttributeError(f"Can't get attribute 'Model{maker}'")
    return KnownToOneRank(maker)


def test_objects_that_a_rank_cannot_unpickle(everywhere):
    """The error names the call, the object's rank, this rank and the reason; the World goes on."""

    def program(world):
        _here.rank, last = world.rank, world.size - 1
        mine = KnownToOneRank(last) if world.rank == last else 1
        calls = {
            "broadcast_object of model": lambda: world.broadcast_object(mine, last, name="model"),
            "allgather_object of no name": lambda: world.allgather_object(mine),
            "scatter_object of no name": lambda: world.scatter_object([mine] * world.size, last),
            "gather_object of model": lambda: world.gather_object(mine, 0, name="model"),
        }
        for call, make in calls.items():
            if world.rank == last or (world.rank and call.startswith("gather_object")):
                make()
                continue
            said = (
                f"{call}: rank {last} has an object that rank {world.rank} cannot unpickle: AttributeError: Can't get "
                f"attribute 'Model{last}'"
            )
            with pytest.raises(hpccoll.ObjectError, match=f"^{said}$"):
                make()
        if world.size > 1 and world.rank == last:
            world.send_object(mine, 0, tag=7)
        if world.size > 1 and world.rank == 0:
            said = f"recv_object with tag 7: rank {last} has an object that rank 0 cannot unpickle: AttributeError"
            with pytest.raises(hpccoll.ObjectError, match=f"^{said}"):
                world.recv_object(last)
        assert world.allreduce(1) == world.size

    everywhere(program)


def test_scatter_object_wants_one_for_each(threads):
    (world,) = threads(1)
    for wrong, said in ((None, "None"), ([1, 2], "2 objects"), (5, "a builtins.int"), (iter([]), "0 objects")):
        with pytest.raises(hpccoll.InvalidArgumentError, match=f"scatter_object of {said}: .* each of 1 ranks"):
            world.scatter_object(wrong)
