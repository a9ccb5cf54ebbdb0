# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on hosts that share nothing but the network (cluster.sh; needs root)."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from namespaces import PROGRAMS, cluster, hosts_up, python

ELEMENTS = 2_000_000


@pytest.fixture(scope="module", autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS)
    with hosts_up(2, uncounted):
        yield


def job(hosts: str, program: str, seconds: int = 130) -> subprocess.CompletedProcess[str]:
    """`hpccoll run` on the first host, ended after `seconds`; the others are reached by ssh."""
    command = ["-m", "hpccoll", "run", "-H", hosts, "--timeout", seconds, sys.executable, "-c", program]
    return python("h1", *command)


SUMS = f"""
import numpy, hpccoll, pathlib
hpccoll.init()
p, r = hpccoll.size(), hpccoll.rank()
sent = lambda: int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
x = numpy.arange({ELEMENTS}, dtype=numpy.float32) % 1000 + r
hpccoll.barrier()
before = sent()
total = hpccoll.allreduce(x)
hpccoll.barrier()
wire = sent() - before
assert (total == p * (x - r) + p * (p - 1) // 2).all()
assert (hpccoll.allgather(numpy.full(r, r)) == numpy.repeat(numpy.arange(p), numpy.arange(p))).all()
assert (hpccoll.broadcast(x, root=p - 1) == x - r + p - 1).all()
print("rank", r, hpccoll.local_size(), wire)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("names", "sizes"), [("h1:2,h2:2", [2, 2, 2, 2]), ("h1:2,h2:1", [2, 2, 1])])
def test_sums_cross_the_wire_once_a_host(names: str, sizes: list[int]) -> None:
    """Ranks that share memory are a node; an array crosses between two hosts once each way, whatever their ranks."""
    done = job(names, SUMS)
    assert done.returncode == 0, done.stdout
    lines = sorted(
        [int(word) for word in line.split()[1:]] for line in done.stdout.splitlines() if line.startswith("rank")
    )
    assert [line[:2] for line in lines] == [[r, size] for r, size in enumerate(sizes)]
    for line in lines:
        assert 1.0 <= line[2] / (4 * ELEMENTS) <= 1.2  # headers, acknowledgements, control messages


CALL = """
import hpccoll, platform

def place():
    world = hpccoll.init()
    return platform.node(), world.rank, int(hpccoll.allreduce(1))

print(hpccoll.run(place, hosts="h1:1,h2:2", timeout=100))
"""


@pytest.mark.timeout(300)
def test_a_function_on_other_hosts() -> None:
    """Function and results cross the network, authenticated."""
    done = python("h1", "-c", CALL)
    assert "[('h1', 0, 3), ('h2', 1, 3), ('h2', 2, 3)]" in done.stdout, done.stdout


AGENT = """
import hpccoll, os, signal, time
from hpccoll import launched
world = hpccoll.init()
assert launched._connection._is_made.wait(60)  # a thread makes it: init() does not wait for the launcher
hpccoll.barrier()
if world.rank == 1:
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(40)  # far longer than mpirun needs to notice, also on a busy machine
"""


@pytest.mark.timeout(300)
def test_a_killed_agent_is_no_success() -> None:
    """The process of mpirun on the other host is killed: Open MPI 5 may say status 0 then."""
    done = job("h1:1,h2:1", AGENT, seconds=60)
    assert done.returncode not in (0, 124), done.stdout
    assert "hpccoll run: " in done.stdout, done.stdout


LOSS = """
import os, pathlib, subprocess, numpy, hpccoll
hpccoll.init(peer_timeout=7, stall_warning=3)
reports = os.open(pathlib.Path(FOLDER, f"reports {hpccoll.rank()}"), os.O_WRONLY | os.O_CREAT)
os.dup2(reports, 2)
x = numpy.ones(1000)
hpccoll.allreduce(x)
if hpccoll.rank() == 0:
    subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
try:
    while True:
        hpccoll.allreduce(x)
except hpccoll.PeerLostError as error:
    pathlib.Path(FOLDER, str(hpccoll.rank())).write_text(str(error))
    os._exit(7)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pulled_cable_is_a_lost_peer(tmp_path: Path) -> None:
    """The other host is silent: every rank ends in time and names the ranks that it lost."""
    try:
        done = job("h1:2,h2:2", LOSS.replace("FOLDER", repr(str(tmp_path))), seconds=110)
    finally:
        cluster("exec", "h1", "ip", "link", "set", "eth0", "up")
    # mpirun would wait for the other host for ever: hpccoll run notices that no rank is left
    assert done.returncode == 1, done.stdout
    assert "all ranks had ended, mpirun had not" in done.stdout
    assert done.stdout.count("was cut off: its host does not answer") == 2, done.stdout
    output = {file.name: file.read_text() for file in tmp_path.iterdir()}
    for rank, other, leader in ((0, "h2", 2), (1, "h2", 2), (2, "h1", 0), (3, "h1", 0)):
        reports = [line for line in output[f"reports {rank}"].splitlines() if line.startswith("hpccoll: rank ")]
        silent = rf"; rank {leader} \(host {other}, pid \d+\) has given no sign of life for \d s"
        assert reports, (done.stdout, output)
        assert re.search(silent, reports[0]), output
        assert re.search(r"rank \d \(host h\d, pid \d+\) was lost: no sign of life for 7 s", output[str(rank)]), output
