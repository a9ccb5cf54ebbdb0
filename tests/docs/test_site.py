# SPDX-License-Identifier: Apache-2.0
"""What the site shows to users: pictures, tables that fit a phone, and no decisions."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_cell_knows_its_column() -> None:
    label = runpy.run_path(str(ROOT / "docs" / "hooks.py"))["label"]
    head = '<table><thead><tr><th>a <code>"x"</code></th><th>b</th></tr></thead>'
    rows = '<tbody><tr><td>1</td><td style="x">2</td></tr><tr><td></td><td>4</td></tr></tbody></table>'
    table = label(head + rows)
    assert '<td data-column="a &quot;x&quot;">1</td><td data-column="b" style="x">2</td>' in table
    assert '<td data-column="a &quot;x&quot;"></td><td data-column="b">4</td>' in table


def test_decisions_are_not_in_the_navigation() -> None:
    assert "decisions/" not in (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]


def test_the_pictures_of_pages_are_drawn(tmp_path: Path) -> None:
    """`mkdocs build --strict` finds that a picture is missing, but it is not installed where tests run."""
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    subprocess.run([sys.executable, *hooks["DRAW"][:-1], tmp_path], cwd=ROOT, check=True, timeout=100)
    named = [name for page in (ROOT / "docs").glob("*.md") for name, _ in hooks["PICTURE"].findall(page.read_text())]
    assert sorted(named) == sorted(file.name for file in tmp_path.iterdir()) != []
    assert re.search(r"<svg ", (tmp_path / named[0]).read_text())
