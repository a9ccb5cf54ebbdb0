# SPDX-License-Identifier: Apache-2.0
"""Plans that share memory: they may take turns, and are refused if they are started at the same time."""

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

pytestmark = pytest.mark.timeout(200)
SHARING = {
    "two write it": (lambda w, x, y: w.allreduce_init(x, out=x), lambda w, x, y: w.allreduce_init(y[4:], out=x)),
    "the second writes it": (lambda w, x, y: w.allreduce_init(x), lambda w, x, y: w.broadcast_init(x, 0, out=x)),
    "the first writes a part": (
        lambda w, x, y: w.allreduce_init(y[:3], out=x[1:]),
        lambda w, x, y: w.allgather_init(x[:2]),
    ),
    "a group": (
        lambda w, x, y: w.allreduce_init([y[4:], y[:2]], out=[x, y[:2]]),
        lambda w, x, y: w.reduce_init(x, out=x),
    ),
    "a message": (lambda w, x, y: w.recv_init(x, 1 - w.rank), lambda w, x, y: w.allreduce_init(x)),
}


@pytest.mark.parametrize("case", SHARING)
def test_started_plans_that_share_memory_are_refused(threads, case: str) -> None:
    """MPI 4.0, 3.9: no other operation uses the buffers of an active one. Both plans may live, and take turns."""

    def program(world: hpccoll.World) -> None:
        x, y = np.ones(4), np.ones(8)
        first, second = (make(world, x, y) for make in SHARING[case])

        def start_first() -> None:
            first.start()
            if case == "a message":
                world.send(np.ones(4), 1 - world.rank)

        for _ in range(2):
            start_first()
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"shares memory with .*, which was started and is"):
                second.start()
            first.wait()
            second.start()
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"shares memory with "):
                first.start()
            second.wait()
        start_first()
        while not first.test():
            pass
        second()  # the program knows that the first one is over
        first.wait()
        first.free()
        second()

    testing.run(threads(2), program)


def test_started_plans_may_read_the_same_memory(threads) -> None:
    """Broadcasts of the same memory (tied weights) write equal values, and columns of a table do not overlap."""

    def program(world: hpccoll.World) -> None:
        x, table, tied = np.ones(4), np.ones((4, 2)), np.ones(4)
        plans = [world.allreduce_init(x), world.reduce_init(x), world.broadcast_init(x), world.send_init(x, world.rank)]
        plans += [world.allreduce_init(table[:, 0], out=table[:, 0]), world.allreduce_init(table[:, 1])]
        plans += [world.broadcast_init(tied, out=tied), world.broadcast_init(tied, out=tied)]
        hpccoll.start_all(plans)
        world.recv(np.ones(4), world.rank)
        hpccoll.wait_all(plans)
        assert (table == [[2, 1]] * 4).all()

    testing.run(threads(2), program)
