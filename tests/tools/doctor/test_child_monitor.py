# SPDX-License-Identifier: Apache-2.0
"""A monitored child: its stages, its report, where it hangs, how it ends."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpccoll.tools.doctor import child_monitor

Run = Callable[..., child_monitor.Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Monitor a program that has `stages`."""

    def start(program: str, patience: float = 20.0) -> child_monitor.Outcome:
        head = "import os, subprocess, sys, time\nfrom hpccoll.tools.doctor.stages import Stages\nstages = Stages()\n"
        (tmp_path / "monitored.py").write_text(head + textwrap.dedent(program))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return child_monitor.run("monitored", {"number": 3}, patience, lambda stage, seconds: None)

    return start


def test_a_report(run: Run) -> None:
    outcome = run("stages.begin('one'); stages.report({'twice': 2 * stages.given['number']}); stages.begin('two')")
    assert (outcome.report, outcome.stage, outcome.status) == ({"twice": 6}, "two", 0)


def test_a_hang_is_ended_and_its_place_is_known(run: Run) -> None:
    outcome = run("stages.begin('waiting')\ndef never_returns(): time.sleep(1000)\nnever_returns()", patience=1.0)
    assert (outcome.status, outcome.stage) == (None, "waiting")
    assert outcome.seconds > 1.0
    assert any("never_returns" in frame for frame in outcome.stack), outcome.stack


def test_a_child_that_says_that_it_failed_lives_until_then(run: Run) -> None:
    outcome = run("stages.begin('starting'); stages.fail('error code: 17')")
    assert (outcome.status, outcome.stage, outcome.error, outcome.stack) == (None, "starting", "error code: 17", [])


def test_a_hang_is_stopped_while_its_monitor_lives_and_dies_with_it(tmp_path: Path) -> None:
    """A launcher that serves PMIx would end the job, and the report with it, at the death of a client."""
    (tmp_path / "hanging.py").write_text(
        "import os, time\nfrom hpccoll.tools.doctor.stages import Stages\nstages = Stages()\n"
        "stages.begin(f'waiting as {os.getpid()}')\ntime.sleep(1000)\n"
    )
    program = (
        "from hpccoll.tools.doctor import child_monitor\n"
        "outcome = child_monitor.run('hanging', {}, 1.0, lambda stage, seconds: None)\n"
        "print(outcome.stage.split()[-1], flush=True)\n"
        "input()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for ends in (lambda monitor: monitor.communicate("\n"), lambda monitor: monitor.kill()):
        monitor = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with monitor:
            assert monitor.stdout
            child = monitor.stdout.readline().strip()
            wait_for(child, "T")  # stopped
            ends(monitor)
        wait_for(child, "Z", "")


def wait_for(process: str, *states: str) -> None:
    """Wait until the process has one of these states: a signal arrives when the kernel delivers it."""
    until = time.monotonic() + 30
    while (state := state_of(process)) not in states:
        assert time.monotonic() < until, state
        time.sleep(0.05)


def state_of(process: str) -> str:
    """Return a process's state, as "T"; "" where it has ended, which may be at any moment."""
    try:
        return Path("/proc", process, "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize(("how", "status"), [("sys.exit(5)", 5), ("os.kill(os.getpid(), 11)", -11)])
def test_an_end_without_a_report(run: Run, how: str, status: int) -> None:
    outcome = run(f"stages.begin('ending')\n{how}")
    assert (outcome.report, outcome.stage, outcome.status) == (None, "ending", status)


def test_processes_that_a_child_leaves_behind_do_not_hold_the_monitor_up(run: Run) -> None:
    """A daemon that inherited the pipe lives on; the child's end is seen all the same."""
    outcome = run("""
        stages.begin('leaving')
        os.set_inheritable(stages.pipe, True)
        subprocess.Popen(['sleep', '40'], close_fds=False)
        sys.exit(4)
    """)
    assert outcome.status == 4


def test_a_library_without_names_leaves_its_entry() -> None:
    """What gdb 13 prints of a stripped MPICH."""
    backtrace = """
#0  0x00007fb63210c017 in __GI_sched_yield () at ../sysdeps/unix/syscall-template.S:120
#1  0x00007fb630f1bf95 in ?? () from target:/venv/lib/libmpi.so.12
#2  0x00007fb630f1c1fa in ?? () from target:/venv/lib/libmpi.so.12
#3  0x00007fb630d068d0 in PMPI_Init_thread () from target:/venv/lib/libmpi.so.12
#4  0x00007fb6307cd7e4 in __pyx_f_6mpi4py_3MPI_bootstrap () from target:/venv/lib/MPI.so
#5  PyImport_Import () at import.c:1
"""
    assert child_monitor.library_functions(backtrace) == ["sched_yield", "PMPI_Init_thread"]
