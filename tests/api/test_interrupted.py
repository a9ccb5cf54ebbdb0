# SPDX-License-Identifier: Apache-2.0
"""A signal whose handler raises ends a wait; the call goes on, and the calls after it are those of the other ranks."""

from pathlib import Path

import pytest
from test_jobs import INIT, job

pytestmark = pytest.mark.timeout(180)
FRONT_END = str(Path(__file__).parents[1] / "frontend")
CALLS = (
    INIT
    + """
class Interrupted(BaseException if KIND == "base" else Exception): pass
def interrupt(*_): raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
def interrupted(call):
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        call()
    except Interrupted:
        print("interrupted", rank, flush=True)
    else:
        sys.exit("no signal has ended the call")
def check(begin):
    for i in range(begin, begin + 3):
        assert (hpccoll.allreduce(np.full(4, i + rank)) == size * i + size * (size - 1) // 2).all()
    hpccoll.barrier()
"""
)


CALLERS = {
    "user reduction": "op = hpccoll.UserReduction(np.add)\n"
    "def call(x): return hpccoll.allreduce(np.full(9, 1.0 * x), op)",
    "front end": f"sys.path.insert(0, {FRONT_END!r})\nimport numpy_front_end as front\n"
    "import hpccoll.horovod as hvd\nhvd.init()\n"
    "def call(x): return front.OPERATIONS.allreduce(np.full(9, 1.0 * x), op=hvd.Sum)",
}
KINDS = ["base", pytest.param("exception", marks=pytest.mark.slow)]


def calls(kind: str = "base") -> str:
    return CALLS.replace("KIND", repr(kind))


def succeeds(ranks: int, script: str, interrupted: int, **options: object) -> None:
    status, output = job(ranks, script, **options)
    assert status == 0, output
    assert output.count(f"interrupted {interrupted}") == 1, output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("elements", [3, pytest.param(100_000, marks=pytest.mark.slow)])
def test_calls_without_a_name_match_behind_an_interrupted_one(elements: int, kind: str) -> None:
    """The other rank makes its next call after it has the result; the interrupted one may be earlier."""
    script = calls(kind) + (
        f"x = np.full({elements}, 1.0 + rank)\n"
        "if rank == 0:\n"
        "    interrupted(lambda: hpccoll.allreduce(x))\n"
        "    meet('interrupted', 1)\n"
        "else:\n"
        "    meet('interrupted', 2)\n"
        "    assert (hpccoll.allreduce(x) == 3).all()\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


def test_handles_without_a_name_are_dropped_behind_an_interrupt() -> None:
    """The other rank has waited for all of them, so the numbers of its calls restart."""
    script = calls() + (
        "def call():\n"
        "    for handle in [hpccoll.allreduce_async(np.full(4, i + rank)) for i in range(3)]: handle.wait()\n"
        "if rank == 0:\n"
        "    interrupted(call)\n"
        "    meet('interrupted', 1)\n"
        "else:\n"
        "    meet('interrupted', 2)\n"
        "    call()\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


@pytest.mark.parametrize("call", ["gather_object('x')", "scatter_object([7] * size)"])
def test_rooted_calls_of_objects_are_interrupted(call: str) -> None:
    """They have two requests: the second one was waited for, however long, before the exception was raised."""
    script = calls() + (
        "if rank == 0:\n"
        f"    interrupted(lambda: hpccoll.{call})\n"
        "    meet('interrupted', 1)\n"
        "else:\n"
        "    meet('interrupted', 2)\n"
        f"    hpccoll.{call}\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


@pytest.mark.parametrize("kind", ["base", "exception"])
@pytest.mark.parametrize("caller", CALLERS)
def test_the_call_of_a_caller_that_waits_inside_goes_on(caller: str, kind: str) -> None:
    """It was refused a second time, which the other rank heard in its next call, and later calls were mixed up."""
    script = calls(kind) + (
        f"{CALLERS[caller]}\n"
        "if rank == 0:\n"
        "    interrupted(lambda: call(1))\n"
        "    meet('interrupted', 1)\n"
        "else:\n"
        "    meet('interrupted', 2)\n"
        "    assert call(1)[0] == 2\n"
        "for i in range(2, 5): assert call(i)[0] == 2 * i\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


def test_a_call_of_several_steps_is_told_to_the_other_rank() -> None:
    """A large array of a UserReduction needs further steps, in which the interrupted rank takes no part."""
    script = calls("exception") + (
        "op = hpccoll.UserReduction(np.add)\n"
        "def call(x): return hpccoll.allreduce(np.full(300_000, float(x)), op)\n"
        "call(0)\n"
        "if rank == 0:\n"
        "    interrupted(lambda: call(1))\n"
        "else:\n"
        "    time.sleep(1)\n"
        "    try:\n"
        "        call(1)\n"
        "    except hpccoll.MismatchError as error:\n"
        "        assert 'rank 0 has refused this call: Interrupted' in str(error)\n"
        "    else:\n"
        "        sys.exit('no error')\n"
        "for i in range(2, 5): assert (call(i) == 2 * i).all()\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


IS_STOPPED = """
def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2].startswith("T")
"""
STOPPED = (
    IS_STOPPED
    + """
for _ in range(3): hpccoll.barrier()
pids = hpccoll.allgather(np.array([os.getpid()]))
others = [int(pid) for pid in pids[size // 2:]]
CALL
if rank >= size // 2:
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    while not all(map(is_stopped, others)): time.sleep(0.01)
    meet("begin", size // 2)
if rank == LATE:
    interrupted(call)
    for pid in others: os.kill(pid, signal.SIGCONT)
else:
    assert right(call())
check(7)
assert out is None or right(out)
"""
)
REDUCING = """
x = out = np.arange(4.0) + rank
def call(): return hpccoll.allreduce(x, out=out)
def right(got): return (got == size * np.arange(4.0) + size * (size - 1) / 2).all()
"""
GATHERING = {
    "allgather": """
x = np.full(rank + 1, rank)
out = np.empty(size * (size + 1) // 2, int) if rank else None
def call(): return hpccoll.allgather(x, out=out)
def right(got): return (got == np.concatenate([np.full(r + 1, r) for r in range(size)])).all()
""",
    "alltoall": """
x, out = np.arange(3 * size) + rank, np.empty(3 * size, int) if rank else None
def call(): return hpccoll.alltoall(x, [3] * size, out=out)[0]
def right(got): return (got == np.concatenate([np.arange(3) + 3 * rank + r for r in range(size)])).all()
""",
    "scan": """
x, out = np.ones(3), np.empty(3)
def call(): return hpccoll.scan(x, out=out)
def right(got): return (got == rank + 1).all()
""",
}


COUNTED = {
    "allreduce": REDUCING.replace("arange(4.0)", "arange(50_000.0)"),
    "allgather": GATHERING["allgather"]
    .replace("rank + 1, rank", "20_000 + rank, rank")
    .replace("size * (size + 1) // 2", "20_000 * size + size * (size - 1) // 2")
    .replace("r + 1, r", "20_000 + r, r"),
}
"""Too large for a vote: the ranks count the requests."""


def stopped(late: int, call: str, kind: str = "base") -> str:
    return calls(kind) + STOPPED.replace("LATE", str(late)).replace("CALL", call)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ranks", "late"), [(2, 0), pytest.param(4, 0, marks=pytest.mark.slow), (4, 1)])
def test_a_vote_of_nodes_is_interrupted(ranks: int, late: int, kind: str) -> None:
    """The other node is stopped before it votes, so the wait would end only with the limit of stalls."""
    succeeds(ranks, stopped(late, REDUCING, kind), interrupted=late, nodes="2", stall_limit=20)


@pytest.mark.parametrize("operation", GATHERING)
@pytest.mark.parametrize(("ranks", "late"), [(2, 0), (4, 1)])
def test_a_vote_that_gathers_is_interrupted(ranks: int, late: int, operation: str) -> None:
    """The result is written into `out`, if there is one, when the votes are complete."""
    succeeds(ranks, stopped(late, GATHERING[operation]), interrupted=late, nodes="2", stall_limit=20)


@pytest.mark.parametrize("operation", COUNTED)
@pytest.mark.parametrize(("ranks", "late"), [(2, 0), pytest.param(4, 1, marks=pytest.mark.slow)])
def test_a_count_of_nodes_is_interrupted(ranks: int, late: int, operation: str) -> None:
    succeeds(ranks, stopped(late, COUNTED[operation]), interrupted=late, nodes="2", stall_limit=20)


def test_the_end_of_a_world_is_interrupted() -> None:
    """The first rank of a World ends its log, so the other one waits for it."""
    script = calls() + (
        f"{IS_STOPPED}"
        "world = hpccoll.World(verbose=0)\n"
        "pids = world.allgather(np.array([os.getpid()]))\n"
        "if rank == 0:\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "else:\n"
        "    while not is_stopped(int(pids[0])): time.sleep(0.01)\n"
        "    interrupted(lambda: world.shutdown(wait=False))\n"
        "    os.kill(int(pids[0]), signal.SIGCONT)\n"
        "world.shutdown(wait=False)\n"
        "check(3)\n"
    )
    succeeds(2, script, interrupted=1, stop_timeout=20)


@pytest.mark.parametrize("call", ["hpccoll.barrier()", "hpccoll.barrier(name='b')", "plan()"])
def test_an_interrupt_goes_before_the_error_of_a_rank_that_it_has_ended(call: str) -> None:
    """Ctrl-C reaches all ranks of a job: the others end because of it before this one has seen it."""
    script = INIT + (
        "pids = hpccoll.allgather(np.array([os.getpid()]))\n"
        "plan = hpccoll.barrier_init()\n"
        "if rank == 0:\n"
        "    meet('waits', 0)\n"
        f"    {call}\n"
        "meet('waits', 1)\n"
        "time.sleep(0.2)\n"  # rank 0 is in its call, with luck: otherwise nothing is tested
        "os.kill(int(pids[0]), signal.SIGINT)\n"
        "raise KeyboardInterrupt\n"
    )
    status, output = job(2, script, stall_limit=20)
    assert status != 0, output
    assert "lost sys.stderr" not in output and "ShutDownError" not in output, output


AGREEMENTS = {
    "split": ("hpccoll.world().split(0)", "got.size == 2"),
    "subset": ("hpccoll.world().subset([1, 0])", "got.rank == 1 - rank"),
    "cart": ("hpccoll.world().cart([2])", "got.dims == (2,)"),
    "halo": ("cart.halo_exchange_init(np.zeros(9))", "got"),
    "plan": ("hpccoll.allreduce_init(np.ones(100_000))", "got"),
    "group": ("hpccoll.allreduce_init([np.ones(9), np.ones(9, int)])", "got"),
    "shared": ("hpccoll.world().shared_array(9)", "got.shape == (9,)"),
}
SLOW = [
    pytest.param(agreement, kind, marks=pytest.mark.slow)
    for agreement in AGREEMENTS
    for kind in ("base", "exception")
    if kind == "exception" or agreement in ("subset", "cart", "halo", "group")
]


@pytest.mark.parametrize(("agreement", "kind"), [("split", "base"), ("plan", "base"), ("shared", "base"), *SLOW])
def test_an_agreement_takes_its_further_steps(agreement: str, kind: str) -> None:
    """The other rank comes a moment later, and waited in the second step for the interrupted one."""
    call, right = AGREEMENTS[agreement]
    script = calls(kind) + (
        "cart = hpccoll.world().cart([2])\n"
        "if rank == 0:\n"
        f"    interrupted(lambda: {call})\n"
        "else:\n"
        "    time.sleep(0.9)\n"
        f"    got = {call}\n"
        f"    assert {right}\n"
        "check(5)\n"
        f"got = {call}\n"
        f"assert {right}\n"
        "check(8)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20)


def test_an_agreement_to_which_others_do_not_come_is_interrupted() -> None:
    script = calls() + (
        "if rank == 0:\n"
        "    interrupted(lambda: hpccoll.world().split(0))\n"
        "    meet('interrupted', 1)\n"
        "else:\n"
        "    meet('interrupted', 2)\n"
        "    try:\n"
        "        hpccoll.world().split(0)\n"
        "    except hpccoll.StartError as error:\n"
        "        assert 'not all ranks came' in str(error) and 'rank 0' in str(error), error\n"
        "    else:\n"
        "        sys.exit('no error')\n"
        "check(5)\n"
    )
    succeeds(2, script, interrupted=0, stall_limit=20, start_timeout=5, stall_warning=1)
