# SPDX-License-Identifier: Apache-2.0
"""Each row of the table of planted faults, as a real job: it ends in time, with its words, with its exit status."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_jobs import run
from table_of_faults import FAULTS, Fault

pytestmark = pytest.mark.timeout(300)
ERRORS = Path(__file__).parents[2] / "docs" / "errors.md"
ROWS = [pytest.param(f, id=f.name, marks=() if f.quick else pytest.mark.slow) for f in FAULTS]


@pytest.mark.parametrize("fault", ROWS)
def test_a_planted_fault(fault: Fault, tmp_path: Path, needs: Callable[..., None]) -> None:
    if fault.small_shm:
        needs("root")
    outcome = run(fault, tmp_path)
    told = outcome.told()
    assert set(outcome.ended) == set(fault.survivors()), f"a survivor did not end\n{told}"
    for rank in fault.survivors():
        assert re.search(fault.sentence(), outcome.said[rank]), f"rank {rank} did not say it\n{told}"
        assert outcome.spoke(rank) - outcome.struck < fault.bound, f"rank {rank} was late\n{told}"
        assert outcome.statuses.get(rank, fault.status) == fault.status, told
    if fault.by == "store" and fault.own is not None:
        assert outcome.statuses[fault.victim] == fault.own, told
    if fault.by != "store":
        assert outcome.status is not None, told
        if fault.by != "mpirun" or fault.who == "launcher":  # mpirun --enable-recovery may end with 0 after an abort
            assert outcome.status != 0, told


def test_the_page_errors_has_what_ranks_say() -> None:
    """A sentence that a row of the table demands is in the failure table of docs/errors.md."""
    said = ERRORS.read_text()
    absent = {f.says for f in FAULTS if not re.search(f.says.replace("VICTIM", r"rank \d+"), said)}
    assert not absent
