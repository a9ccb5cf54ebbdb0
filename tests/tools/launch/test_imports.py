# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run` and `hpccoll submit` start without what only ranks need: NumPy, the core, the other commands."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from hpccoll.__main__ import main
assert main({words}) == 0
print(sorted(name for name in sys.modules if name in ("numpy", "mpi4py", "hpccoll._core", "hpccoll.tools.bench")))
"""


@pytest.mark.parametrize(
    "words", [["run", "-np", "2", "--show", "true"], ["run", "-np", "1", "--timeout", "60", "true"], ["lint", "--help"]]
)
def test_a_launcher_does_not_import_what_ranks_need(words):
    program = PROGRAM.format(words=words)
    if words[-1] == "--help":
        program = program.replace("assert main", "import contextlib\nwith contextlib.suppress(SystemExit): main")
        program = program.replace(" == 0\nprint", "\nprint")
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
