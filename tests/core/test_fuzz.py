# SPDX-License-Identifier: Apache-2.0
"""Arbitrary bytes as control messages: a short run that needs no libFuzzer; soak.py runs ten million with it."""

import subprocess
from pathlib import Path

import pytest
from programs import ROOT, Build, mutator, seeds


@pytest.mark.slow
def test_wire_decoder(build_c: Build, tmp_path: Path) -> None:
    subprocess.run([seeds(build_c), tmp_path], check=True, timeout=60, cwd=ROOT)
    messages = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    real = b"".join(len(m).to_bytes(2, "little") + m for m in messages)
    done = subprocess.run([mutator(build_c), "10000"], input=real, capture_output=True, timeout=100)
    report = done.stderr.decode()
    assert done.returncode == 0, report[-4000:]
    assert "messages decoded" in report
    print(report)
