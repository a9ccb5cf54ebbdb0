# SPDX-License-Identifier: Apache-2.0
"""Whole jobs: a Horovod script with one import changed; and what `import hpccoll` leaves alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("horovod_mnist.py")


@pytest.mark.slow
def test_a_horovod_script_with_one_import_changed(tmp_path):
    text = SCRIPT.read_text()
    script = tmp_path / "mnist.py"
    script.write_text(text.replace("import horovod.torch as hvd", "import hpccoll.torch as hvd"))
    assert script.read_text() != text
    run = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "2", "python", script, "--fp16-allreduce"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, last = (float(found) for found in re.findall(r"Accuracy: ([\d.]+)%", done.stdout))
    assert last > first
    assert last > 50


def test_hpccoll_alone_does_not_touch_torch():
    program = "import sys, hpccoll, hpccoll.horovod, hpccoll.frontend.parameters; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
