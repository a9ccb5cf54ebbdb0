# SPDX-License-Identifier: Apache-2.0
"""Signal handlers are chained and restored; a second SIGTERM ends the rank. Then the questions to the scheduler."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import hpccoll
from hpccoll import testing
from hpccoll.scheduler import end_of_job, requeue, seconds_left

USR1, USR2, TERM = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM


@pytest.fixture
def world():
    """A World of this thread alone: handlers need the main thread."""
    with hpccoll.World(verbose=0) as alone:
        yield alone


def stops(p, world):
    world.barrier()
    return p.should_stop()


def test_a_signal_stops_and_the_handlers_are_back(world):
    before = {number: signal.getsignal(number) for number in (USR1, TERM)}
    with hpccoll.preemption(world=world) as p:
        assert not stops(p, world)
        signal.raise_signal(USR1)
        assert p.should_stop()  # a rank alone agrees with itself, whether or not it makes operations
        assert p.reason == "SIGUSR1"
    assert {number: signal.getsignal(number) for number in before} == before


def test_what_was_installed_before_is_called_and_restored(world):
    called = []
    before = signal.signal(USR2, lambda number, frame: called.append(number))
    mine = signal.getsignal(USR2)
    try:
        with hpccoll.preemption([USR2], world=world), hpccoll.preemption([USR2], world=world) as inner:
            signal.raise_signal(USR2)
            assert called == [USR2]
            assert inner.reason == "SIGUSR2"
        assert signal.getsignal(USR2) is mine
        with pytest.raises(KeyError), hpccoll.preemption([USR2], world=world):
            raise KeyError
        assert signal.getsignal(USR2) is mine
    finally:
        signal.signal(USR2, before)


def test_the_first_ctrl_c_asks_and_the_second_interrupts(world):
    """Python's own handler raised KeyboardInterrupt at the first one, so that SIGINT could ask for nothing."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with hpccoll.preemption([signal.SIGINT], world=world) as p:
            signal.raise_signal(signal.SIGINT)
            assert stops(p, world) and p.reason == "SIGINT"
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_came_later_stays(world):
    before, later = signal.getsignal(USR2), lambda number, frame: None
    try:
        with hpccoll.preemption([USR2], world=world):
            signal.signal(USR2, later)
        assert signal.getsignal(USR2) is later
    finally:
        signal.signal(USR2, before)


def test_the_default_signals_know_lsf(world, monkeypatch):
    taken = lambda: {n for n in (USR1, USR2, TERM) if getattr(signal.getsignal(n), "__self__", None)}  # noqa: E731
    with hpccoll.preemption(world=world):
        assert taken() == {USR1, TERM}
    monkeypatch.setenv("LSB_JOBID", "7")
    with hpccoll.preemption(world=world):
        assert taken() == {USR1, USR2, TERM}


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"signals": ["SIGUSR1"]}, r"signals is \['SIGUSR1'\]: give signals"),
        ({"signals": 10}, "signals is 10: give signals"),
        ({"signals": [9999]}, "signals is"),
        ({"end": "2030-01-01"}, "end is '2030-01-01': give a number of seconds"),
        ({"end": float("nan")}, "end is nan"),
        ({"margin": "5"}, "margin is '5'"),
        ({"margin": float("nan"), "end": 1e12}, "margin is nan"),
        ({"margin": -5, "end": 1e12}, "margin is -5"),
        ({"margin": float("inf"), "end": float("inf")}, "margin is inf"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(world, knobs, said):
    """Before, a block with an end that is no number never stopped."""
    with pytest.raises(hpccoll.InvalidArgumentError, match=f"^preemption: {said}"):
        hpccoll.preemption(**knobs, world=world)


def test_a_signal_that_no_program_can_handle_leaves_the_handlers(world):
    before = signal.getsignal(USR1)
    with (
        pytest.raises(hpccoll.InvalidArgumentError, match="no program can handle SIGKILL: Invalid argument"),
        hpccoll.preemption([USR1, signal.SIGKILL], world=world),
    ):
        pass
    assert signal.getsignal(USR1) == before


def test_another_thread_is_told_what_to_do():
    def program(world):
        with (
            pytest.raises(hpccoll.InvalidArgumentError, match=r"main thread only.*signals=\(\)"),
            hpccoll.preemption(world=world),
        ):
            pass
        with hpccoll.preemption((), world=world) as p:
            p.ask()
            return stops(p, world)

    assert testing.make_and_run(2, program) == [True, True]


def test_no_world_is_said():
    with pytest.raises(hpccoll.ShutDownError, match=r"hpccoll\.init\(\)"):
        hpccoll.preemption()


def test_a_signal_wakes_a_rank_that_waits():
    """The main thread sits in a barrier that the other rank reaches only after the signal was seen."""
    worlds, seen = testing.threads(2), threading.Event()

    def other():
        time.sleep(0.1)
        os.kill(os.getpid(), USR1)
        assert seen.wait(30)
        worlds[1].barrier()
        stopped.append(hpccoll.preemption((), world=worlds[1]).should_stop())

    stopped: list[bool] = []
    thread = threading.Thread(target=other)
    with hpccoll.preemption(world=worlds[0]) as p:
        ask, p.ask = p.ask, lambda reason: (ask(reason), seen.set())
        thread.start()
        worlds[0].barrier()
        assert p.should_stop()
    thread.join()
    assert stopped == [True]
    testing.run(worlds, hpccoll.World.shutdown)


ALONE = "import hpccoll, os, signal, sys\nworld = hpccoll.init(verbose=0)\n"


def python(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", ALONE + script], env={**os.environ, **environment}, text=True, timeout=110,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def test_a_second_term_ends_at_once():
    script = (
        "import atexit\n"
        "atexit.register(print, 'in order')\n"
        "with hpccoll.preemption() as p:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    hpccoll.barrier()\n"
        "    print(p.should_stop(), p.reason, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('never')\n"
    )
    done = python(script)
    assert (done.returncode, done.stdout) == (-TERM, "True SIGTERM\n")


def test_a_handler_of_c_is_back_after_the_block():
    script = (
        "import faulthandler\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "with hpccoll.preemption() as p:\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    hpccoll.barrier()\n"
        "    print(p.should_stop(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    done = python(script)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("True\n")
    assert done.stdout.count('File "<string>"') == 1


# ---- the end of the job's time, and back to the queue ----------------------------------------------


def test_the_end_of_the_jobs_time(world, monkeypatch):
    now = time.time()
    for late, knobs, env in [
        (True, {"end": now + 50, "margin": 100}, {}),
        (True, {"end": datetime.datetime.fromtimestamp(now + 50), "margin": 100}, {}),
        (False, {"end": now + 20}, {}),  # a margin of 60 s would be all of it
        (False, {"end": now + 50, "margin": 1}, {}),
        (False, {}, {}),
        (True, {"margin": 100}, {"SLURM_JOB_END_TIME": f"{now + 50:.0f}"}),
        (True, {}, {"SLURM_JOB_END_TIME": f"{now - 1:.0f}"}),
        (False, {}, {"SLURM_JOB_END_TIME": f"{now + 5000:.0f}"}),
        (False, {"margin": 1}, {"SLURM_JOB_END_TIME": f"{now + 50:.0f}"}),
    ]:
        own = world.subset([0])
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            with hpccoll.preemption((), world=own, **knobs) as p:
                assert [p.should_stop(), stops(p, own)] == [late, late], (knobs, env)
        own.shutdown()


def test_the_end_time_is_a_knob():
    with hpccoll.World(verbose=0, end_time=time.time() + 20, preempt_margin=19) as own:
        with hpccoll.preemption((), world=own) as p:
            assert not stops(p, own)
        with hpccoll.preemption((), margin=30, world=own) as p:
            assert p.should_stop()


def test_an_end_time_that_is_none_is_refused():
    assert end_of_job({}, ask=True) == (float("inf"), "")
    with pytest.raises(hpccoll.InvalidArgumentError, match="SLURM_JOB_END_TIME='soon'"):
        end_of_job({"SLURM_JOB_END_TIME": "soon"}, ask=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-03:04:05", 183845), ("3:04:05", 11045), ("4:05", 245), ("0:00", 0), ("UNLIMITED", float("inf")),
        ("INVALID", None), ("NOT_SET", None), ("", None), ("-1:00", None),
    ],
)  # fmt: skip
def test_what_squeue_says_is_left(text, seconds):
    assert seconds_left(text) == seconds


def test_an_end_that_cannot_be_learned_is_said(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with hpccoll.World() as own, hpccoll.preemption((), world=own) as p:
        assert not stops(p, own)
    assert "the end of the job's time is unknown (`squeue" in capfd.readouterr().err


def stand_in(monkeypatch, folder, **commands):
    """Shell scripts stand for the scheduler's commands, alone on PATH with the system's programs."""
    for name, script in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_requeue_without_a_scheduler(monkeypatch, capfd):
    for name in ("SLURM_JOB_ID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            return p.requeue()

    answers = testing.make_and_run(3, program)
    assert answers == [answers[0]] * 3
    assert not answers[0]
    assert "no scheduler" in answers[0].text
    assert capfd.readouterr().err.count("hpccoll: requeue: ") == 1


@pytest.mark.parametrize(
    ("jobs", "asked", "text"),
    [
        (["12=12=RUNNING"], "requeue 12", "succeeded (requeue 12): the job ends now and will run again"),
        (["13=12_2=RUNNING", "12=12_1=SUSPENDED"], "requeue 12_1", "`scontrol requeue 12_1` succeeded"),
        (["12=12=COMPLETING"], "", "Slurm has ended job 12 already"),
        (["13=12_2=RUNNING", "12=12_1=CANCELLED"], "", "`scontrol requeue 12_1` runs it again all the same"),
        ([], "", "Slurm has ended job 12 already"),
    ],
)
def test_a_job_that_slurm_has_not_ended_is_requeued(monkeypatch, tmp_path, jobs, asked, text):
    """Each answer of squeue leads to the right result; tests/slurm/test_requeue.py shows it with a real Slurm."""
    says = "".join(f"echo {job}; " for job in jobs)
    stand_in(monkeypatch, tmp_path, squeue=says, scontrol=f"echo $* | tee {tmp_path}/asked")
    answer = requeue({"SLURM_JOB_ID": "12"})
    assert bool(answer) is bool(asked)
    assert text in answer.text
    assert (tmp_path / "asked").exists() is bool(asked)
    assert not asked or (tmp_path / "asked").read_text() == f"{asked}\n"


def test_a_slurm_that_does_not_answer_is_said(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, squeue="echo no contact >&2; exit 1", scontrol="echo never")
    answer = requeue({"SLURM_JOB_ID": "12"})
    assert not answer
    assert "failed with status 1: no contact" in answer.text


def test_an_answer_that_is_no_text_or_no_program_is_said(monkeypatch, tmp_path):
    """A scheduler may speak another language in another encoding; requeue() raises nothing."""
    stand_in(monkeypatch, tmp_path, squeue=r"printf '\273\372' >&2; exit 1")
    assert "failed with status 1: \N{REPLACEMENT CHARACTER}" in requeue({"SLURM_JOB_ID": "12"}).text
    (tmp_path / "squeue").write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "cannot be run: Exec format error" in requeue({"SLURM_JOB_ID": "12"}).text


@pytest.mark.parametrize(
    ("element", "job"), [({}, "34"), ({"LSB_JOBINDEX": "0"}, "34"), ({"LSB_JOBINDEX": "5"}, "34[5]")]
)
def test_an_element_of_an_lsf_array_is_requeued_alone(monkeypatch, tmp_path, element, job):
    stand_in(monkeypatch, tmp_path, brequeue="echo asked for $*")
    assert f"(asked for {job})" in requeue({"LSB_JOBID": "34"} | element).text


@pytest.mark.parametrize(
    ("script", "done", "text"),
    [
        ('echo "Job <34> is being requeued"', True, "`brequeue 34` succeeded (Job <34> is being requeued)"),
        ("echo not rerunnable >&2; exit 255", False, "`brequeue 34` failed with status 255: not rerunnable"),
        (None, False, "brequeue is not on this node's PATH"),
    ],
)
def test_requeue_says_what_came_of_it(world, monkeypatch, tmp_path, script, done, text):
    """LSF cannot run here, so a shell script stands for its command."""
    stand_in(monkeypatch, tmp_path, **{"brequeue": script} if script else {})
    monkeypatch.setenv("LSB_JOBID", "34")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with hpccoll.preemption((), world=world) as p:
        answer = p.requeue()
    assert bool(answer) is done
    assert text in answer.text


@pytest.mark.parametrize(
    ("reasons", "done"),
    [
        (["SIGTERM", "", ""], False),
        (["", "SIGTERM", "SIGTERM"], False),
        (["SIGTERM", "SIGUSR2", ""], True),
        (["", "", "the program"], True),
    ],
)
def test_a_job_that_lsf_kills_stays_so(monkeypatch, tmp_path, reasons, done):
    """bkill sends SIGINT, SIGTERM and SIGKILL (IBM); brequeue would bring the job back, as tests/lsf shows."""
    stand_in(monkeypatch, tmp_path, brequeue="echo asked")
    monkeypatch.setenv("LSB_JOBID", "34")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            if reason := reasons[world.rank]:
                p.ask(reason)
            return p.requeue()

    answers = testing.make_and_run(3, program)
    assert [bool(answer) for answer in answers] == [done] * 3
    assert ("stays so" in answers[0].text) == (not done)
