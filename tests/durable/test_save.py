# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is the old or the new one, whatever happens at whichever system call of `hpccoll.io.save`.

blows.py makes each row in processes, blow.c strikes. `make test-all` runs the whole table, CI a part of it:

    ranks  nodes  target    calls    EIO  SIGTERM  SIGKILL   rows  failures
        1      1  existing     42     42       42       84    168         0
        2      1  existing     54     54      108      216    378         0
        2      2  existing     60     60      120      240    420         0
        3      1  existing     66     66      198      396    660         0
        3      2  existing     72     72      216      432    720         0
        1      1  new          40     40       40       80    160         0
        2      1  new          52     52      104      208    364         0
        2      2  new          58     58      116      232    406         0
        3      1  new          64     64      192      384    640         0

The table is from before the files had checksums. With them, five rows were repeated in full, without a failure:

        1      1  existing     49     49       49       98    196         0
        2      1  existing     65     65      130      260    455         0
        2      2  existing     68     68      136      272    476         0
        1      1  new          47     47       47       94    188         0
        2      1  new          63     63      126      252    441         0

Before this order of steps, 61 of 273 rows of two ranks on two nodes lost the checkpoint, or ended a rank by SIGSEGV.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("h5py")
HERE = Path(__file__).parent
FAIL = 1
LAYOUTS = [(1, "1"), (2, "1"), (2, "2"), (3, "1"), (3, "2+1")]


@pytest.fixture(scope="module")
def blow(build_c):
    return build_c("tests/durable/blow.c", flags=("-shared", "-ldl"), name="blow.so")


def table(blow, *words):
    """The rows that blows.py makes."""
    path = os.pathsep.join([str(HERE.parent / "api"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", str(HERE / "blows.py"), *map(str, words)]
    environment = os.environ | {"LD_PRELOAD": str(blow), "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    first, *rows = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    wrong = [row for row in rows if row["wrong"]]
    assert not wrong, f"{len(wrong)} of {len(rows)} rows: {wrong[:5]}\n{done.stderr[-4000:]}"
    return first["counts"], rows


@pytest.mark.timeout(100)
@pytest.mark.parametrize(("layout", "target", "stride"), [((3, "2+1"), "existing", 61), ((2, "1"), "new", 61)])
def test_some_blows(blow, layout, target, stride):
    """Some rows of every kind: the strides have no factor in common with the rows of a call."""
    ranks, nodes = layout
    _, rows = table(blow, "--ranks", ranks, "--nodes", nodes, "--target", target, "--stride", stride)
    assert len(rows) > 5 and {outcome for row in rows for outcome in row["said"]} >= {"refused", "lost others"}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("target", ["existing", "new"])
@pytest.mark.parametrize(("ranks", "nodes"), LAYOUTS)
def test_all_blows(blow, ranks, nodes, target):
    counts, rows = table(blow, "--ranks", ranks, "--nodes", nodes, "--target", target)
    assert len(rows) == sum(counts) * (1 + 3 * ranks)
    kinds = Counter("EIO" if row["row"][2] == FAIL else signal.Signals(row["row"][3]).name for row in rows)
    print(f"{ranks} ranks, {nodes} nodes, {target} target: {sum(counts)} calls, {dict(kinds)}, no failure")
