# SPDX-License-Identifier: Apache-2.0
"""Several threads that wait for one Handle."""

import threading

import numpy as np

import hpccoll
from hpccoll import testing


def test_two_threads_wait_for_one_handle(threads):
    """One of them makes the result; the other one has it only then."""

    def program(world):
        began, seen = threading.Event(), threading.Event()

        def slow(a, b):
            if threading.current_thread() in waiters:
                began.set()
                seen.wait(0.3)
            return a + b

        def wait(first):
            if not first:
                began.wait(30)
            results.append(handle.wait().tolist())
            seen.set()

        results = []
        waiters = [threading.Thread(target=wait, args=(first,)) for first in (True, False)]
        handle = world.allreduce_async(np.ones(3), hpccoll.UserReduction(slow, elementwise=False), name="sum")
        for waiter in waiters:
            waiter.start()
        for waiter in waiters:
            waiter.join()
        assert results == [[2.0] * 3] * 2

    testing.run(threads(2), program)
