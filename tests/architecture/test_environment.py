# SPDX-License-Identifier: Apache-2.0
"""One file reads the environment, so that a knob has one name, one default and one page."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted((ROOT / "hpccoll").rglob("*.py"))
NATIVE = sorted(f for end in ("c", "h", "pyx", "pxi") for f in (ROOT / "ext").rglob(f"*.{end}"))
READERS = {"environ", "environb", "getenv", "getenvb", "putenv"}


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", [f for f in PYTHON if f.name != "config.py"], ids=name)
def test_python_asks_config(file: Path) -> None:
    tree = ast.walk(ast.parse(file.read_text()))
    names = {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in tree
        if isinstance(n, ast.Attribute | ast.Name)
    }
    assert not names & READERS


@pytest.mark.parametrize("file", NATIVE, ids=name)
def test_native_code_is_told(file: Path) -> None:
    assert not READERS & set(re.findall(r"\w+", file.read_text()))
