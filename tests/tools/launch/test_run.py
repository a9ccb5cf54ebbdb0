# SPDX-License-Identifier: Apache-2.0
"""Real jobs through `hpccoll run`, on whatever MPI this environment has."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpccoll.tools.launch.cli import report
from hpccoll.tools.launch.processes import Ending

pytestmark = pytest.mark.timeout(240)
RANKS = "from mpi4py import MPI; import os, sys, time, signal; world = MPI.COMM_WORLD\n"


def start(*arguments: str, program: str = "", **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "hpccoll", "run", *arguments]
    command += ["python", "-c", RANKS + program] if program else []
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)  # type: ignore[call-overload, no-any-return]


def run(*arguments: str, program: str = "") -> tuple[int, str]:
    job = start(*arguments, program=program)
    output, _ = job.communicate(timeout=110)
    return job.returncode, output


def alive(pid: int) -> bool:
    try:  # it may end at any moment
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ranks_see_their_job() -> None:
    program = "print('<%d %s %s>' % (world.size, os.environ['HPCCOLL_NODES'], os.environ['COLOUR']), flush=True)"
    status, output = run("-np", "3", "--nodes", "2+1", "-x", "COLOUR=dark blue", program=program)
    assert status == 0, output
    assert output.count("<3 2+1 dark blue>") == 3


def test_ranks_share_a_secret_that_no_argument_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "parent = open('/proc/%d/cmdline' % os.getppid()).read(); word = os.environ['HPCCOLL_SECRET']\n"
    program += "print('<%s %s>' % (word, word in parent), flush=True)"
    monkeypatch.setenv("HPCCOLL_SECRET", "of another job")
    said = [run("-np", "2", program=program) for _ in range(2)]
    assert [status for status, _ in said] == [0, 0], said
    words = [re.findall(r"<([0-9a-f]{64}) False>", output) for _, output in said]
    assert [len(two) for two in words] == [2, 2], said
    assert [len(set(two)) for two in words] == [1, 1]
    assert words[0][0] != words[1][0]
    _, shown = run("--show", "-np", "2", "-H", "h1:2", "python", "x.py")
    assert "mpirun" in shown and "HPCCOLL_SECRET" not in shown


def test_a_job_of_more_ranks_than_the_users_limit_of_files() -> None:
    """Such a job is one of 300 ranks for the usual limit, 1024; mpirun failed, or hung."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))}
    job = start("-np", "50", "--timeout", "60", "sleep", "2", **few)  # mpirun may miss the end of ranks that end sooner
    output, _ = job.communicate(timeout=110)
    assert (job.returncode, output) == (0, "")


def test_both_outputs_of_each_rank_go_to_files(tmp_path: Path) -> None:
    program = "print('<out %d>' % world.rank); print('<err %d>' % world.rank, file=sys.stderr)"
    status, output = run("-np", "2", "--output", str(tmp_path / "logs"), program=program)
    assert status == 0, output
    written = "".join(file.read_text() for file in (tmp_path / "logs").rglob("*") if file.is_file())
    for line in ("<out 0>", "<err 0>", "<out 1>", "<err 1>"):
        assert written.count(line) == 1, written


def test_exit_status_is_that_of_the_rank_that_failed() -> None:
    status, output = run("-np", "2", program="status = 3 * world.rank; MPI.Finalize(); sys.exit(status)")
    assert status == 3
    assert "hpccoll run: the job ended with status 3" in output


def test_a_killed_rank_ends_the_job() -> None:
    program = "world.rank == 1 and os.kill(os.getpid(), signal.SIGKILL)\nworld.rank == 0 and time.sleep(600)"
    status, output = run("-np", "2", program=program)
    assert status != 0, output


STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print(f"<{os.getpid()}>", flush=True)
time.sleep(600)
"""


def pids(output: str) -> list[int]:
    return [int(word.split(">")[0]) for word in output.split("<")[1:] if word.split(">")[0].isdigit()]


def test_a_job_that_left_ranks_behind_has_failed(capfd: pytest.CaptureFixture[str]) -> None:
    """mpirun of Open MPI 5 says 0 when it has lost a node; tests/slurm has the real case."""
    assert report(Ending(status=0, timed_out=False, left_behind=2), None, {}) == 1
    assert "killed 2 processes" in (printed := capfd.readouterr().err) and "still running" in printed
    assert report(Ending(status=0, timed_out=False, left_behind=0), None, {}) == 0


def test_a_process_that_a_rank_leaves_behind_is_no_rank() -> None:
    """Such as the service of a logger, in a session of its own: all ranks have shut down, and ended."""
    program = """
import subprocess, hpccoll
hpccoll.init()
subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
hpccoll.shutdown()
"""
    status, output = run("-np", "2", program=program)
    assert status == 0 and "killed 2 processes" in output, output
    assert report(Ending(status=0, timed_out=False, left_behind=2), None, {}, all_well=True) == 0


@pytest.mark.parametrize("launcher", [(), ("--launcher", "ssh")])
def test_what_a_rank_starts_and_leaves_is_no_zombie_for_long(launcher: tuple[str, ...]) -> None:
    """A process that has ended counts for the limits of its user until somebody waits for it."""
    program = "for i in 1 2 3 4 5; do sh -c 'sleep 0 & echo $!'; done; sleep 2; echo; ps -o pid= -e"
    words = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "1", *launcher, "sh", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    started, there = (set(part.split()) for part in done.stdout.split("\n\n"))
    assert len(started) == 5 and not started & there, done


@pytest.mark.parametrize("launcher", [(), ("--launcher", "ssh"), ("--min-np", "2")])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_ranks_have_standard_files_where_the_launcher_has_none(launcher: tuple[str, ...], closed: str) -> None:
    """A program may count on the three: the next files that it opens would have their numbers."""
    program = "import os; [os.fstat(number) for number in range(3)]; os.write(1, b'1'); os.write(2, b'2')"
    words = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", *launcher, sys.executable, "-c", program]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, timeout=100)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize("launcher", [(), ("--launcher", "ssh"), ("--min-np", "2")])
def test_a_folder_that_is_gone(launcher: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", *launcher, "true"]
    done = subprocess.run(["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *words], cwd=folder, capture_output=True)
    assert (done.returncode, done.stderr) == (
        2,
        b"hpccoll run: the current folder is not there: No such file or directory\n",
    )


def test_timeout_leaves_nothing_behind() -> None:
    """Ranks that ignore SIGTERM, and children of theirs in sessions of their own; once they were all there in time."""
    for seconds in (3, 12, 60):
        status, output = run("-np", "2", "--timeout", str(seconds), program=STUBBORN)
        assert status == 124, output
        assert f"the job had not ended after {seconds} s (--timeout) and was ended" in output
        assert not [pid for pid in pids(output) if alive(pid)]
        if len(pids(output)) == 4:
            return
    pytest.fail(output)


def test_interrupt_reaches_the_job() -> None:
    job = start("-np", "2", program="print('up', flush=True); time.sleep(600)")
    assert job.stdout is not None
    while "up" not in job.stdout.readline():
        pass
    job.send_signal(signal.SIGINT)
    output, _ = job.communicate(timeout=100)
    assert job.returncode == -signal.SIGINT, output  # so that a shell ends its script, too
    assert "Traceback" not in output


def test_killed_launcher_takes_the_job_with_it() -> None:
    job = start("-np", "2", program="print(f'<{os.getpid()}>', flush=True); time.sleep(600)")
    assert job.stdout is not None
    ranks: list[int] = []
    while len(ranks) < 2:
        ranks += pids(job.stdout.readline())
    job.kill()
    job.communicate(timeout=100)
    deadline = time.monotonic() + 60
    while any(map(alive, ranks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in ranks if alive(pid)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which program?"),
        (("python", "x.py"), "how many ranks?"),
        (
            ("-np", "2", "--nodes", "3", "python"),
            "--nodes 3: 1 to 2, or numbers of ranks like 3+1 whose sum is 2",
        ),
        (("-np", "2", "--nodes", "2+1", "python"), "--nodes 2+1: 1 to 2"),
        (("-np", "2", "--nodes", "two", "python"), "--nodes two: 1 to 2"),
        (("-H", "h1:1,h2:1", "--nodes", "2", "python"), "on one machine"),
        (("-np", "2", "--timeout", "0", "python"), "--timeout 0: more than 0 seconds"),
        (("-np", "2", "--timeout", "nan", "true"), "--timeout nan: more than 0 seconds"),
        (("--min-np", "2", "--timeout", "-1", "true"), "--timeout -1: more than 0 seconds"),
        (("-np", "2", ""), "which program?"),
        (("-np", "2", "-H", "", "true"), "--hosts: its value is empty"),
        (("-np", "2", "--output", "/proc/no-folder", "true"), "--output /proc/no-folder: No such file or directory"),
        (("-np", "2", "--output", __file__, "true"), "test_run.py: File exists"),
        (("-np", "2", "--launcher-options", "'-v", "true"), "--launcher-options '-v: No closing quotation"),
        (("--min-np", "2", "--launcher-options='-v", "true"), "--launcher-options '-v: No closing quotation"),
        (("-np", "2", "-x", "=1", "true"), "-x '=1': give -x NAME or -x NAME=VALUE"),
        (("-np", "2", "--min-np", "0", "true"), "--min-np 0: 1 or more"),
        (("-np", "2", "--max-np", "0", "true"), "--max-np 0: 1 or more"),
        (("--min-np", "2", "--elastic-timeout", "nan", "true"), "--elastic-timeout nan: 0 or more"),
        (("--min-np", "2", "--reset-limit", "-1", "true"), "--reset-limit -1: 0 or more"),
        (("--min-np", "2", "--blacklist-cooldown-range", "5", "1", "true"), "the shorter one first"),
        (("-np", "2", "--min-np", "1", "--show", "true"), "--show: an elastic job is not one command"),
        (("--min-np", "1", "-x", "HPCCOLL_PEER_TIMEOUT=long", "true"), "HPCCOLL_PEER_TIMEOUT='long' is not 0 to 86400"),
        (("--min-np", "1", "-x", "HPCCOLL_PEER_TIMEOUT=-1", "true"), "is -1.0, not 0 to 86400"),
        (("--min-np", "1", "-x", "HPCCOLL_START_TIMEOUT=0", "true"), "is 0.0, not 0.1 to 86400"),
        (("-np", "2", "-bind-to", "none", "python"), "-bind-to: each rank is bound to its share of the cores"),
        (("-np", "2", "--bind-to=none", "python"), "as --launcher-options='--bind-to ...'"),
        (("-np", "2", "-x", "NO_SUCH_NAME", "python"), "NO_SUCH_NAME is not set here"),
        (
            ("-np", "2", "--launcher", "no-such-mpirun", "python"),
            "no no-such-mpirun: load your system's MPI module",
        ),
        (("-np", "2", "--launcher", "true", "python"), "is no launcher of Open MPI, MPICH or Intel MPI"),
    ],
)
def test_misuse_is_explained(arguments: tuple[str, ...], says: str) -> None:
    status, output = run(*arguments)
    assert status == 2
    assert says in output


PROGRAMS_OWN = (
    "--h --no --np 3 --output x --show --timeout=2 -np 5 -H h7 --version -h -m -mc -p -b -mca --bind-to=core --"
)


def test_options_behind_the_program_are_its_own() -> None:
    """Also those that begin like an option of `hpccoll run`, or like several of them."""
    status, output = run("-np", "2", "--show", "python", "x.py", *PROGRAMS_OWN.split())
    assert (status, output.splitlines()[-1].endswith(f" python x.py {PROGRAMS_OWN}")) == (0, True), output
    status, output = run("-np", "2", "--sho", "python", "x.py")
    assert (status, "unrecognized arguments: --sho" in output) == (2, True), output


def test_options_of_elastic_jobs_have_no_silent_effect() -> None:
    options = ("--reset-limit", "1", "--elastic-timeout", "5")
    status, output = run("-np", "2", "--show", *options, "python")
    assert status == 0
    assert "--elastic-timeout, --reset-limit: without effect, as the job is not elastic" in output


def test_show_prints_the_command_and_runs_nothing() -> None:
    status, output = run("-np", "2", "--show", "touch", "never made")
    assert status == 0
    assert output.endswith("touch 'never made'\n")
    assert not os.path.exists("never made")
