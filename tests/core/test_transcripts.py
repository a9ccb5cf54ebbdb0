# SPDX-License-Identifier: Apache-2.0
"""Conversations with a few engines, step by step: read them in order to learn the protocol.

After a change that is meant to change them: `pytest tests/core/test_transcripts.py --rewrite`, then read the diff.
"""

import subprocess
from pathlib import Path

import pytest
from programs import Build, transcript

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_transcript(build_c: Build, path: Path, pytestconfig: pytest.Config) -> None:
    expected = path.read_text()
    done = subprocess.run([transcript(build_c)], input=expected, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    if pytestconfig.getoption("rewrite", default=False):
        path.write_text(done.stdout)
    else:
        assert done.stdout.splitlines() == expected.splitlines()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 20
