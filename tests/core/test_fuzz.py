# SPDX-License-Identifier: Apache-2.0
"""Arbitrary bytes as control messages (libFuzzer): a short run; soak.py runs ten million."""

import shutil
import subprocess
from pathlib import Path

import pytest
from programs import ROOT, Build, fuzzer, seeds


@pytest.mark.skipif(not shutil.which("clang"), reason="libFuzzer needs clang")
def test_wire_decoder(build_c: Build, tmp_path: Path) -> None:
    subprocess.run([seeds(build_c), tmp_path], check=True, timeout=60, cwd=ROOT)
    flags = ["-runs=5000", "-seed=1", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(
        [fuzzer(build_c), tmp_path, *flags], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stderr.splitlines()[-1])
