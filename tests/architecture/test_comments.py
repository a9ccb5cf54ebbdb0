# SPDX-License-Identifier: Apache-2.0
"""Files that comments of the C code name exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
FILE = re.compile(r"\b(?<!<)([A-Za-z]\w*\.(?:c|h|cu))\b(?!\()")
ELSEWHERE = {"cuda.h", "nccl.h", "mpi.h"}  # of CUDA, NCCL and MPI


def test_files_that_comments_name_exist() -> None:
    known = {file.name for folder in ("ext", "tests") for file in (ROOT / folder).rglob("*")} | ELSEWHERE
    sources = [file for file in sorted((ROOT / "ext").rglob("*")) if file.suffix in (".c", ".h", ".cu")]
    assert sources
    named = {
        (file.relative_to(ROOT).as_posix(), name)
        for file in sources
        for comment in COMMENT.findall(file.read_text())
        for name in FILE.findall(comment)
    }
    assert len(named) > len(sources)  # each names itself at least
    assert not sorted((file, name) for file, name in named if name not in known)
