# SPDX-License-Identifier: Apache-2.0
"""No file above 500 lines, no function above 60, no line above 120 columns: what is longer is two things."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ext", "bindings", "hpccoll", "tests", "benchmarks", "examples", "docs")
FILES = sorted(
    f
    for folder in FOLDERS
    for end in ("c", "h", "hpp", "f90", "py", "pyx", "pxd", "pxi")
    for f in (ROOT / folder).rglob(f"*.{end}")
    if f.parent != ROOT / "hpccoll" / "include"
)  # what the build copies to include/ is no source
GENERATED = re.compile(r"^ *\S+ generated: .*?^ *\S+ end of generated", re.DOTALL | re.MULTILINE)
FILE_LINES, FUNCTION_LINES, COLUMNS, MEMBERS = 500, 60, 120, 20
LARGER = {
    # records that callers fill or read member by member
    "hc_handle", "hc_p2p_op", "hc_loop_stats", "hc_trace_record", "hc_trace_header", "hc_gate_call",
    # the states of a GPU, which have no parts yet
    "hc__plane", "hc__comms", "hc__nccl_node", "hc__staged",
}  # fmt: skip


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


def test_files_fit() -> None:
    """What `make bindings` writes into a file does not count."""
    assert FILES
    lines = {name(file): len(GENERATED.sub("", file.read_text()).splitlines()) for file in FILES}
    assert not {file: n for file, n in lines.items() if n > FILE_LINES}


def test_lines_fit() -> None:
    """Code and text have one width. Only an instruction to a tool at the end of a line may go beyond."""
    wide = {
        f"{name(file)}:{number}": len(line)
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line.split("  # type: ignore")[0].split("  # noqa")[0]) > COLUMNS
    }
    assert not wide


def test_lines_of_text_fit() -> None:
    """Tables, code, and options of the site's plugin are as wide as they are; old decisions stay as they are."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    any_width = re.compile(r"^ *```.*?^ *```|<!-- generated.*?<!-- end|^ *\|.*?$|^ {4,}.*?$", re.DOTALL | re.MULTILINE)
    pages = [page for page in listed.split() if "/decisions/" not in page]
    wide = {
        page: long
        for page in pages
        if (long := [line for line in any_width.sub("", (ROOT / page).read_text()).splitlines() if len(line) > COLUMNS])
    }
    assert pages and not wide


@pytest.mark.parametrize(("end", "functions"), [("c", c_functions), ("py", python_functions)])
def test_functions_fit(end: str, functions: Callable[[str], Iterator[tuple[str, int]]]) -> None:
    lines = {
        (name(file), title): n for file in FILES if file.suffix == f".{end}" for title, n in functions(file.read_text())
    }
    assert lines
    assert not {function: n for function, n in lines.items() if n > FUNCTION_LINES}


def members_of_structs(text: str) -> Iterator[tuple[str, int]]:
    """Name and number of members of each struct; a struct inside it counts as one member."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    inner = re.compile(r"\([^()]*\)|(?<=struct) \{[^{}]*\}|(?<=union) \{[^{}]*\}")
    for struct in re.finditer(r"^(?:typedef )?struct (\w+) \{$(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        body, found = struct[2], 1
        while found:
            body, found = inner.subn("", body)
        yield struct[1], body.count(";") + body.count(",")


def test_structs_fit() -> None:
    members = {
        (name(file), struct): n
        for file in FILES
        if file.suffix in (".c", ".h") and file.is_relative_to(ROOT / "ext")
        for struct, n in members_of_structs(file.read_text())
    }
    larger = {struct for (_, struct), n in members.items() if n > MEMBERS}
    assert len(members) > 100 and larger <= LARGER, larger - LARGER


def test_the_rule_counts_members() -> None:
    text = "typedef struct t {\n    int x, y[2]; /* a, b */\n    struct {\n        int a, b;\n    } in;\n"
    text += "    int (*call)(int, void (*)(int, int));\n} t;\nstruct u {\n    char c;\n};\n"
    assert dict(members_of_structs(text)) == {"t": 4, "u": 1}


def test_the_rule_finds_a_long_function() -> None:
    body = "    x++;\n" * FUNCTION_LINES
    text = f"static int *long_one(int x,\n    int y)\n{{\n{body}}}\nint y(void) {{ return 0; }}\n"
    assert dict(c_functions(text)) == {"long_one": FUNCTION_LINES + 4}
    assert dict(c_functions("struct t {\n    int x;\n};\nint f(void) {\n    return 0;\n}\n")) == {"f": 3}
