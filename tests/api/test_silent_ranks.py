# SPDX-License-Identifier: Apache-2.0
"""A stopped rank is named by the first report of every rank that waits, whatever it is and whatever is under way."""

import re
import time

import pytest
from test_jobs import INIT, job

pytestmark = pytest.mark.timeout(240)
WARNING, STOPPED = 2, 5
"""Seconds: until a wait reports itself, and for which a rank is stopped. An idle rank shows a sign of life four times a
second."""
ROLES = {"root": 0, "leaf beside the root": 1, "leader": 2, "leaf": 3}
"""On two nodes of two ranks."""
WORDS = {
    "agreement": r"allreduce 'agreement'.* has waited ",
    "transfer": r"allreduce 'transfer'.* (has waited|has been moving for) ",
    "receive": r"a receive of 80 bytes from rank VICTIM \(host \S+, pid \d+\) \(any tag\) has waited ",
    "send": r"a send of 80000000 bytes to rank VICTIM \(host \S+, pid \d+\) \(tag 0\) has waited ",
    "join": r"join has waited ",
    "vote": r"allreduce ('unnamed call 0'|without a name).* has waited ",
}
PHASES = """
import subprocess, threading
victim, pid = VICTIM, os.getpid()
def stop(after=0.0):
    # Another process lets it go on again.
    subprocess.Popen(["sh", "-c", f"sleep {after + STOPPED}; kill -CONT {pid}"])
    time.sleep(after)
    os.kill(pid, signal.SIGSTOP)
def agreement():
    if rank == victim: stop()
    hpccoll.allreduce(np.ones(10), name="agreement")
def transfer():
    if rank == victim: threading.Thread(target=stop, args=(0.2,)).start()
    x = np.ones(10_000_000)
    for _ in range(30):
        hpccoll.allreduce(x, name="transfer", out=x, op=hpccoll.MAX)
def receive():
    # Two ranks know nothing of it: they sleep.
    if rank == victim:
        stop()
        hpccoll.send(np.ones(10), (victim + 1) % size)
    elif rank == (victim + 1) % size:
        hpccoll.recv(np.ones(10), victim)
def send():
    if rank == victim:
        stop()
        hpccoll.recv(np.ones(10_000_000), (victim + 3) % size)
    elif rank == (victim + 3) % size:
        hpccoll.send(np.ones(10_000_000), victim)
def join():
    if rank == victim: stop()
    hpccoll.join()
def vote():
    if rank == victim: stop()
    hpccoll.allreduce(np.ones(10))
for phase in (agreement, transfer, receive, send, join, vote):
    hpccoll.barrier()
    meet(phase.__name__, size)
    phase()
    meet(phase.__name__ + " end", size)
print("through", rank, flush=True)
""".replace("STOPPED", str(STOPPED))


def rank_at(rank: int) -> str:
    return rf"rank {rank} \(host \S+, pid \d+\)"


def first_reports(output: str, words: str) -> dict[int, str]:
    """The first report of each rank about what `words` match."""
    found: dict[int, str] = {}
    for line in output.splitlines():
        report = re.search(r"hpccoll: rank (\d+): (.*)", line)
        if report and re.match(words, report[2]):
            found.setdefault(int(report[1]), report[2])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("victim", ROLES.values(), ids=ROLES)
def test_a_stopped_rank_is_named_by_all_that_wait(victim: int) -> None:
    """And when it runs again nothing has happened: the job goes on to its end."""
    status, output = job(4, INIT + PHASES.replace("VICTIM", str(victim)), nodes="2", stall_warning=WARNING)
    assert status == 0, output
    assert output.count("through") == 4, output
    waiting = {
        "agreement": {0, 1, 2, 3} - {victim},
        "transfer": {0, 1, 2, 3} - {victim},
        "receive": {(victim + 1) % 4},
        "send": {(victim + 3) % 4},
        "join": {0, 1, 2, 3} - {victim},
        "vote": {0, 1, 2, 3} - {victim},
    }
    for phase, ranks in waiting.items():
        reports = first_reports(output, WORDS[phase].replace("VICTIM", str(victim)))
        assert set(reports) >= ranks, f"{phase}: {reports}\n{output}"
        for rank in ranks:
            sign = rf"; {rank_at(victim)} has (been stopped \(state T\)|given no sign of life) for \d+ s"
            assert re.search(sign, reports[rank]), f"{phase}: rank {rank}: {reports[rank]}\n{output}"


STOP_ROOT = """
if rank == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
start = time.monotonic()
try:
    hpccoll.allreduce(np.ones(10), name="gradient")
except hpccoll.RecoverableError as error:
    print(f"end {rank}: {type(error).__name__}: {error}", flush=True)
meet("end", 2)
os._exit(1)
"""


@pytest.mark.parametrize(
    ("knobs", "error"),
    [
        ({"stall_limit": 4}, r"StallError: allreduce 'gradient' has waited [\d.]+ s, beyond the stall limit; STOPPED"),
        (
            {"peer_timeout": 3},
            r"PeerLostError: rank 0 \(.*\) was lost: it has been stopped \(state T\) for \d+ s",
        ),
    ],
    ids=["stall limit", "peer timeout"],
)
def test_a_stopped_root_is_in_the_reports_and_in_the_error(knobs: dict[str, int], error: str) -> None:
    status, output = job(3, INIT + STOP_ROOT, stall_warning=1, **knobs)
    stopped = r"rank 0 \(host \S+, pid \d+\) has been stopped \(state T\) for \d+ s"
    assert status != 0
    reports = first_reports(output, "allreduce 'gradient' has waited ")
    for rank in (1, 2):
        assert re.search(stopped, reports[rank]), output
        assert re.search(f"end {rank}: {error.replace('STOPPED', stopped)}", output), output


UNTIL_STOPPED = """
for _ in range(3): hpccoll.barrier()
meet("begin", 2)
def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2].startswith("T")
[other] = {int(name.split()[1]) for name in os.listdir(os.environ["MEET_IN"])} - {os.getpid()}
while rank == 1 and not is_stopped(other): time.sleep(0.01)
"""
"""A rank that is not stopped yet would vote NO, and the call would go on with an agreement."""


@pytest.mark.parametrize(
    ("knobs", "error"),
    [
        ({"stall_limit": 4}, r"StallError: allreduce without a name awaits RANK, and has waited \S+ s; RANK SILENT"),
        ({"peer_timeout": 3}, r"PeerLostError: RANK was lost: no sign of life for \d+ s"),
    ],
    ids=["stall limit", "peer timeout"],
)
def test_a_stopped_node_is_in_the_report_and_the_error_of_a_vote(knobs: dict[str, int], error: str) -> None:
    """The other node has voted on the call, and nobody answers its question."""
    stop = STOP_ROOT.replace(', name="gradient"', "").replace('meet("end", 2)', 'meet("end", 1)')
    status, output = job(2, INIT + UNTIL_STOPPED + stop, nodes="2", stall_warning=WARNING, **knobs)
    silent = r"has given no sign of life for \d+ s"
    assert status != 0
    reports = first_reports(output, "allreduce without a name awaits ")
    assert re.search(f"; {rank_at(0)} {silent}", reports[1]), output
    assert re.search(f"end 1: {error.replace('RANK', rank_at(0)).replace('SILENT', silent)}", output), output


@pytest.mark.slow
def test_a_rank_that_computes_is_not_silent() -> None:
    """It computes in Python without letting go of the lock; its background thread needs no lock."""
    compute = "end = time.monotonic() + 4\nwhile time.monotonic() < end: sum(range(10**6))\n"
    script = INIT + f"hpccoll.barrier()\nif rank == 0: exec({compute!r})\nhpccoll.allreduce(np.ones(1), name='x')"
    begun = time.monotonic()
    status, output = job(2, script, stall_warning=1)
    assert status == 0, output
    assert time.monotonic() - begun > 4
    assert re.search(rf"allreduce 'x' has waited .*: {rank_at(0)} has not asked for it", output), output
    assert "stopped" not in output, output


def test_a_rank_without_a_background_thread_is_said_to_compute() -> None:
    script = INIT + "hpccoll.barrier()\nif rank == 0: time.sleep(4)\nhpccoll.allreduce(np.ones(1), name='x')"
    status, output = job(2, script, stall_warning=1, background=0)
    assert status == 0, output
    who = r"rank 1: allreduce 'x' has waited .*; rank 0 \(host \S+, pid \d+\) has not called into hpccoll for \d+ s"
    assert re.search(who, output), output


def test_a_rank_beside_its_leader_waits_for_the_other_nodes() -> None:
    """Its leader waits as well, so the report must not name it as the one that is awaited."""
    script = INIT + "for _ in range(5): hpccoll.barrier()\nif rank == 2: time.sleep(4)\nhpccoll.allreduce(np.ones(1))"
    status, output = job(3, script, nodes="2", stall_warning=1, background=0)
    assert status == 0, output
    who = rf"rank 1: allreduce .* has waited .*; {rank_at(2)} has not called into hpccoll for \d+ s"
    assert re.search(who, output), output
    assert not re.search(r"awaits rank [01]\b", output), output
