# SPDX-License-Identifier: Apache-2.0
"""A start with thousands of virtual ranks: what one rank receives and keeps. Bytes are judged, and no time."""

from pathlib import Path
from typing import Any

import pytest

from hpccoll.__main__ import main
from hpccoll.tools.bench import files, startup

RANKS = 3000


def steps(rank: int) -> Any:
    """Measure the rank."""
    return startup.one(rank, RANKS, traced=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rank", [0, *(pytest.param(rank, marks=pytest.mark.slow) for rank in (6, 7))])
def test_no_rank_reads_the_report_of_every_other(rank: int) -> None:
    """8 MB and 2 MB at 27,648 ranks are 300 and 75 bytes per rank; a report of each rank was 1.2 kB.

    Process sets take one exchange of 68 bytes per rank: the offer (ext/world/set_agreement.c) and its length.
    """
    found = steps(rank)
    assert found["init"]["received"] < 75 * RANKS
    assert found["init"]["peak"] < 300 * RANKS + (1 << 20)
    if rank != 7:
        assert found["subset"]["received"] <= 68 * RANKS
        assert found["split"]["received"] <= 68 * RANKS


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "start.h5"
    assert main(["bench", "startup", "--virtual", "6", "--least", "6", "--out", str(file)]) == 0
    assert "init, rank 0" in capsys.readouterr().out
    found = files.read(file)
    assert {key.what for key in found.cases} == {f"{step}, rank 0" for step in ("init", "subset", "split")}
    assert all(len(case.samples) >= 6 and case.facts["peak"] >= 0 for case in found.cases.values())
    assert main(["bench", "show", str(file)]) == 0
    assert main(["bench", "startup", "allreduce"]) == 1
    assert "it is measured alone" in capsys.readouterr().err
