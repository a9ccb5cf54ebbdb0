# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run` and `hpccoll lint` start without what only ranks need: NumPy, mpi4py, the core."""

import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, sys
from hpccoll.__main__ import main
with contextlib.suppress(SystemExit):
    assert main(sys.argv[1:]) == 0
print(sorted({"numpy", "mpi4py", "hpccoll._core"} & {*sys.modules}))
"""


@pytest.mark.parametrize("words", ["run -np 2 --show true", "run -np 1 --timeout 60 true", "lint --help"])
def test_a_launcher_does_not_import_what_ranks_need(words):
    command = [sys.executable, "-P", "-c", PROGRAM, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
