# SPDX-License-Identifier: Apache-2.0
"""Clocks of real ranks: offsets that are known, starts that are agreed, late ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import time
import hpccoll
from hpccoll.tools.bench import clocks, ranks

of = ranks.of(hpccoll.init())
ahead = 5.0 * of.rank  # both ranks read one clock of the machine, so that the offset is known
clock = clocks.Clock(of, lambda: time.perf_counter() + ahead)
assert abs(clock.offset - ahead) <= clock.error + 1e-9, (clock.offset, clock.error)
assert (clock.error > 0) == (of.rank > 0)
moments = set(of.share(clock.start()[0]))
assert len(moments) == 1
clock.ended(moments.pop(), False)

slowest = of.slowest
def interrupted(seconds):
    found = slowest(seconds)
    time.sleep(0.1 * of.rank)
    return found
of.slowest = interrupted  # rank 1 comes late: longer than any lead
lead, before = clock.lead, clock.late
moment, late = clock.start()
of.slowest = slowest
assert clock.ended(moment, late) is None and clock.late == before + 1 and clock.lead == min(2 * lead, clocks.MOST_LEAD)
assert late or of.rank == 0

clocks.MOST_LATE = 2
said = ""
try:
    for _ in range(3):
        clock.ended(0.0, of.rank == 0)
except hpccoll.HpccollError as error:
    said = str(error)
assert "too loaded for it; use --synchronise barrier" in said
facts = clock.facts()
assert facts["clock error"] < 1 and facts["clock drift"] <= 2 * facts["clock error"] + 1e-9, facts
hpccoll.shutdown()
"""


@pytest.mark.timeout(120)
def test_clocks(tmp_path: Path) -> None:
    (tmp_path / "clocks.py").write_text(PROGRAM)
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "--nodes", "2", "--timeout", "80", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-P", tmp_path / "clocks.py"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
