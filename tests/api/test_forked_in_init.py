# SPDX-License-Identifier: Apache-2.0
"""A process forks while another of its threads is in init(): the child makes a World of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
import hpccoll
from hpccoll import default_world
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous

came, go = threading.Event(), threading.Event()
World = default_world.World

def slow_world(*arguments, **knobs):
    came.set()
    go.wait()
    return World(*arguments, **knobs)

def alone():
    return ThreadRendezvous(ThreadGroup(1), 0)

default_world.World = slow_world
thread = threading.Thread(target=lambda: hpccoll.init(rendezvous=alone(), verbose=0))
thread.start()
came.wait()
child = os.fork()
if child == 0:
    default_world.World = World
    signal.alarm(10)  # ends a child that waits for ever
    assert hpccoll.init(rendezvous=alone(), verbose=0).allreduce(3) == 3
    hpccoll.shutdown()
    os._exit(0)
_, status = os.waitpid(child, 0)
go.set()
thread.join()
assert hpccoll.allreduce(2) == 2
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timeout(100)
def test_the_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
