# SPDX-License-Identifier: Apache-2.0
"""Arbitrary bytes as control messages (libFuzzer): a short run; soak.py runs ten million."""

import shutil
import subprocess
from pathlib import Path

import pytest

from programs import ROOT, fuzzer, seeds


@pytest.mark.skipif(not shutil.which("clang"), reason="libFuzzer needs clang")
def test_wire_decoder(tmp_path: Path) -> None:
    subprocess.run([seeds(), tmp_path], check=True, timeout=60, cwd=ROOT)
    command = [fuzzer(), tmp_path, "-runs=20000", "-seed=1", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stderr.splitlines()[-1])
