# SPDX-License-Identifier: Apache-2.0
"""Programs that diverge, each in its own way, and the sentence about each."""

import os
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

from hpccoll.__main__ import READER_LEFT, main
from hpccoll.tools.trace import cli, gather, recording
from hpccoll.tools.trace.recording import TraceError

pytestmark = pytest.mark.timeout(240)
DEBUG = {"HPCCOLL_DEBUG": "1"}


def test_a_call_that_one_rank_leaves_out(job):
    program = """
init(stall_limit=3)
def step(n):
    for i in range(4):
        if (rank, n, i) != (1, 2, 2):
            hpccoll.allreduce(np.ones((8, 2), np.float32), name=f"grad.{i}")
for n in range(3):
    step(n)
"""
    one = job(program, 3, **DEBUG)
    one.wait()
    said = one.explained()
    call = 'allreduce "grad.2" (float32, shape (8, 2))'
    assert f"Rank 1 did not call {call}, which ranks 0, 2 called at step (train.py:17), <module> (train.py:19)" in said
    assert re.search(r"have awaited for [\d.]+ s", said)
    assert 'Rank 1 waits in allreduce "grad.3" (float32, shape (8, 2))' in said
    assert 'it called allreduce "grad.2" just before that: this time it left it out' in said
    assert "of 3 ranks, 3 of them recorded" in said
    assert one.output().count("`hpccoll trace explain` with this folder says who diverged") == 1


@pytest.mark.slow
def test_two_sets_in_different_orders(job):
    program = """
world = init(stall_limit=3)
sets = world.subset([0, 1]), world.subset([1, 0])
for one in sets if rank == 0 else sets[::-1]:
    one.allreduce(1.0, name=f"of {sets.index(one)}")
"""
    one = job(program, 2)
    one.wait()
    said = one.explained()
    assert 'rank 0 for rank 1 in allreduce "of 0" of process set 1' in said
    assert 'rank 1 for rank 0 in allreduce "of 1" of process set 2' in said
    assert "They make these calls in different orders" in said


def test_a_rank_that_raises(job):
    program = """
init()
def load(n):
    if rank == 1 and n == 3:
        raise ValueError("batch 3 is empty")
for n in range(9):
    load(n)
    hpccoll.allreduce(1.0, name="loss")
"""
    one = job(program, 2)
    one.wait()
    said = one.explained()
    assert "Rank 1 ended by an exception: ValueError: batch 3 is empty at load (" in said
    assert 'Rank 1 did not call allreduce "loss"' in said
    assert 'Rank 1 had ended by then; its last call was allreduce "loss"' in said


def test_a_rank_that_computes_for_ever(job):
    """It holds Python's lock meanwhile, and the others need not break for somebody to ask."""
    program = """
init()
def simulate():
    re.match("(a+)+$", "a" * 60 + "b")
for n in range(5):
    hpccoll.allreduce(np.ones(3), name="sum")
    if rank == 1 and n == 2:
        here("computes")
        simulate()
"""
    one = job(program, 3)
    one.pid("computes")
    time.sleep(1.5)
    said = one.attached()
    assert 'Rank 1 did not call allreduce "sum" (float64, shape (3,)), which ranks 0, 2 called and have awaited' in said
    assert 'Rank 1 is in no call of hpccoll; its last call was allreduce "sum"' in said
    assert re.search(r"it is in [^;]*\bsimulate \(", said)
    assert "World broke" not in said


@pytest.mark.parametrize("folder", ["none", "/proc/nowhere"])
def test_a_job_without_a_folder_for_traces(job, tmp_path, monkeypatch, capsys, folder):
    """They go into a folder of their own, and not into that in which the command runs."""
    program = """
init()
hpccoll.barrier()
here(f"begins{rank}")
if rank == 1:
    time.sleep(100)
hpccoll.allreduce(1.0, name="loss")
"""
    one = job(program, 2, HPCCOLL_TRACE_DIR=folder)
    one.pid("begins0")
    one.pid("begins1")
    time.sleep(2.0)
    (tmp_path / "cwd").mkdir()
    (tmp_path / "spare").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    assert main(["doctor", "--attach", str(one.shell.pid)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert 'Rank 1 did not call allreduce "loss"' in said and f"are in {tmp_path}/spare/hpccoll-trace-" in said
    assert not list((tmp_path / "cwd").iterdir())
    assert main(["trace", "collect", str(one.shell.pid)]) == 2
    assert "need a folder that all of them see" in capsys.readouterr().err


@pytest.mark.parametrize("big", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stopped_rank(job, big):
    """Nothing in it runs: its memory is read from outside. Big ones are mostly stopped in a transfer."""
    program = f"""
init()
here(f"begins{{rank}}")
while True:
    hpccoll.allreduce(np.ones({4_000_000 if big else 1}), name="x")
"""
    one = job(program, 3)
    pids = [one.pid(f"begins{rank}") for rank in range(3)]
    time.sleep(0.3)
    os.kill(pids[2], signal.SIGSTOP)
    time.sleep(1.5)
    said = one.attached()
    os.kill(pids[2], signal.SIGCONT)
    assert f"Rank 2 is stopped (process {pids[2]} on" in said
    assert f"`kill -CONT {pids[2]}` there lets it go on" in said
    assert "rank 0 (" in said and 'waits for allreduce "x"' in said


def test_shapes_that_differ(job):
    program = """
init()
hpccoll.allreduce(np.ones((3 + (rank == 2), 5), np.float32), name="w")
"""
    one = job(program, 3, **DEBUG)
    one.wait()
    said = one.explained()
    assert (
        'The ranks disagreed about "w": ranks 0, 1: allreduce (float32, shape (3, 5)) at <module> (train.py:14); '
        "rank 2: allreduce (float32, shape (4, 5)) at <module> (train.py:14)." in said
    )


@pytest.mark.slow
def test_a_receive_that_is_missing(job):
    program = """
init(stall_limit=3)
if rank == 0:
    hpccoll.send(np.ones(1_000_000), dest=1, tag=5)
else:
    hpccoll.recv(np.ones(1_000_000), source=0, tag=6)
"""
    one = job(program, 2)
    one.wait()
    said = one.explained()
    assert "Rank 0 waits for its send to rank 1 (tag 5, 7.63 MiB), since" in said
    assert "rank 1 has not posted a receive for it; its receives from rank 0 that are open have tag 6" in said
    assert "rank 0 has not sent it; its sends to rank 1 that are open have tag 5" in said


def test_a_rank_that_was_killed_has_no_recording(job):
    program = """
init()
for n in range(5):
    if (rank, n) == (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    hpccoll.allreduce(1.0, name="loss")
"""
    one = job(program, 3)
    one.wait()
    said = one.explained()
    assert "Rank 1 left no recording, ranks 0, 2 did: a rank that was killed, is stopped, is cut off" in said
    assert re.search(r"The World broke: rank 1\b[^.]* lost", said)
    assert 'Rank 1 is awaited in allreduce "loss" (float64, shape ()), which ranks 0, 2 called' in said


@pytest.mark.parametrize("halo", [False, True])
def test_a_start_of_a_plan_that_is_missing(job, halo):
    """No rank agrees on it, and the others sleep in it."""
    program = f"""
world = init()
x = np.ones((4, 4), np.float32)
plan = world.cart([3], periods=[True]).halo_exchange_init(x, width=1) if {halo} else world.allreduce_init(x)
def step(n):
    if (rank, n) != (1, 2):
        plan.start()
        plan.wait()
for n in range(3):
    step(n)
here(f"waits{{rank}}")
time.sleep(100)
"""
    one = job(program, 3)
    one.pid("waits1")
    time.sleep(2.5)
    said = one.attached()
    what = 'allgather "halo exchange with rank 1" (' if halo else 'allreduce "plan 1" (float32, shape (4, 4))'
    assert f"Ranks 0, 2 made a start of {what}" in said
    assert re.search(r"have awaited for [\d.]+ s. Rank 1 has not made it, or has done all of it. Rank 1 is in", said)
    assert "rank 0 (" in said and f"waits for a start of {what.split(' (')[0]}" in said
    assert "No rank waits for another one" not in said


def test_a_slow_rank(job):
    program = """
init()
here(f"begins{rank}")
for n in range(100_000):
    time.sleep(0.8 * (rank == 1))  # far more than a busy machine holds up the others
    hpccoll.allreduce(1.0, name="loss")
    if n == 8:
        here(f"goes on{rank}")
"""
    one = job(program, 3)
    pids = [one.pid(f"begins{rank}") for rank in range(3)]
    one.pid("goes on0")
    for pid in pids:  # as `kill -USR2` of the launcher, or scancel, does
        os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + 120
    while len(list(one.traces.glob("*.stack"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    said = one.explained()
    assert re.search(r"Rank 1 is slow: it asked for the last \d+ operations \d+\.?\d* ms after the first rank", said)
    assert "did not call" not in said


def test_clocks_that_differ_make_no_rank_slow(job):
    """The clock of rank 1's host is 0.4 s ahead: its header says so."""
    program = """
init()
for n in range(20):
    hpccoll.allreduce(1.0, name="loss")
here(f"ended{rank}")
raise ValueError
"""
    one = job(program, 3)
    one.wait()
    (file,) = one.traces.glob("*-rank-1.hctrace")
    assert "The clocks of" not in one.explained()
    at = recording.FIRST_AT + 8
    data = bytearray(file.read_bytes())
    struct.pack_into("=Q", data, at, struct.unpack_from("=Q", data, at)[0] + 400_000_000)
    file.write_bytes(data)
    said = one.explained()
    assert "The clocks of the hosts differ by " in said and "Rank 1 is slow" not in said


@pytest.mark.slow
def test_signals_while_threads_come_and_go(job):
    """A handler that read the frames of threads that run meanwhile would end the process by a segmentation fault."""
    program = """
import threading
init()
def deep(n):
    return deep(n - 1) if n else sum(range(100))
def comes_and_goes(until):
    while time.monotonic() < until:
        one = threading.Thread(target=deep, args=(40,))
        one.start()
        one.join()
def signals(until):
    while time.monotonic() < until:
        os.kill(os.getpid(), signal.SIGUSR2)
until = time.monotonic() + 2
threads = [threading.Thread(target=f, args=(until,)) for f in (comes_and_goes, comes_and_goes, signals)]
for one in threads:
    one.start()
for one in threads:
    one.join()
hpccoll.barrier()
here(f"ended{rank}")
"""
    one = job(program, 2)
    one.wait()
    assert (one.folder / "store" / "ended0").exists(), one.output()
    stacks = [stack.read_text() for stack in one.traces.glob("*.stack")]
    assert len(stacks) == 2
    assert all("most recent call first" in stack for stack in stacks)


def test_a_signal_after_the_end_of_the_interpreter_harms_nobody(job, build_c):
    """As in MPI_Finalize: Python's own handler has gone by then."""
    library = build_c("tests/tools/trace/late_signal.c", flags=("-shared",))
    program = f"""
import ctypes
ctypes.pythonapi.Py_AtExit(ctypes.CDLL({str(library)!r}).late_signal)
init()
hpccoll.barrier()
"""
    one = job(program, 2)
    one.wait()
    assert len(list(one.folder.glob("late*"))) == 2, one.output()


@pytest.mark.slow
def test_nothing_is_written_where_nothing_is_wanted(job):
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 2, HPCCOLL_TRACE_DIR="none")
    one.wait()
    assert "PeerLostError" in one.output()
    assert not one.traces.exists()


@pytest.mark.parametrize(
    "at",
    [3456, 4096 + 38, 4096 + 36, 32, 38],
    ids=["number of records", "kind of the first record", "its status", "rank", "size of the World"],
)
def test_a_damaged_file_is_left_out(job, capsys, at):
    """As after a crash of the file system."""
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 3)
    one.wait()
    (file,) = one.traces.glob("*-rank-2.hctrace")
    with file.open("r+b") as bytes_of_it:
        bytes_of_it.seek(at)
        bytes_of_it.write(b"\xff\x7f")
    cli.show(one.traces)
    said = capsys.readouterr().err
    assert said == f"hpccoll trace: {file} is damaged: no rank writes what it holds: it is left out\n"


def test_a_rank_without_space_says_so_and_leaves_no_part_of_its_file(job, capsys):
    one = job(
        "import resource, signal\ninit()\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "if rank == 2: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, -1))\n"
        "if rank == 1: os._exit(1)\nhpccoll.barrier()\n",
        3,
    )
    one.wait()
    assert f"could not be written to {one.traces}" in one.output() and "(errno 27)" in one.output()
    assert sorted(file.suffix for file in one.traces.iterdir() if "rank" in file.name) == [".hctrace", ".stack"]
    cli.show(one.traces)
    assert "Ranks 1, 2 left no recording" in capsys.readouterr().out


def test_a_file_that_cannot_be_opened_is_left_out(job, capsys):
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 3)
    one.wait()
    (file,) = one.traces.glob("*-rank-2.hctrace")
    file.unlink()
    file.mkdir()
    cli.show(one.traces)
    said = capsys.readouterr()
    assert said.err == f"hpccoll trace: [Errno 21] Is a directory: '{file}': it is left out\n"
    assert "of 3 ranks, 1 of them recorded" in said.out


def test_a_file_that_is_cut_off_is_left_out(job, capsys):
    """As on a node whose disk is full: the files of the other ranks still say what happened."""
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 3)
    one.wait()
    (file,) = one.traces.glob("*-rank-2.hctrace")
    os.truncate(file, 4100)
    cli.show(one.traces)
    said = capsys.readouterr()
    assert said.err == f"hpccoll trace: {file} is cut off after 4100 bytes: it is left out\n"
    assert "of 3 ranks, 1 of them recorded" in said.out and "rank 0" in said.out


def test_a_reader_that_leaves_is_no_error(job):
    """As `| head` does."""
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 2)
    one.wait()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hpccoll", "trace", "explain", one.traces]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (READER_LEFT, "")


def test_a_folder_that_cannot_be_written_is_named(job):
    one = job("init()\nif rank == 1: os._exit(1)\nhpccoll.barrier()\n", 2, HPCCOLL_TRACE_DIR="/proc/nowhere")
    one.wait()
    assert "the last events of this rank could not be written to /proc/nowhere/" in one.output()
    assert "PeerLostError" in one.output()


def test_a_working_folder_that_was_removed_is_named(job):
    program = """
folder = os.path.abspath(folder)
gone = os.path.join(folder, f"gone{rank}")
os.mkdir(gone)
os.chdir(gone)
os.rmdir(gone)
init()
if rank == 1: os._exit(1)
hpccoll.barrier()
"""
    one = job(program, 2, HPCCOLL_TRACE_DIR="")
    one.wait()
    assert "the last events of this rank could not be written to ./hpccoll-trace-" in one.output()
    assert "PeerLostError" in one.output()


def test_a_slurm_that_does_not_answer_is_a_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(TraceError, match="no squeue here that could ask for a Slurm job"):
            gather.attach("12_3")
    for name in ("srun", "squeue"):  # as where a node of the job is down
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gather, "SLURM_PATIENCE", 0.3)
    no_process = "no process 99999999 on this host, and srun --jobid=99999999 --overlap"
    for job, says in (("99999999", no_process), ("12_3", "squeue --noheader --format=%A")):
        with pytest.raises(TraceError, match=f"{says} gave no answer in 0.3 s: "):
            gather.attach(job)


def test_what_is_no_trace(tmp_path):
    for name in ("x.hctrace", "nothing"):
        with pytest.raises(TraceError, match=f"{name} is no folder"):
            recording.read_folder(tmp_path / name, [])
    with pytest.raises(TraceError, match="no file"):
        recording.read_folder(tmp_path, [])
    (tmp_path / "x.hctrace").write_bytes(b"hctrace\0" + bytes(5000))
    with pytest.raises(TraceError, match="format 0"):
        recording.read_folder(tmp_path, [])
    (tmp_path / "x.hctrace").write_bytes(b"something else")
    with pytest.raises(TraceError, match="not the trace of a rank"):
        recording.read_folder(tmp_path, [])


def test_a_job_that_is_no_number_is_said(capsys):
    for words, said in (
        ("x", "'x': a process number of `hpccoll run`"),
        ("99999999", "this host has no process of this number"),
    ):
        assert main(["trace", "collect", words]) == 2
        assert said in capsys.readouterr().err
