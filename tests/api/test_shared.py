# SPDX-License-Identifier: Apache-2.0
"""Arrays that the ranks of a node share: one per node, nothing left behind, errors with names."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import hpccoll
from hpccoll import testing


@pytest.mark.parametrize("read_only", [False, True])
def test_ranks_of_a_node_see_one_array(everywhere, leaves_nothing_in_shm, read_only):
    def program(world):
        x = world.shared_array((3, 1000), "i4", read_only=read_only)
        assert (x.shape, x.dtype) == ((3, 1000), np.int32)
        assert not x.any()
        world.barrier()
        if world.local_rank == 0:
            x[...] = 1 + world.cross_rank
        world.barrier()
        assert (x == 1 + world.base.loop.node_of[world.rank]).all()
        assert x.flags.writeable == (world.local_rank == 0 or not read_only)
        world.barrier()
        if not read_only:
            x[0, world.rank] = -world.rank
            world.barrier()
            mine = world.base.loop.node_of[world.rank]
            for r in range(world.size):
                if world.base.loop.node_of[r] == mine:
                    assert x[0, r] == -r
        world.barrier()
        assert world.shared_array(0).size == 0
        assert world.shared_array((), [("a", "f8"), ("b", "i4")]).dtype.names == ("a", "b")

    everywhere(program)


def test_a_full_file_system_is_one_error(threads, leaves_nothing_in_shm):
    files = os.statvfs("/dev/shm")
    nbytes = files.f_blocks * files.f_frsize + (1 << 20)

    def program(world):
        said = rf"no memory on rank 0 \(host \S+, pid \d+\) for an array of {nbytes} bytes.*--shm-size"
        with pytest.raises(hpccoll.OutOfMemoryError, match=said):
            world.shared_array(nbytes, np.uint8)
        with pytest.raises(hpccoll.OutOfMemoryError, match="no memory on rank 0"):
            world.shared_array((1 << 40, 1 << 40))
        assert world.allreduce(1) == world.size

    testing.run(threads(3, nodes="2+1"), program)


def test_wrong_calls(threads):
    def program(world):
        with pytest.raises(hpccoll.MismatchError, match=r"shared_array: rank 0 says .*rank 1 says"):
            world.shared_array(3 + world.rank)
        with pytest.raises(hpccoll.UnsupportedError, match="holds Python objects"):
            world.shared_array(3, object)
        with pytest.raises(hpccoll.InvalidArgumentError, match="shape"):
            world.shared_array(-1)

    testing.run(threads(2), program)


def test_what_one_rank_alone_refuses_is_an_error_on_all(threads, leaves_nothing_in_shm):
    """Before, that rank raised an error, and the others waited for it."""

    def program(world):
        odd = world.rank == 1
        for shape, dtype in ((-1, "f8"), ((2.5,), "f8"), (None, "f8"), (3, "nope"), (3, "1,,"), (3, object)):
            with pytest.raises(hpccoll.MismatchError, match=r"shared_array: rank 0 says .*, rank 1 says"):
                world.shared_array(shape if odd else 3, dtype if odd else "f8")
        for dtype in ("nope", "f8,?x", "1,,"):
            with pytest.raises(hpccoll.InvalidArgumentError, match=f"shared_array: dtype '{re.escape(dtype)}': "):
                world.shared_array(3, dtype)
        assert world.allreduce(1) == world.size

    testing.run(threads(2), program)


@pytest.mark.timeout(120)
def test_nothing_is_left_of_a_killed_job(leaves_nothing_in_shm):
    program = (
        "import os, signal, hpccoll; w = hpccoll.init(verbose=0); x = w.shared_array(1 << 20); hpccoll.barrier()\n"
        "os.kill(os.getpid(), signal.SIGKILL) if w.rank == 0 else hpccoll.recv(x[:1], 0)"
    )
    job = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", "60", "-np", "2", sys.executable, "-c", program]
    done = subprocess.run(job, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "rank 0" in done.stderr + done.stdout
