# SPDX-License-Identifier: Apache-2.0
"""What one process replaces is the old or the new file, whatever happens at whichever system call; and a study or bench
that was killed there is run again with nothing lost and nothing twice. files_struck.py makes the rows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py")
HERE = Path(__file__).parent
SUBJECTS = {
    "Commit": 5, "Text": 5, "Jobs": 5, "Recorded": 3, "Results": 17, "LocalStudy": 67, "SubmittedStudy": 37,
    "LaunchesOfBench": 41,
}  # fmt: skip
"""What is struck, and of how many blows CI takes one."""


def rows(build_c, subject, stride):
    blow = build_c("tests/durable/blow.c", flags=("-shared", "-ldl"), name="blow.so")
    command = [sys.executable, "-P", str(HERE / "files_struck.py"), subject, str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LD_PRELOAD": str(blow)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    wrong = [row for row in found if row["wrong"]]
    assert not wrong, f"{len(wrong)} of {len(found)} rows: {wrong[:5]}\n{done.stdout[-2000:]}"
    return found


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("subject", "stride"),
    [
        pytest.param(*row, marks=pytest.mark.slow if row[0] in ("SubmittedStudy", "LaunchesOfBench") else ())
        for row in SUBJECTS.items()
    ],
)
def test_some_blows(build_c, subject, stride):
    assert len(rows(build_c, subject, stride)) >= 3


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_blows(build_c, subject):
    print(f"{subject}: {len(rows(build_c, subject, 1))} rows, no failure")
