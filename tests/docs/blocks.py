# SPDX-License-Identifier: Apache-2.0
"""The commands and programs of the README and the docs, and the comment before each that says how it is run:

    <!-- run -->                      in an empty folder
    <!-- run: mpirun -np 2 -->        a Python program, under this launcher; several are separated by semicolons, and
                                      `make test-all` alone uses one that begins with the word slow
    <!-- run with: first.py -->       beside the page's last Python program, saved under this name
    <!-- run slow: ... -->            by `make test-all` alone; also as `run slow with`
    <!-- run elsewhere: PATH -->      by the tests (or the CI script) at PATH

Blocks with srun are run in the tests' Slurm (tests/slurm/test_docs.py), all others by test_commands.py.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md"]
FENCE = re.compile(r"(?:<!-- (?P<how>run[^>]*?) -->\n)?```(?P<language>sh|python)\n(?P<text>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    how: str | None
    language: str
    text: str
    program: str  # the page's last Python program before this block

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Run:
    """One way to run a block: a shell script, and the files that lie beside it."""

    name: str
    script: str
    files: dict[str, str]
    slow: bool

    @property
    def on_slurm(self) -> bool:
        return re.search(r"\bsrun\b", self.script) is not None

    def written(self, folder: Path) -> Path:
        """Return the script, in a folder with its files."""
        for name, text in self.files.items():
            (folder / name).write_text(text)
        script = folder / "block"
        script.write_text(self.script)
        return script


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text, program = page.read_text(), ""
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(str(page.relative_to(ROOT)), line, match["how"], match["language"], match["text"], program)
            program = block.text if block.language == "python" else program
            found.append(block)
    return found


def runs(block: Block) -> list[Run]:
    """List the ways to run a block that is not run elsewhere."""
    how, _, detail = str(block.how).partition(": ")
    slow = how.startswith("run slow")
    if block.language == "sh":
        return [Run(str(block), block.text, {detail: block.program} if detail else {}, slow)]
    made = []
    for word in detail.split("; "):
        launcher = word.removeprefix("slow ") + (" python" if "torchrun" not in word else "")
        script, files = f"{launcher} program.py\n", {"program.py": block.text}
        made.append(Run(f"{block} {launcher}", script, files, slow or word.startswith("slow ")))
    return made


BLOCKS = blocks()
RUNS = [run for b in BLOCKS if b.how and not b.how.startswith("run elsewhere") for run in runs(b)]


def parameters(on_slurm: bool) -> list[object]:
    """For parametrize: what is run in the tests' Slurm, or all else."""
    return [
        pytest.param(run, id=run.name, marks=pytest.mark.slow if run.slow else ())
        for run in RUNS
        if run.on_slurm == on_slurm
    ]
