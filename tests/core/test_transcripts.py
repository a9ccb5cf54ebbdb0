# SPDX-License-Identifier: Apache-2.0
"""Conversations with a few engines, step by step: read them in order to learn the protocol.

After a change that is meant to change them: `python tests/core/test_transcripts.py --rewrite`, then read the diff.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from programs import transcript

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def answered(conversation: str) -> str:
    done = subprocess.run([transcript()], input=conversation, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_transcript(path: Path) -> None:
    said = path.read_text()
    assert answered(said).splitlines() == said.splitlines()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 20


if __name__ == "__main__" and sys.argv[1:] == ["--rewrite"]:
    for path in TRANSCRIPTS:
        path.write_text(answered(path.read_text()))
