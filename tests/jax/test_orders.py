# SPDX-License-Identifier: Apache-2.0
"""Random programs with the same operations in other orders on each rank: nothing hangs, also when a rank is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "orders.py"
pytestmark = pytest.mark.slow


def job(*words: object, ranks: int, launcher: tuple[str, ...] = ()) -> str:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", ranks, "--timeout", 550, *launcher]
    done = subprocess.run(
        [str(word) for word in (*command, sys.executable, "-P", PROGRAM, *words)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=590,
    )  # fmt: skip
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [2, 4])
def test_random_programs_end(ranks: int) -> None:
    """60 of each number of ranks here. 1,000 in a few minutes: hpccoll run -np 2 python tests/jax/orders.py 0 1000."""
    printed = job(0, 60, ranks=ranks)
    assert printed.count("all ended") == ranks, printed


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ranks", "victim"), [(2, 1), (4, 2), (4, 0)])
def test_a_killed_rank_is_named_by_all_others(ranks: int, victim: int) -> None:
    printed = job(0, 100_000, victim, ranks=ranks, launcher=("--launcher-options=--enable-recovery",))
    assert printed.count("saw it") == ranks - 1, printed
