# SPDX-License-Identifier: Apache-2.0
"""One rank reaches its limit of threads while the World is made: all ranks end, and say why."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(180)

PROGRAM = """
import os, hpccoll
if "OMPI_COMM_WORLD_RANK" in os.environ:
    import mpi4py.MPI  # MPI_Init starts threads of its own
if "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("_HPCCOLL_RANK")):
    os.environ["REFUSE"] = {refused!r}
hpccoll.init()
hpccoll.barrier()
"""
MPI, DIRECT = (), ("--launcher", "ssh")


@pytest.mark.parametrize(
    ("launcher", "refused", "said"),
    [
        (
            MPI,
            "1",
            "rank 1: there is no memory or no thread for a World: raise the limits of this process (ulimit",
        ),
        (MPI, "2", "rank 1: can't start new thread"),  # of the connection to the launcher
        (DIRECT, "1", "rank 1: this process may not start another thread (can't start new thread): raise its limit"),
    ],
)
def test_all_ranks_end(build_c, launcher, refused, said):
    library = build_c("tests/faults/no_thread.c", flags=("-shared", "-ldl"), name="no_thread.so")
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "30", *launcher]
    program = ["env", f"LD_PRELOAD={library}", sys.executable, "-c", PROGRAM.format(refused=refused)]
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
