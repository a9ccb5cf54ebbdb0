# SPDX-License-Identifier: Apache-2.0
"""No test hides: run_all.py names what failed and what did not run, whatever a test does to the run."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import run_all
import run_limits
import run_records

TESTS = Path(__file__).parent
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
pytest_plugins = ["run_limits", "run_records"]
"""


def part(folder: Path, tests: str, *options: str, conftest: str = "") -> run_all.Part:
    """A part whose tests are these."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST + conftest)
    (folder / "test_it.py").write_text(f"import os, signal, time\nimport pytest\n{tests}")
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "--rootdir", str(folder), *options, str(folder)]
    return run_all.Part("a part", command, folder / "records")


def outcomes(part: run_all.Part) -> dict[str, str]:
    return {name.split("::")[1]: outcome for name, outcome in part.record().outcomes.items()}


KILLS = {
    "its own process": "os.kill(os.getpid(), signal.SIGKILL)",
    "the process that hands out the tests": "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)",
}


@pytest.mark.parametrize(
    ("victim", "workers"), [("its own process", "0"), ("the process that hands out the tests", "2")]
)
def test_a_part_that_a_test_ended_goes_on_without_it(tmp_path: Path, victim: str, workers: str) -> None:
    killed = part(
        tmp_path,
        "def test_a(): pass\n"
        f"def test_b(): {KILLS[victim]}\n"
        "@pytest.mark.parametrize('i', range(3))\n"
        "def test_c(i): pass\n"
        "@pytest.mark.skip\n"
        "def test_d(): pass\n",
        "-n", workers, "--dist", "loadfile",
    )  # fmt: skip
    killed.run()
    assert [name.split("::")[1] for name in killed.record().failed()] == ["test_b"]
    assert killed.record().counts() == Counter(failed=1, passed=4, skipped=1)
    assert len(killed.runs) == 2
    assert not killed.succeeded()


def test_a_run_in_which_nothing_happens_any_more_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_all, "IDLE", 6.0)  # in which pytest begins its first test also on a busy machine
    between_tests = """
import pytest, time
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if item.name == "test_b" and not RECORDS.endswith("0002"):
        time.sleep(60)
"""
    stuck = part(
        tmp_path, "def test_a(): pass\ndef test_b(): pass\n",
        conftest=f"import os\nRECORDS = os.environ['{run_records.FOLDER}']\n{between_tests}",
    )  # fmt: skip
    stuck.run()
    assert outcomes(stuck) == {"test_a": "passed", "test_b": "passed"}
    assert stuck.statuses == [-signal.SIGKILL, 0]
    assert not stuck.succeeded()


def test_a_file_that_cannot_be_read_has_failed(tmp_path: Path) -> None:
    broken = part(tmp_path, "def test_a(): pass\n", "--continue-on-collection-errors")
    (tmp_path / "test_other.py").write_text("import no_such_module\n")
    broken.run()
    assert broken.record().counts() == Counter(failed=1, passed=1)
    assert broken.record().failed() == ["test_other.py"]


def test_a_failure_has_a_name_when_it_happens(tmp_path: Path) -> None:
    failing = part(tmp_path, "def test_a(): assert 0\ndef test_b(): time.sleep(60)\n")
    with subprocess.Popen(failing.command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        lines = iter(run.stdout.readline, "")
        assert any("FAILED" in line and "test_a (call)" in line for line in lines)
        run.kill()


def test_a_run_that_is_ended_says_what_did_not_run(tmp_path: Path) -> None:
    part(tmp_path, "def test_a(): pass\ndef test_b(): print('here', flush=True); time.sleep(60)\ndef test_c(): pass\n")
    program = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import run_all; "
    program += (
        f"run_all.commands = lambda *_: {{'a part': [sys.executable, '-m', 'pytest', '-s', {str(tmp_path)!r}]}}; "
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", f"{program} run_all.main()"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as run:
        assert run.stdout
        assert any("here" in line for line in iter(run.stdout.readline, ""))
        run.send_signal(signal.SIGTERM)
        rest = run.stdout.read()
    assert run.returncode == 1
    assert "3 collected: 1 failed, 1 passed, 1 not run" in rest
    assert "NOT RUN test_it.py::test_c [a part]" in rest
    assert "FAILED test_it.py::test_b [a part]" in rest
    assert rest.rstrip().splitlines()[-1].startswith("===== 2 failed, 1 passed in ")


def two_parts(folder: Path, alone: str, single: str) -> list[run_all.Part]:
    """The parts that run side by side."""
    made = []
    for name, tests in ((run_all.ALONE, alone), (run_all.SINGLE, single)):
        (folder / name).mkdir()
        made.append(part(folder / name, tests))
        made[-1].name = name
    return made


def test_a_single_rank_runs_beside_the_tests_without_a_launcher(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Each part waits for the other; the one beside prints when it has ended."""
    until = "while not os.path.exists({!r}): time.sleep(0.05)"
    here, there = (str(tmp_path / name) for name in ("here", "there"))
    meets = [f"def test_{i}():\n    open({mine!r}, 'w')\n    {until.format(other)}\n    assert {i}"
             for i, (mine, other) in enumerate(((here, there), (there, here)))]  # fmt: skip
    parts = two_parts(tmp_path, *meets)
    run_all.run(parts)
    assert [part.succeeded() for part in parts] == [False, True]
    said = capfd.readouterr().out
    assert said.index("FAILED test_it.py::test_0 (call)") < said.index(f"##### {run_all.SINGLE}")


def test_what_runs_beside_a_part_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    parts = two_parts(tmp_path, "def test_a(): pass", f"def test_b(): open({str(begun)!r}, 'w'); time.sleep(600)")

    def ended() -> None:
        while not begun.exists():
            time.sleep(0.05)
        raise SystemExit("ended by SIGTERM")

    monkeypatch.setattr(parts[0], "run", ended)
    with pytest.raises(SystemExit):
        run_all.run(parts)
    assert parts[1].statuses == [-signal.SIGKILL] and len(parts[1].runs) == 1


def test_a_limit_stops_a_test_and_not_pytest(tmp_path: Path) -> None:
    slow_report = """
import time, pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    time.sleep(0.7)
    return (yield)
"""
    limited = part(
        tmp_path,
        "@pytest.mark.timeout(0.5)\ndef test_a(): pass\n@pytest.mark.timeout(0.5)\ndef test_b(): time.sleep(60)\n",
        conftest=slow_report,
    )
    limited.run()
    assert outcomes(limited) == {"test_a": "passed", "test_b": "failed"}
    assert len(limited.runs) == 1


def test_limits_grow_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    for processes, limit in ((0.0, 100.0), (cores, 100.0), (4.0 * cores, 400.0), (100.0 * cores, run_limits.LONGEST)):
        monkeypatch.setattr(os, "getloadavg", lambda load=processes: (load, load, load))
        assert run_limits.grown(100.0) == limit
    assert run_limits.grown(1000.0) == 1000.0


def test_a_limit_of_a_process_grows_until_the_machine_has_done_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_limits, "AGAINST_HANGS", 0.1)
    monkeypatch.setattr(run_limits, "grown", lambda seconds: 100 * seconds)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", "import time; time.sleep(1); print(1)"], timeout=0.2, capture_output=True
    )
    assert done.stdout == b"1\n"
    monkeypatch.setattr(run_limits, "grown", lambda seconds: seconds)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    assert time.monotonic() - began < 60
