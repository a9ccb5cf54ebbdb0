# SPDX-License-Identifier: Apache-2.0
"""Whole jobs without MPI, over a net that hpccoll does not bring: processes that meet through a store."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PRELUDE = """
import os, signal, sys
import numpy as np
from file_store import FileStore
import hpccoll
from hpccoll.rendezvous import StoreRendezvous
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def meet(**more):
    return StoreRendezvous(rank, size, FileStore(folder), timeout=60, **more)
"""
END = """
assert "mpi4py" not in sys.modules
print("fine")
"""


@pytest.fixture
def job(build_c, tmp_path):
    """Run a script on ranks that know only the store: a list of (exit status, output)."""
    library = build_c("tests/net_tcp/net_tcp.c", flags=("-shared",), name="net_tcp.so")
    folders = [str(HERE), str(HERE.parent / "api"), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYTHONPATH": os.pathsep.join(folders), "NET_TCP_LIBRARY": str(library)}
    running = []

    def run(ranks, script, **environment):
        for rank in range(ranks):
            command = [sys.executable, "-c", PRELUDE + script + END, str(rank), str(ranks), str(tmp_path)]
            running.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=os.environ | settings | {"HPCCOLL_NODES": "2"} | environment,
                )
            )
        outputs = [one.communicate(timeout=100)[0] for one in running]
        return [(one.returncode, text) for one, text in zip(running, outputs, strict=True)]

    yield run
    for one in running:
        one.kill()
        one.communicate()


OPERATIONS = """
hpccoll.init(rendezvous=meet())
everyone = range(size)
for n in (1, 1000, 3_000_000):
    x = np.arange(n) % 7 + rank
    total = sum(np.arange(n) % 7 + r for r in everyone)
    assert (hpccoll.allreduce(x) == total).all()
    assert (hpccoll.reducescatter(x) == np.array_split(total, size)[rank]).all()
    assert (hpccoll.broadcast(x, size - 1) == np.arange(n) % 7 + size - 1).all()
    sent = np.full(n, float(rank))
    receive = hpccoll.recv_async(y := np.zeros(n), (rank - 1) % size)
    hpccoll.send(sent, (rank + 1) % size)
    assert receive.wait(30) == (rank - 1) % size == y[0] == y[-1]
rows = np.full((rank + 1, 3), rank)
assert (hpccoll.allgather(rows) == np.concatenate([np.full((r + 1, 3), r) for r in everyone])).all()
gotten, splits = hpccoll.alltoall(np.repeat(np.arange(size), 5) + 100 * rank, [5] * size)
assert (gotten == np.repeat([rank + 100 * r for r in everyone], 5)).all()
pair = hpccoll.world().split(rank % 2)
assert pair.allgather(rank).tolist() == [r for r in everyone if r % 2 == rank % 2]
assert hpccoll.world().stats()["net_sent_bytes"] > 0
hpccoll.shutdown()
with hpccoll.World(rendezvous=meet(prefix="again"), verbose=0) as world:
    assert world.allreduce(1) == size
"""


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_operations(job, ranks):
    done = job(ranks, OPERATIONS, HPCCOLL_NET="tcp")
    assert all(status == 0 and "fine" in output for status, output in done), done
    assert "between nodes TCP over the loopback device (HPCCOLL_NET=tcp)" in done[0][1]
    assert "a background thread drives" in done[0][1]


@pytest.mark.slow
def test_random_programs(job):
    script = """
import random_jobs
for seed in range(3):
    with hpccoll.World(rendezvous=meet(prefix=f"{seed}"), verbose=0, **random_jobs.knobs(seed)) as world:
        assert random_jobs.run(world, seed, rounds=6) > 0
"""
    done = job(3, script, HPCCOLL_NET="tcp")
    assert all(status == 0 and "fine" in output for status, output in done), done


def test_auto_chooses_it_and_says_why(job):
    done = job(2, "with hpccoll.World(rendezvous=meet()): pass", HPCCOLL_UCX_LIBRARY="/nowhere/libucp.so.0")
    assert all(status == 0 for status, _ in done), done
    assert (
        "between nodes TCP over the loopback device (chosen by HPCCOLL_NET=auto; not mpi: the ranks did not meet "
        "through MPI (start the job with hpccoll run, mpirun or srun); not threads: the ranks are no threads of one "
        "process; not ucx: there is no UCX that it can use (HPCCOLL_UCX_LIBRARY: /nowhere/libucp.so.0: cannot open"
    ) in done[0][1]


@pytest.mark.parametrize(
    ("net", "host", "environment", "text"),
    [
        ("nonsense", "", {}, "HPCCOLL_NET=nonsense is no net: there are auto, mpi, threads, ucx, tcp"),
        ("tcp", "", {"NET_TCP_LIBRARY": ""}, "not tcp: it has no library (set NET_TCP_LIBRARY to its file)"),
        ("tcp", "", {"NET_TCP_LIBRARY": "/nowhere.so"}, "/nowhere.so: cannot open shared object file"),
        (
            "tcp",
            "host=f'host{rank}'",
            {},
            "the ranks are on several machines, and this net has the loopback device only",
        ),
    ],
)
def test_an_impossible_net_is_one_error_on_all_ranks(job, net, host, environment, text):
    script = f"""
try:
    hpccoll.World(rendezvous=meet({host}), verbose=0, nodes={"" if host else "2"!r})
except (hpccoll.StartError, hpccoll.InvalidArgumentError) as error:
    print(error)
"""
    for status, output in job(2, script, HPCCOLL_NET=net, **environment):
        assert status == 0 and text in output, output


LOSS = re.compile(
    r"(PeerLostError: rank 2 \(host \S+, pid \d+\) was lost: its process is gone"
    r"|TransportError: .*rank 2: (its connection ended, so its process is gone|Connection reset by peer|Broken pipe))"
)


@pytest.mark.parametrize("what", ["allreduce", pytest.param("recv", marks=pytest.mark.slow)])
def test_a_killed_rank_is_named_and_nobody_hangs(job, what):
    """Rank 2 is alone on its node: the others learn of its end from its connection, not from its silence."""
    waits = {
        "allreduce": "hpccoll.allreduce(np.ones(1000), name='after')",
        "recv": "hpccoll.recv(np.ones(1), 2)",
    }[what]
    script = f"""
hpccoll.init(rendezvous=meet())
hpccoll.allreduce(np.ones(10))
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
{waits}
"""
    done = job(3, script, HPCCOLL_NET="tcp", HPCCOLL_NODES="2+1", HPCCOLL_PEER_TIMEOUT="1000")
    assert done[2][0] == -signal.SIGKILL
    for status, output in done[:2]:
        assert status == 1 and LOSS.search(output), output
