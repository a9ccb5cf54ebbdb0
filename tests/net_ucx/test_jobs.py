# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over UCX, on one machine that acts as two nodes, started without MPI."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def job(nodes: str, script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    ranks = sum(map(int, nodes.split("+")))
    command = ["run", "--launcher", "ssh", "--timeout", "180", "-np", str(ranks), "--nodes", nodes]
    paths = os.pathsep.join([str(TESTS / "api"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "hpccoll", *command, sys.executable, "-P", "-c", script],
        env={**os.environ, "HPCCOLL_NET": "ucx", "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=210,
        check=False,
    )


RANDOM = """
import random_jobs, hpccoll
for seed in range(3):
    with hpccoll.World(verbose=0, **random_jobs.knobs(seed)) as world:
        assert random_jobs.run(world, seed, rounds=6) > 0
print("fine", flush=True)
"""


@pytest.mark.slow
def test_random_programs() -> None:
    done = job("2+1", RANDOM)
    assert done.returncode == 0 and done.stdout.count("fine") == 3, done.stdout + done.stderr
    assert "UCX  " not in done.stderr, done.stderr  # it warns of nothing


TWO_WORLDS = """
import numpy, hpccoll
hpccoll.init()
with hpccoll.World(verbose=0) as other:  # a context and a worker of its own
    for i in range(20):
        x = hpccoll.allreduce_async(numpy.ones(100_000), name="a")
        y = other.allreduce_async(numpy.ones(100_000), name="a")
        assert x.wait()[0] == y.wait()[0] == hpccoll.size()
hpccoll.shutdown()
print("fine", flush=True)
"""


def test_two_worlds_at_once() -> None:
    done = job("1+1", TWO_WORLDS)
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr
    assert "HPCCOLL_NET=ucx" in done.stderr


@pytest.mark.parametrize(
    "what", ["hpccoll.allreduce(numpy.ones(1000), name='after')", "hpccoll.recv(numpy.ones(1), 2)"]
)
def test_a_killed_rank_is_named_and_nobody_hangs(what: str) -> None:
    """Rank 2 is alone on its node: the others learn of its end from its connection, not from its silence."""
    script = f"""
import os, signal, numpy, hpccoll
hpccoll.init()
try:
    hpccoll.allreduce(numpy.ones(10))
    if hpccoll.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    {what}
except hpccoll.PeerLostError as error:
    os.write(1, f"lost: {{error}}\\n".encode())  # in one piece: the ranks share a pipe
"""
    done = job("2+1", script, HPCCOLL_PEER_TIMEOUT="1000")
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    lost = re.findall(r"lost: rank 2 \(host \S+, pid \d+\) was lost: (.*)", done.stdout)
    assert len(lost) == 2, done.stdout + done.stderr
