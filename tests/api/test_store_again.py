# SPDX-License-Identifier: Apache-2.0
"""Ranks that are started again on a store that outlived them, as torchrun does it; a store that stops answering."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
from datetime import timedelta
from file_store import FileStore
rank, size, kind, place = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
if kind == "tcp":
    from torch.distributed import TCPStore
    real = TCPStore("127.0.0.1", int(place), is_master=False)
else:
    real = FileStore(place)
class Telling:
    def set(self, key, value):
        real.set(key, value)
        print("set", key, flush=True)
    def __getattr__(self, name):
        return getattr(real, name)
def meet(timeout=100):
    if kind == "tcp":
        from hpccoll.torch.distributed.rendezvous import through_store
        return through_store(Telling(), rank, size, timedelta(seconds=timeout))
    from hpccoll.rendezvous import StoreRendezvous
    return StoreRendezvous(rank, size, Telling(), timeout=timeout)
"""
SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
STORES = ["files", pytest.param("tcp", marks=[needs_torch, pytest.mark.slow])]


class Ranks:
    """Processes of this test, all of which end with it."""

    def __init__(self, kind, folder):
        self.kind, self.place, self.running = kind, str(folder), []
        if kind == "tcp":
            self.server = self.start("-c", SERVER)
            self.place = self.server.stdout.readline().strip()

    def start(self, *words):
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        environment.pop("HPCCOLL_SECRET", None)
        self.running.append(
            subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
        )
        return self.running[-1]

    def rank(self, rank, size, script):
        return self.start("-c", RANK + script, str(rank), str(size), self.kind, self.place)

    def close(self):
        for one in self.running:
            one.kill()
            one.communicate()


@pytest.fixture
def ranks(request, tmp_path):
    started = Ranks(request.param, tmp_path)
    yield started
    started.close()


@pytest.mark.parametrize("ranks", STORES, indirect=True)
@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_ranks_that_are_started_again_find_each_other(ranks, dead):
    """As it was found: one of three ranks dies before it arrives, its launcher kills the others, and starts three."""
    came = [ranks.rank(rank, 3, "meet()") for rank in range(3) if rank != dead]
    for one in came:
        while "hello" not in (line := one.stdout.readline()) and (dead == 0 or "answer" not in line):
            assert line, "a rank that waits for the dead one has ended"
        one.send_signal(signal.SIGKILL)
    script = """
for _ in range(2):
    found = meet()
    print("heard", found.allgather([rank, found.prefix]))
"""
    for _ in range(2):
        again = [ranks.rank(rank, 3, script) for rank in range(3)]
        said = [one.communicate(timeout=200)[0] for one in again]
        heard = [[line for line in text.splitlines() if line.startswith("heard")] for text in said]
        assert len(heard[0]) == 2, said
        assert heard[0] == heard[1] == heard[2], said
        assert "heard [[0, '" in heard[0][0] and "[2, '" in heard[0][0] and heard[0][0] != heard[0][1]


@pytest.mark.parametrize("ranks", STORES, indirect=True)
def test_a_rank_that_dies_after_it_has_come_is_named(ranks):
    script = """
import hpccoll, os
real.set(f"ready {rank}", b"")
real.wait([f"ready {other}" for other in range(3)], timedelta(seconds=100))
try:
    found = meet(timeout=6)
    if rank == 2:
        os._exit(0)
    found.allgather("a")
except hpccoll.StartError as error:
    print("error", error)
"""
    first, second, _ = [ranks.rank(rank, 3, script) for rank in range(3)]
    for one in (first, second):
        assert "error the World was not made: no word from rank 2 within 6 s" in one.communicate(timeout=200)[0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", STORES, indirect=True)
@pytest.mark.parametrize("last", ["/come/1/", "/0/1$"])
def test_a_rank_that_dies_before_it_has_read_an_answer_is_named(ranks, last):
    """As it was found: rank 0 waited for its mark, and the other ranks for rank 0, which they named in its place."""
    script = f"""
import hpccoll, os, re
real.set(f"ready {{rank}}", b"")
real.wait([f"ready {{other}}" for other in range(3)], timedelta(seconds=100))
class Dying(Telling):
    def set(self, key, value):
        super().set(key, value)
        if rank == 1 and re.search("{last}", key):
            os._exit(0)
Telling = Dying
try:
    found = meet(timeout=6)
    found.allgather("a")
    found.allgather("b")
except hpccoll.StartError as error:
    print("error", error)
"""
    first, _, third = [ranks.rank(rank, 3, script) for rank in range(3)]
    for one in (first, third):
        assert "error the World was not made: no word from rank 1 within 6 s" in one.communicate(timeout=200)[0]


@pytest.mark.parametrize("ranks", [STORES[1]], indirect=True)
def test_a_stopped_server_is_a_start_error(ranks):
    """As it was found: torch's methods wait for ever for a server that is stopped, and say nothing."""
    script = """
import hpccoll, os
try:
    meet(timeout=12)
except hpccoll.StartError as error:
    print("error", error)
"""
    one = ranks.rank(1, 2, script)
    while "hello" not in (line := one.stdout.readline()):
        assert line
    ranks.server.send_signal(signal.SIGSTOP)
    said = one.communicate(timeout=150)[0]
    ranks.server.send_signal(signal.SIGCONT)
    assert "error the World was not made: the store failed: SilentStoreError: the store has not answered for" in said
    assert "is the process that serves it, often rank 0, stopped, or its host cut off?" in said
