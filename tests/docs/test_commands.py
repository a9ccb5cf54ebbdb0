# SPDX-License-Identifier: Apache-2.0
"""Every command and program of the README and the docs is run, here or where its page says.

A comment before each block says how:
    <!-- run -->                    here, in an empty folder
    <!-- run: mpirun -np 2 -->      here, a Python program under this launcher
    <!-- run slow: mpirun ... -->   so, too, but by `make test-all` alone
    <!-- run with: first.py -->     here, beside the page's last Python program, saved under this name
    <!-- run elsewhere: PATH -->    by the tests (or the CI script) at PATH
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md"]
FENCE = re.compile(
    r"(?:<!-- (?P<how>run[^>]*?) -->\n)?```(?P<language>sh|python)\n(?P<text>.*?)```", re.DOTALL
)


@dataclass
class Block:
    page: str
    line: int
    how: str | None
    language: str
    text: str
    program: str  # the page's last Python program before this block

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text, program = page.read_text(), ""
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(
                str(page.relative_to(ROOT)), line, match["how"], match["language"], match["text"], program
            )
            program = block.text if block.language == "python" else program
            found.append(block)
    return found


BLOCKS = blocks()
HERE = [b for b in BLOCKS if b.how and not b.how.startswith("run elsewhere")]


def test_every_block_says_how_it_is_run() -> None:
    assert BLOCKS
    assert not [str(b) for b in BLOCKS if b.how is None]


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.how and b.how.startswith("run elsewhere")], ids=str)
def test_elsewhere_exists(block: Block) -> None:
    assert block.how
    assert (ROOT / block.how.removeprefix("run elsewhere: ")).exists()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "block",
    [pytest.param(b, marks=pytest.mark.slow if str(b.how).startswith("run slow") else ()) for b in HERE],
    ids=str,
)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block"
    how, _, detail = str(block.how).partition(": ")
    if block.language == "python":
        (tmp_path / "program.py").write_text(block.text)
        script.write_text(f"{detail} python program.py\n")
    else:
        if how == "run with":
            (tmp_path / detail).write_text(block.program)
        script.write_text(block.text)
    done = subprocess.run(
        ["bash", "-e", script], cwd=tmp_path, env=environment(), text=True, timeout=170, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{script.read_text()}\n{done.stdout}"


def environment() -> dict[str, str]:
    """This Python's programs first, and what a small machine (and its root) needs for mpirun."""
    allowed = {f"{p}_ALLOW_RUN_AS_ROOT{s}": "1" for p in ("OMPI", "PRTE") for s in ("", "_CONFIRM")}
    return {
        **os.environ,
        **allowed,
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
