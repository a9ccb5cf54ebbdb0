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


@pytest.mark.slow
@pytest.mark.parametrize("pause", ["sleep", "mpi"])
@pytest.mark.parametrize("knobs", [{}, {"background": 0}, {"single_copy": 0}, {"net": "ucx"}], ids=str)
@pytest.mark.parametrize("level", ["multiple", "serialized", "funneled"])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, "1"), (2, "2"), (3, "2"), (4, "1"), (4, "2")])
def test_every_form_and_size(
    tmp_path: Path, ranks: int, nodes: str, level: str, knobs: dict[str, object], pause: str
) -> None:
    run(tmp_path, ranks, nodes, "--all", "--thread-level", level, "--pause", pause, limit=580, **knobs)
