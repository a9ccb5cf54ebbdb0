# SPDX-License-Identifier: Apache-2.0
"""No file above 500 lines, no function above 60: what is longer is two things."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ext", "hpccoll", "tests", "benchmarks", "examples", "docs")
FILES = sorted(
    f
    for folder in FOLDERS
    for end in ("c", "h", "py", "pyx", "pxd", "pxi")
    for f in (ROOT / folder).rglob(f"*.{end}")
)
FILE_LINES, FUNCTION_LINES = 500, 60


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and lines of each function: from the line at column 0 that names it to the `}` at column 0."""
    start, title = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("}") and title:
            yield title, number - start + 1
            title = ""
        elif opened := re.match(r"(?:[A-Za-z_].*?\W)?\*?(\w+)\(", line):
            start, title = number, "" if line.endswith(("}", ";")) else opened[1]
        elif line.endswith(";") and line[0] not in " \t}":
            title = ""


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("file", FILES, ids=name)
def test_file_fits(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("file", [f for f in FILES if f.suffix in (".c", ".py")], ids=name)
def test_functions_fit(file: Path) -> None:
    functions = python_functions if file.suffix == ".py" else c_functions
    long = {title: lines for title, lines in functions(file.read_text()) if lines > FUNCTION_LINES}
    assert not long


def test_the_rule_finds_a_long_function() -> None:
    body = "    x++;\n" * FUNCTION_LINES
    text = f"static int *long_one(int x,\n    int y)\n{{\n{body}}}\nint y(void) {{ return 0; }}\n"
    assert dict(c_functions(text)) == {"long_one": FUNCTION_LINES + 4}
    assert dict(c_functions("struct t {\n    int x;\n};\nint f(void) {\n    return 0;\n}\n")) == {"f": 3}
