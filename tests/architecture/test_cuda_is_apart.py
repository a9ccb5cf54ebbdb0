# SPDX-License-Identifier: Apache-2.0
"""CUDA is an extension of its own: neither the core extension nor a job of host arrays knows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys
import numpy as np
import hpccoll
world = hpccoll.init()
assert hpccoll.allreduce(np.ones(1000)).sum() == 1000 * world.size
hpccoll.send_async(np.ones(3), world.rank)
hpccoll.recv(np.ones(3), world.rank)
hpccoll.shutdown()
assert 'hpccoll._cuda' not in sys.modules
print("fine")
"""


@pytest.mark.timeout(100)
def test_a_job_of_host_arrays_does_not_load_it() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", JOB], capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_the_core_extension_and_the_loop_do_not_include_it() -> None:
    core = (ROOT / "ext" / "cython" / "_core.pyx").read_text()
    parts = [ROOT / "ext" / "cython" / name for name in re.findall(r'include "(\w+\.pxi)"', core)]
    assert parts
    for file in (ROOT / "ext" / "cython" / "hc.pxd", *parts, *(ROOT / "ext" / "loop").glob("*.[ch]")):
        assert not re.search(r"cimport cuda|from cuda |cuda/", file.read_text()), file


def test_the_core_extension_imports_nothing_that_imports_it() -> None:
    """Modules above it register with it instead."""
    core = (ROOT / "ext" / "cython" / "_core.pyx").read_text()
    (names,) = re.findall(r"^from hpccoll import (.*)$", core, re.MULTILINE)
    for name in names.split(", "):
        assert "import _core" not in (ROOT / "hpccoll" / f"{name}.py").read_text(), name
