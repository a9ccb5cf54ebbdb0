# SPDX-License-Identifier: Apache-2.0
"""One file reads the environment, so that a knob has one name, one default and one page."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted((ROOT / "hpccoll").rglob("*.py"))
NATIVE = sorted(f for end in ("c", "h", "pyx", "pxi") for f in (ROOT / "ext").rglob(f"*.{end}"))
READERS = {"environ", "environb", "getenv", "getenvb", "putenv"}


def names_in(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_python_asks_one_module() -> None:
    readers = [file.relative_to(ROOT) for file in PYTHON if READERS & names_in(file.read_text())]
    assert readers == [Path("hpccoll/inherited.py")]


def test_native_code_is_told() -> None:
    assert NATIVE
    """But for the library of C, in whose programs there is no Python to ask."""
    readers = [file.relative_to(ROOT) for file in NATIVE if READERS & set(re.findall(r"\w+", file.read_text()))]
    assert readers == [Path("ext/api/settings.c")]
