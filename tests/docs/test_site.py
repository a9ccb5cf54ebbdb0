# SPDX-License-Identifier: Apache-2.0
"""What the site shows to users: tables that fit a phone, and no decisions."""

import runpy
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
