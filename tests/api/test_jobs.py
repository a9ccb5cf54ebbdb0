# SPDX-License-Identifier: Apache-2.0
"""Whole jobs under the real launcher: how they start, how they stall, how they end."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)
PRELUDE = """
import os, signal, sys, time
import numpy as np
launcher = os.getppid()
def meet(what, ranks):
    # Wait until as many ranks have come here, without MPI and hpccoll.
    open(os.path.join(os.environ["MEET_IN"], f"{what} {os.getpid()}"), "w").close()
    limit = time.monotonic() + 80
    while sum(name.startswith(what) for name in os.listdir(os.environ["MEET_IN"])) < ranks:
        if time.monotonic() > limit: sys.exit(f"fewer than {ranks} ranks: {what}")
        time.sleep(0.01)
def stay():
    # Wait until the launcher ends this rank, or has ended and left it alone, as mpirun --enable-recovery does.
    while os.getppid() == launcher: time.sleep(0.05)
"""
INIT = PRELUDE + "import hpccoll\nhpccoll.init()\nrank, size = hpccoll.rank(), hpccoll.size()\n"
LIMIT = 100
LAUNCH = [sys.executable, "-m", "hpccoll", "run", "--timeout", str(LIMIT)]


def job(ranks, script, *, nodes="", alone="", **knobs):
    """Run `script` on `ranks` ranks, which end by themselves: (exit status, all output).

    :param alone: options of Open MPI's mpirun, which is then started without our launcher around it
    """
    with tempfile.TemporaryDirectory() as folder:
        return launch([*LAUNCH, "-np", str(ranks), "-x", f"MEET_IN={folder}"], script, nodes, alone, knobs)


def slow(*values):
    """Values that only `make test-all` tries."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def launch(command, script, nodes, alone, knobs):
    for name, value in (knobs | ({"nodes": nodes} if nodes else {})).items():
        command += ["-x", f"HPCCOLL_{name.upper()}={value}"]
    if alone:
        shown = subprocess.run([*command, "--show", "python"], capture_output=True, text=True, check=True).stdout
        command = shlex.split(shown)[:-1]
        at = next(i for i, word in enumerate(command) if word.endswith("mpirun")) + 1
        command[at:at] = alone.split()
    with subprocess.Popen(
        [*command, sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as launcher:
        try:
            output, _ = launcher.communicate(timeout=LIMIT + 15)
        except subprocess.TimeoutExpired:
            launcher.terminate()  # mpirun takes its ranks along, if it is well itself
            time.sleep(2)
            os.killpg(launcher.pid, signal.SIGKILL)
            pytest.fail(f"the job did not end by itself\n{launcher.communicate()[0]}")
    assert launcher.returncode != 124, output  # ended by the launcher's --timeout
    assert wait_for(lambda: not processes_of(launcher.pid)), f"left behind: {processes_of(launcher.pid)}\n{output}"
    return launcher.returncode, output


def processes_of(session):
    """Return the ids of the processes of a session that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, _, its_session = stat.read_text().rpartition(") ")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def wait_for(what, seconds=20):
    """Wait until `what()` is true; False after some seconds."""
    limit = time.monotonic() + seconds
    while not what():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.usefixtures("leaves_nothing_in_shm")
@pytest.mark.parametrize("nodes", [*slow("", "2"), "3+1"])
def test_start_work_end(nodes):
    status, output = job(4, INIT + "assert hpccoll.allreduce(1) == size\nprint('fine')", nodes=nodes)
    assert status == 0, output
    assert output.count("fine") == 4
    assert output.count("hpccoll 0.") == 1


@pytest.mark.slow
def test_a_second_world_after_the_first():
    script = INIT + (
        "for i in range(3):\n"
        "    assert hpccoll.allreduce(np.ones(1000), name='x')[0] == size\n"
        "    hpccoll.shutdown()\n"
        "    assert not hpccoll.is_initialized()\n"
        "    hpccoll.init(verbose=0)\n"
        "hpccoll.shutdown()\n"
        "print('fine')"
    )
    status, output = job(3, script, nodes="2+1")
    assert status == 0, output
    assert output.count("fine") == 3


@pytest.mark.parametrize(
    "nodes, end",
    [
        ("1", ""),
        ("2", "MPI.Finalize()\n"),
        pytest.param("2", "", marks=pytest.mark.slow),
        pytest.param("1", "MPI.Finalize()\n", marks=pytest.mark.slow),
    ],
)
def test_worlds_that_are_open_at_the_end_end_in_one_order(nodes, end):
    """Also one that the program drops, and those of threads, which come in another order on each rank."""
    script = INIT + (
        "from threading import Thread\n"
        "from mpi4py import MPI\n"
        "hpccoll.World(verbose=0).allreduce(1)\n"
        "worlds = [hpccoll.World(verbose=0) for _ in range(3)]\n"
        "comms = [MPI.COMM_WORLD.Dup() for _ in range(12)]\n"
        "by_threads = {}\n"
        "def make(i): by_threads[i] = hpccoll.World(comms[i], verbose=0)\n"
        "makers = [Thread(target=make, args=(i,)) for i in range(12)]\n"
        "for maker in makers: maker.start()\n"
        "for maker in makers: maker.join()\n"
        "assert [w.allreduce(1) for w in [*worlds, *(by_threads[i] for i in range(12))]] == [size] * 15\n"
    )
    began = time.monotonic()
    status, output = job(3, script + end, nodes=nodes)
    assert status == 0, output
    assert "have not called it" not in output, output
    assert time.monotonic() - began < 30, "ranks waited for each other"  # a second or two, else


@pytest.mark.parametrize("nodes", ["", *slow("2")])
def test_threads_make_and_end_one_world_at_once(nodes):
    script = PRELUDE + (
        "import threading\n"
        "import hpccoll\n"
        "def at_once(call):\n"
        "    came, threads = [], [threading.Thread(target=lambda: came.append(call())) for _ in range(6)]\n"
        "    for thread in threads: thread.start()\n"
        "    for thread in threads: thread.join()\n"
        "    return came\n"
        "for _ in range(3):\n"
        "    made = at_once(hpccoll.init)\n"
        "    assert len(set(map(id, made))) == 1 and len(made) == 6, made\n"
        "    world = hpccoll.world()\n"
        "    part = world.subset([0, 1])\n"
        "    assert part.allreduce(1) == 2\n"
        "    assert at_once(part.shutdown) == [None] * 6\n"
        "    assert world.subset([0, 1]).allreduce(1) == 2\n"
        "    assert at_once(world.shutdown) == [None] * 6\n"
        "print('fine')\n"
    )
    status, output = job(2, script, nodes=nodes, start_timeout=30)
    assert (status, output.count("fine")) == (0, 2), output


@pytest.mark.parametrize("nodes", ["1", *slow("2")])
def test_mpi_finalize_ends_the_worlds(nodes):
    script = INIT + (
        "from mpi4py import MPI\n"
        "world = hpccoll.world()\n"
        "MPI.Finalize()\n"
        "try:\n"
        "    world.allreduce(np.ones(1))\n"
        "except hpccoll.ShutDownError:\n"
        "    print('refused')\n"
    )
    status, output = job(2, script, nodes=nodes)
    assert (status, output.count("refused")) == (0, 2), output


def test_a_rank_that_is_done_says_that_waiting_is_normal():
    """Rank 1 is done, and rank 0 still computes: until it has read rank 1's line."""
    script = INIT + (
        "hpccoll.allreduce(1)\n"
        "said = os.path.join(os.environ['MEET_IN'], 'said')\n"
        "if rank == 1:\n"
        "    os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY), 2)\n"
        "    sys.exit()\n"
        "hpccoll.shutdown()\n"
        "while not os.path.exists(said) or not (text := open(said).read()).endswith('\\n'):\n"
        "    time.sleep(0.05)\n"
        "print(text)\n"
    )
    status, output = job(2, script, stall_warning=0.1)
    assert status == 0, output
    line = (
        r"rank 1 of MPI_COMM_WORLD \(host \S+, pid \d+\) is done, and has waited 0.6 s in MPI_Finalize for the other "
    )
    assert re.search(line + "ranks; that is normal while one of them still computes", output), output


def test_worlds_of_communicators_beside_the_users_mpi():
    script = PRELUDE + (
        "from mpi4py import MPI\n"
        "import hpccoll\n"
        "comm = MPI.COMM_WORLD\n"
        "half = comm.Split(comm.rank % 2, -comm.rank)\n"
        "with hpccoll.World(comm) as a, hpccoll.World(half) as b:\n"
        "    assert (a.rank, a.size, b.rank, b.size) == (comm.rank, comm.size, half.rank, half.size)\n"
        "    for i in range(100):\n"
        "        one = a.allreduce_async(np.full(5000, 1.0), name='one')\n"
        "        two = b.allreduce_async(np.full(5000, 2.0), name='two')\n"
        "        mine = comm.allreduce(comm.rank)\n"
        "        other = comm.sendrecv(i, (comm.rank + 1) % comm.size, 7, source=(comm.rank - 1) % comm.size)\n"
        "        assert two.wait()[0] == 2 * half.size and one.wait()[0] == comm.size\n"
        "        assert other == i and mine == sum(range(comm.size))\n"
        "print('fine')"
    )
    status, output = job(4, script, nodes="2")
    assert status == 0, output
    assert output.count("fine") == 4


@pytest.mark.parametrize("level", [*slow("single", "funneled", "serialized"), "multiple"])
def test_mpi_thread_levels(level):
    script = PRELUDE + (
        f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\n"
        "import hpccoll\n"
        "hpccoll.init()\n"
        "rank = hpccoll.rank()\n"
        "for i in range(50):\n"
        "    hs = [hpccoll.allreduce_async(np.full(3000, i), name=str(n)) for n in range(4)]\n"
        "    hpccoll.world().progress()\n"
        "    assert all((h.wait() == 4 * i).all() for h in hs)\n"
        "print('fine')"
    )
    status, output = job(4, script, nodes="2")
    assert status == 0, output
    assert output.count("fine") == 4
    said = "a background thread drives" if level == "multiple" else "no background thread"
    assert said in output


@pytest.mark.usefixtures("leaves_nothing_in_shm")
@pytest.mark.parametrize("nodes", [*slow(""), "2"])
def test_a_killed_rank_is_named_and_all_leave(nodes):
    """With a launcher that leaves the job alone when it lost a rank: the survivors end by themselves."""
    script = INIT + (
        "hpccoll.allreduce(np.ones(10))\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "try:\n"
        "    hpccoll.allreduce(np.ones(10), name='after')\n"
        "except hpccoll.PeerLostError as error:\n"
        "    print(f'survivor {rank}: {error}', flush=True)\n"
        "try:\n"
        "    hpccoll.allreduce(np.ones(10))\n"
        "except hpccoll.RecoverableError:\n"
        "    print(f'still broken {rank}', flush=True)\n"
        "meet('survivors', 3)\n"
        "if rank: stay()\n"  # one MPI_Abort at a time: PRRTE crashes over several
    )
    status, output = job(4, script, nodes=nodes, alone="--enable-recovery")
    for rank in (0, 2, 3):
        assert re.search(rf"survivor {rank}: rank 1 \(host \S+, pid \d+\) was lost", output), output
        assert f"still broken {rank}" in output, output
    assert "ending the job" in output
    assert status != 0


@pytest.mark.slow
def test_a_rank_whose_process_mpi_says_has_failed_is_named():
    """Under MPI with fault tolerance: its receives from any rank fail, and do not say whose process it is."""
    script = INIT + (
        "hpccoll.allreduce(np.ones(10))\n"
        "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "try:\n"
        "    while True: hpccoll.allreduce(np.ones(10), name='after')\n"
        "except hpccoll.PeerLostError as error:\n"
        "    print(f'survivor {rank}: {error}', flush=True)\n"
        "    meet('survivors', 2)\n"
        "    os._exit(1)\n"
    )
    _, output = job(3, script, nodes="2+1", alone="--with-ft ulfm --enable-recovery")
    for rank in (0, 1):
        assert re.search(rf"survivor {rank}: rank 2 \(host \S+, pid \d+\) was lost: .*Process Failure", output), output


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", r"PeerLostError: rank 1 \(host \S+, pid \d+\) was lost"),
        ("hpccoll.shutdown()", "ShutDownError: the World has been shut down: rank 1 has called shutdown"),
        ("raise ValueError('mine')", "ShutDownError: the World has been shut down: rank 1 has raised ValueError: mine"),
    ],
    ids=["kill", "shutdown", "exception"],
)
def test_a_node_ends_while_another_one_waits_for_its_vote(end, error):
    """A small call without a name between nodes. Both ranks took such calls before."""
    script = INIT + (
        "for _ in range(20): hpccoll.allreduce(np.ones(10))\n"
        "if rank == 1:\n"
        "    time.sleep(0.2)\n"
        f"    {end}\n"
        "    sys.exit()\n"
        "try:\n"
        "    hpccoll.allreduce(np.ones(10))\n"
        "except hpccoll.HpccollError as error:\n"
        "    print(f'{type(error).__name__}: {error}', flush=True)\n"
    )
    _, output = job(2, script, nodes="2", alone="--enable-recovery" if "KILL" in end else "", peer_timeout=2)
    assert re.search(error, output), output


@pytest.mark.parametrize(
    ("text", "told"),
    [("mine\nsecond", "mine\n"), ("Errors in a state:\n\tMissing: w.\n", "Errors in a state: Missing: w.\n")],
    ids=["a line", "a heading"],
)
def test_a_rank_that_dies_of_an_exception_ends_the_others(text, told):
    script = INIT + f"if rank == 2: raise RuntimeError({text!r})\nhpccoll.allreduce(np.ones(10), name='x')\n"
    status, output = job(3, script, nodes="2+1", alone="--enable-recovery")
    assert status != 0
    assert f"RuntimeError: {text}" in output
    assert f"ShutDownError: the World has been shut down: rank 2 has raised RuntimeError: {told}" in output, output


@pytest.mark.parametrize(
    "last", ["hpccoll.allreduce(np.ones(10), name='x')", *slow("time.sleep(1); hpccoll.barrier()")]
)
def test_a_rank_that_exits_ends_the_others(last):
    """In time, that is: else the job hangs for as long as its rank waits for them."""
    script = INIT + f"if rank == 2: sys.exit()\n{last}\n"
    status, output = job(3, script, nodes="2+1", stop_timeout=3600)
    assert status != 0
    who = "ShutDownError: the World has been shut down: rank 2 has called shutdown() or ended"
    assert output.count(who) >= 1, output


def test_a_stall_names_who_is_awaited_and_ends_at_the_limit():
    script = INIT + (
        "if rank != 1:\n"
        "    try:\n"
        "        hpccoll.allreduce(np.ones(10), name='slow one')\n"
        "    except hpccoll.StallError as error:\n"
        "        print(f'stalled {rank}: {error}', flush=True)\n"
        "meet('stalled', 3)\n"  # at the first that ends mpirun may kill the others
        "os._exit(0)\n"
    )
    _, output = job(3, script, nodes="2+1", stall_warning=0.5, stall_limit=5)
    warnings = [line for line in output.splitlines() if line.startswith("hpccoll: ") and "slow one" in line]
    assert warnings, output
    assert "1" in warnings[0].split("slow one")[1]
    for rank in (0, 2):
        assert f"stalled {rank}: " in output, output


def test_missing_ranks_are_named():
    script = PRELUDE + (
        "from mpi4py import MPI\n"
        "import hpccoll\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "meet('begun', 3)\n"
        "if rank != 1:\n"
        "    try:\n"
        "        hpccoll.init()\n"
        "    except hpccoll.StartError as error:\n"
        "        print(f'refused {rank}: {error}', flush=True)\n"
        "meet('refused', 3)\n"
        "if rank: stay()\n"
        "MPI.COMM_WORLD.Abort(3)\n"
    )
    _, output = job(3, script, start_timeout=8)
    assert "refused 0: the World was not made: no word from rank 1 within 8 s" in output, output
    assert "refused 2: the World was not made: no word from rank 1 within 8 s" in output, output


def test_settings_must_agree():
    script = PRELUDE + (
        "import hpccoll\n"
        "from mpi4py import MPI\n"
        "try:\n"
        "    hpccoll.init(cache_capacity=64 + MPI.COMM_WORLD.rank // 2)\n"
        "except hpccoll.StartError as error:\n"
        "    print(error, flush=True)\n"
    )
    _, output = job(3, script)
    assert output.count("HPCCOLL_CACHE_CAPACITY differs between ranks: 64 on ranks 0, 1; 65 on rank 2") == 3, output


@pytest.mark.slow
def test_a_forked_child_is_told():
    script = INIT + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        hpccoll.allreduce(np.ones(3))\n"
        "    except hpccoll.ForkedError as error:\n"
        "        print('child:', error, flush=True)\n"
        "    hpccoll.shutdown()\n"
        "    try:\n"
        "        hpccoll.init()\n"
        "    except hpccoll.ForkedError as error:\n"
        "        print('again:', error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "assert hpccoll.allreduce(np.ones(3))[0] == size\n"
        "print('parent fine')"
    )
    status, output = job(2, script)
    assert status == 0, output
    assert output.count("child: ") == 2
    assert output.count("again: this process was forked from one that had started MPI") == 2
    assert output.count("parent fine") == 2


def test_a_lonely_task_of_a_larger_step_is_refused():
    script = "import hpccoll\nhpccoll.init()\nprint('size', hpccoll.size())"
    environment = {**os.environ, "SLURM_STEP_NUM_TASKS": "64", "SLURM_STEP_ID": "0"}
    run = lambda env: subprocess.run(  # noqa: E731
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    refused = run(environment)
    assert refused.returncode != 0
    assert "srun started 64 tasks" in refused.stderr
    assert "HPCCOLL_ALLOW_SINGLETON=1" in refused.stderr
    assert "size 1" in run({**environment, "HPCCOLL_ALLOW_SINGLETON": "1"}).stdout


def test_interrupts_reach_a_waiting_program():
    script = INIT + (
        "if rank == 0:\n"
        "    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "        hpccoll.allreduce(np.ones(3), name='interrupted')\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
        "    hpccoll.barrier()\n"
        "else:\n"
        "    hpccoll.barrier()\n"
        "    hpccoll.allreduce(np.ones(3), name='interrupted')\n"
        "hpccoll.barrier()\n"
    )
    status, output = job(2, script)
    assert status == 0, output
    assert "interrupted" in output


def test_a_silent_rank_on_another_node_is_given_up():
    script = INIT + (
        "hpccoll.allreduce(np.ones(10))\n"
        "if rank == 2: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "try:\n"
        "    hpccoll.allreduce(np.ones(10), name='after')\n"
        "except hpccoll.PeerLostError as error:\n"
        "    print(f'survivor {rank}: {error}', flush=True)\n"
        "    meet('survivors', 2)\n"
        "    if rank: stay()\n"
    )
    status, output = job(3, script, nodes="2+1", peer_timeout=8)
    for rank in (0, 1):
        lost = r"rank 2 \(host \S+, pid \d+\) was lost: no sign of life for 8 s"
        assert re.search(f"survivor {rank}: {lost}", output), output
    assert status != 0


@pytest.mark.slow
def test_a_silent_sender_on_another_node_ends_a_receive():
    """No other rank waits for it: the receiver asks the sender itself, which is not its neighbour in the tree."""
    script = INIT + (
        "hpccoll.allreduce(np.ones(10))\n"
        "if rank == 3: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "if rank == 1:\n"
        "    try:\n"
        "        hpccoll.recv(np.ones(10), 3)\n"
        "    except hpccoll.PeerLostError as error:\n"
        "        print(f'survivor {rank}: {error}', flush=True)\n"
        "    os._exit(1)\n"
        "stay()\n"
    )
    status, output = job(4, script, nodes="2", peer_timeout=8)
    sign = r"(no sign of life|it has been stopped \(state T\)) for 8 s"  # as the receiver or rank 3's neighbour sees it
    assert re.search(rf"survivor 1: rank 3 \(host \S+, pid \d+\) was lost: {sign}", output), output
    assert status != 0
