# SPDX-License-Identifier: Apache-2.0
"""Worlds without MPI: real processes that meet through a store."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hpccoll

PRELUDE = """
import os, sys, time
import numpy as np
from datetime import timedelta
from file_store import FileStore
rank, size, there, kind, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
store = files = FileStore(folder)
if kind == "tcp":
    from torch.distributed import TCPStore
    if rank == 0:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        files.set("port", str(store.port).encode())
    else:
        files.wait(["port"], timedelta(seconds=100))
        store = TCPStore("127.0.0.1", int(files.get("port")), is_master=False)
import hpccoll
from hpccoll.rendezvous import StoreRendezvous
def meet(timeout=60, **more):
    return StoreRendezvous(rank, size, store, timeout=timeout, **more)
def all_are(what):
    files.set(f"{what}{rank}", b"")
    files.wait([f"{what}{r}" for r in range(there)], timedelta(seconds=100))
"""
END = """
assert 'mpi4py' not in sys.modules and (kind == "tcp" or 'torch' not in sys.modules)
"""
STORES = ["files"]
if importlib.util.find_spec("torch"):
    STORES += [pytest.param("tcp", marks=pytest.mark.slow)]  # each rank imports torch; torchrun's jobs have this store


@pytest.fixture(params=STORES)
def job(request, tmp_path):
    """Run a script on ranks that know only the store: a list of (exit status, output)."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    running = []

    def run(ranks, script, size=0, **environment):
        for rank in range(ranks):
            words = [rank, size or ranks, ranks, request.param, tmp_path]
            command = [sys.executable, "-c", PRELUDE + script + END, *map(str, words)]
            running.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=os.environ | environment | {"PYTHONPATH": path},
                )
            )
        outputs = [one.communicate(timeout=200)[0] for one in running]
        return [(one.returncode, text) for one, text in zip(running, outputs, strict=True)]

    yield run
    for one in running:
        one.kill()
        one.communicate()


@pytest.mark.usefixtures("leaves_nothing_in_shm")
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_start_work_end(job, ranks):
    script = """
hpccoll.init(rendezvous=meet())
assert hpccoll.rank() == rank and hpccoll.size() == size == hpccoll.local_size()
for _ in range(20):
    assert (hpccoll.allreduce(np.ones(50000), name="x") == size).all()
for n in (10, 3_000_000):
    receive = hpccoll.recv_async(y := np.zeros(n), (rank - 1) % size)
    hpccoll.send(np.full(n, float(rank)), (rank + 1) % size)
    assert receive.wait(20) == (rank - 1) % size == y[0] == y[-1]
pair = hpccoll.world().split(rank % 2)
assert pair.allgather(rank).tolist() == [r for r in range(size) if r % 2 == rank % 2]
hpccoll.shutdown()
with hpccoll.World(rendezvous=meet(prefix="again"), verbose=0) as world:
    assert world.allreduce(1) == size
print("fine")
"""
    done = job(ranks, script)
    assert all(status == 0 and "fine" in output for status, output in done), done
    assert f"{ranks} rank{'s' if ranks > 1 else ''} on 1 node ({ranks})" in done[0][1]
    assert "; the ranks met through a store without a secret (HPCCOLL_SECRET): its records are not auth" in done[0][1]


def test_a_secret_is_said_and_not_shown(job):
    script = """
with hpccoll.World(rendezvous=meet()) as world:
    world.allreduce(1)
"""
    done = job(2, script, HPCCOLL_SECRET="open sesame")
    assert all(status == 0 for status, _ in done), done
    assert "; the ranks met through a store, authenticated by HPCCOLL_SECRET" in done[0][1]
    assert "open sesame" not in done[0][1]


# The store of kind "tcp" is rank 0's, and ends with it: it is the last to know what all say.


def test_missing_ranks_are_named_on_those_that_came(job):
    script = """
all_are("there")
try:
    meet(timeout=None)
except hpccoll.StartError as error:
    print(error)
"""
    for status, output in job(3, script, size=5, HPCCOLL_START_TIMEOUT="8"):
        assert status == 0, output
        assert "the World was not made: no word from ranks 3, 4 within 8 s" in output


def test_several_machines_are_refused_on_all_ranks(job):
    script = """
try:
    hpccoll.World(rendezvous=meet(host=f"host{rank // 2}"), verbose=0)
except hpccoll.StartError as error:
    print(error)
"""
    for status, output in job(3, script, HPCCOLL_NET="mpi"):
        assert status == 0, output
        assert (
            "the ranks are on 2 machines (host0: ranks 0, 1; host1: rank 2), and no net connects them, "
            "not mpi: the ranks did not meet through MPI (start the job with hpccoll run, mpirun or srun)"
        ) in output


def test_emulated_nodes_are_refused_on_all_ranks(job):
    script = """
try:
    hpccoll.World(rendezvous=meet(), verbose=0)
except hpccoll.StartError as error:
    print(error)
"""
    for status, output in job(2, script, HPCCOLL_NODES="2", HPCCOLL_NET="mpi"):
        assert status == 0, output
        assert "HPCCOLL_NODES splits the ranks into nodes (unset it to join them), and no net connects" in output
        assert "did not meet through MPI (start the job with hpccoll run, mpirun or srun)" in output


@pytest.mark.parametrize(
    ("other", "differ"),
    [
        ("_core.VERSION = '0.0.9'", "0.0.9 (messages of version {wire}) on ranks 1, 2"),
        ("_core.WIRE_VERSION = 77", "{version} (messages of version 77) on ranks 1, 2"),
    ],
    ids=["package", "wire"],
)
def test_ranks_of_different_versions_are_refused_on_all_ranks(job, other, differ):
    """Before anything else is exchanged: what is a setting in one version may be unknown to the other."""
    script = f"""
from hpccoll import _core
if rank > 0:
    {other}
try:
    hpccoll.World(rendezvous=meet(), verbose=0)
except hpccoll.StartError as error:
    print(error)
"""
    here = {"version": hpccoll.__version__, "wire": hpccoll._core.WIRE_VERSION}
    for status, output in job(3, script):
        assert status == 0, output
        assert (
            "the World was not made: its ranks run different versions of hpccoll: "
            "{version} (messages of version {wire}) on rank 0; ".format(**here)
            + differ.format(**here)
        ) in output


def test_settings_must_agree(job):
    script = """
try:
    hpccoll.World(rendezvous=meet(), cache_capacity=64 + rank)
except hpccoll.StartError as error:
    print(error)
"""
    for status, output in job(2, script):
        assert status == 0, output
        assert "HPCCOLL_CACHE_CAPACITY differs between ranks: 64 on rank 0; 65 on rank 1" in output


def test_a_killed_rank_is_named_and_nobody_hangs(job):
    script = """
import signal
hpccoll.init(rendezvous=meet())
hpccoll.allreduce(np.ones(10))
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hpccoll.allreduce(np.ones(10), name="after")
"""
    done = job(3, script)
    assert done[1][0] == -signal.SIGKILL
    for rank in (0, 2):
        status, output = done[rank]
        assert status == 1, output
        assert re.search(r"PeerLostError: rank 1 \(host \S+, pid \d+\) was lost: its process is gone", output), output


def test_a_killed_rank_ends_open_messages(job):
    script = """
import signal
hpccoll.init(rendezvous=meet())
all_are("there")  # not a barrier: of that the last to leave may hear that rank 1 is gone
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
one, other, many = np.zeros(1), np.zeros(1), np.zeros(1_000_000)
handles = {
    "receive": hpccoll.recv_async(one, 1), "any": hpccoll.recv_async(other), "send": hpccoll.send_async(many, 1)
}
for name, handle in handles.items():
    try:
        handle.wait(20)
    except hpccoll.PeerLostError as error:
        print(name, error)
"""
    done = job(3, script)
    for rank in (0, 2):
        for name in ("receive", "any", "send"):
            assert re.search(rf"{name} rank 1 \(host \S+, pid \d+\) was lost", done[rank][1]), done


def test_a_store_that_fails_is_a_start_error(job):
    script = """
try:
    StoreRendezvous(0, 1, object(), timeout=1)
except hpccoll.StartError as error:
    print(error)
"""
    ((status, output),) = job(1, script)
    assert status == 0, output
    assert "the World was not made: the store failed: AttributeError: " in output


def test_containers_of_one_host_are_several_machines(tmp_path, needs):
    """The second rank is in a mount namespace of its own, with another /dev/shm."""
    script = PRELUDE + "print(meet().compare(meet().machine()).alike)\n"
    commands = [[sys.executable, "-c", script, str(rank), "2", "2", "files", str(tmp_path)] for rank in (0, 1)]
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        needs("root")
    commands[1] = [*unshare, "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh", *commands[1]]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    running = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    assert [rank.communicate(timeout=60)[0] for rank in running] == ["False\n"] * 2
