# SPDX-License-Identifier: Apache-2.0
"""A rank is lost, or fails, at each step of making process sets: the others learn which rank, and why."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_jobs import INIT, LAUNCH, launch, slow

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("leaves_nothing_in_shm")]
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
AFTER_AN_EXCHANGE = f"""
from hpccoll import objects
exchange = objects.exchange
def exchange_and_end(*arguments, **more):
    exchange(*arguments, **more)
    {KILL}
objects.exchange = exchange_and_end
"""
BEFORE_THE_SET = f"""
from hpccoll import set_agreement
reach = set_agreement.Agreement.reach
def reach_and_end(*arguments):
    reach(*arguments)
    {KILL}
set_agreement.Agreement.reach = reach_and_end
"""
STEPS = {
    "before its message": KILL,
    "after an exchange": AFTER_AN_EXCHANGE,
    "before the set": BEFORE_THE_SET,
    "while it maps": "os.environ['STRIKE'] = 'kill'",
}
"""By step at which rank 1 is killed, what it does before it makes the set."""
CALLS = ["split(0)", *slow("subset([2, 1, 0])", "cart([3]).world")]
"""Each makes a set of all three ranks."""


def failing(step: str, call: str) -> str:
    """Return a program in which rank 1 fails at this step, and all ranks use the set until they have an error.

    They write it to a file: mpirun may lose what a rank has printed when another one aborts the job.
    """
    return INIT + (
        "world = hpccoll.world()\n"
        "world.allreduce(np.ones(10))\n"
        f"if rank == 1: exec({step!r})\n"
        "try:\n"
        f"    made = world.{call}\n"
        "    made.allreduce(np.ones(10), name='x')\n"
        "except hpccoll.HpccollError as error:\n"
        "    with open(os.path.join(os.environ['MEET_IN'], f'said {rank}'), 'w') as said:\n"
        "        print(f'on {rank}: {type(error).__name__}: {error}', file=said)\n"
    )


@pytest.fixture
def outcome(build_c) -> Callable[..., str]:
    """`outcome(program, nodes)`: run it on 3 ranks that mpirun leaves alone, return their errors and all output."""
    mapping = build_c("tests/api/mapping.c", flags=("-shared", "-ldl"), name="mapping.so")

    def run(program: str, nodes: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            variables = ["-x", f"MEET_IN={folder}", "-x", f"LD_PRELOAD={mapping}"]
            status, output = launch([*LAUNCH, "-np", "3", *variables], program, nodes, "--enable-recovery", {})
            said = [file.read_text() for file in Path(folder).glob("said *")]
        assert status != 0
        return "".join([*said, output])

    return run


@pytest.mark.parametrize("nodes", ["", "2+1"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_rank_is_named(outcome, step, call, nodes):
    program = failing(STEPS[step], call) + "meet('survivors', 2)\nif rank: stay()\n"
    output = outcome(program, nodes)
    for rank in (0, 2):
        assert re.search(rf"on {rank}: PeerLostError: rank 1 \(host \S+, pid \d+\) was lost", output), output


@pytest.mark.parametrize("nodes", ["", "2+1"])
@pytest.mark.parametrize("call", CALLS)
def test_a_rank_that_cannot_map_its_part_tells_the_others(outcome, call, nodes):
    output = outcome(failing("os.environ['STRIKE'] = 'fail'", call) + "meet('all', 3)\nos._exit(3)\n", nodes)
    why = r"the process set could not be made: cannot map shared memory of process set 1: Cannot allocate memory"
    assert f"on 1: OutOfMemoryError: {why}" in output, output
    # A rank that has its set before it hears of the failure finds a broken World at the next call.
    first = "(OutOfMemoryError|BrokenWorldError: the World is broken by an earlier failure)"
    those = rf"rank 1 \(host \S+, pid \d+\) could not make a process set that other ranks have: {why}"
    for rank in (0, 2):
        assert re.search(rf"on {rank}: {first}: {those}", output), output
