# SPDX-License-Identifier: Apache-2.0
"""What the site shows to users: pictures, tables that fit a phone, and no decisions."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

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


@pytest.mark.slow
def test_the_pictures_of_pages_are_drawn(tmp_path: Path) -> None:
    """`mkdocs build --strict` finds that a picture is missing, but it is not installed where tests run."""
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    subprocess.run([sys.executable, *hooks["DRAW"][:-1], tmp_path], cwd=ROOT, check=True, timeout=100)
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = [name for name, *_ in hooks["PICTURE"].findall(pages)]
    assert len(named) == pages.count("<!-- picture:")
    assert sorted(named) == sorted(file.name for file in tmp_path.iterdir()) != []
    assert re.search(r"<svg ", (tmp_path / named[0]).read_text())


def test_a_picture_has_a_caption_and_words_for_those_who_do_not_see_it() -> None:
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.md"))
    shown = hooks["on_page_markdown"]('x\n<!-- picture: a.svg Time of\n"it". | A curve\nrises. -->\ny', page=page)
    figure = '<img src="assets/a.svg" alt="A curve rises."><figcaption>Time of &quot;it&quot;.</figcaption>'
    assert shown == f"x\n<figure>{figure}</figure>\ny"


def test_no_compiled_python_is_in_the_site() -> None:
    """`mkdocs` copies what lies in docs and is no page; Python writes its files beside docs/hooks.py."""
    left_out = (ROOT / "mkdocs.yml").read_text().split("exclude_docs: |\n")[1].split("\nhooks:")[0]
    assert {"__pycache__/", "generate.py", "hooks.py"} <= set(left_out.split())
