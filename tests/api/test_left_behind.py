# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind: once a call has returned, its rank may go away, and no other rank waits for it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)
PROGRAM = Path(__file__).parent / "left_behind.py"


def run(folder: Path, ranks: int, nodes: str, *options: str, limit: int = 90, **knobs: object) -> str:
    """The program under the launcher: what it prints."""
    board = folder / "board"
    board.write_bytes(bytes(8 * ranks))
    command = [sys.executable, "-m", "hpccoll", "run", "--timeout", str(limit), "-np", str(ranks), "--nodes", nodes]
    for name, value in knobs.items():
        command += ["-x", f"HPCCOLL_{name.upper()}={value}"]
    done = subprocess.run(
        [*command, sys.executable, "-P", str(PROGRAM), str(board), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" 0 left behind") == ranks, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("ranks", "nodes", "options"),
    [
        pytest.param(2, "1", [], marks=pytest.mark.slow),
        (3, "2", []),
        pytest.param(3, "2", ["--thread-level", "funneled", "--pause", "mpi"], marks=pytest.mark.slow),
    ],
    ids=["a node", "two nodes", "two nodes, one thread"],
)
def test_the_others_do_not_wait_for_a_rank_whose_call_has_returned(
    tmp_path: Path, ranks: int, nodes: str, options: list[str]
) -> None:
    run(tmp_path, ranks, nodes, *options)


REFUSED = """
import time, mpi4py
mpi4py.rc.thread_level = "funneled"
import hpccoll, numpy as np
from mpi4py import MPI

hpccoll.init()
comm, rank = MPI.COMM_WORLD, hpccoll.rank()
for odd, seconds in ((1, 0), (2, 0), (2, 0.01), (1, 0.01), *[(2, 0)] * 8):
    for i in range(5):
        assert hpccoll.allreduce(np.full(3, i)).tolist() == [3 * i] * 3
    comm.Barrier()
    x = np.ones(3) if rank != odd else np.array(["no number"])
    for _ in range(3):
        time.sleep(seconds if rank == odd else 0)
        try:
            hpccoll.allreduce(x)
            raise SystemExit("no error")
        except (TypeError, hpccoll.HpccollError):
            pass
        if seconds:  # else its messages follow each other, and the last ones wait for the first
            comm.Barrier()
    comm.Barrier()
"""


def test_a_refusal_reaches_nodes_that_have_voted() -> None:
    """The rank that refuses a call is then in the program's own MPI, where nothing drives it; rank 0 is needed."""
    command = [sys.executable, "-m", "hpccoll", "run", "--timeout", "60", "-np", "3", "--nodes", "2"]
    subprocess.run([*command, sys.executable, "-c", REFUSED], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("pause", ["sleep", "mpi"])
@pytest.mark.parametrize("knobs", [{}, {"background": 0}, {"single_copy": 0}, {"net": "ucx"}], ids=str)
@pytest.mark.parametrize("level", ["multiple", "serialized", "funneled"])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, "1"), (2, "2"), (3, "2"), (4, "1"), (4, "2")])
def test_every_form_and_size(
    tmp_path: Path, ranks: int, nodes: str, level: str, knobs: dict[str, object], pause: str
) -> None:
    run(tmp_path, ranks, nodes, "--all", "--thread-level", level, "--pause", pause, limit=580, **knobs)
