# SPDX-License-Identifier: Apache-2.0
"""One set of reductions for all front ends: each under all its names, against NumPy; what else is given is refused."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hpccoll import _core
from hpccoll.reductions import Reduction

HERE = Path(__file__).parent
MISSING = [name for name in ("torch", "tensorflow", "jax", "keras") if find_spec(name) is None]


def test_the_numbers_are_those_of_the_core() -> None:
    assert {name: code for code, name in enumerate(_core.REDUCTIONS)} == {op.name: op.value for op in Reduction}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
def test_every_reduction_in_every_front_end() -> None:
    job = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", "250", "-np", "2", sys.executable, "-P"]
    done = subprocess.run(
        [*job, str(HERE / "table_of_reductions.py")],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert len(re.findall(r": \d+ results\n", done.stdout)) == 2 * 5  # TensorFlow speaks of results, too
