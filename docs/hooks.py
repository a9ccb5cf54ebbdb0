# SPDX-License-Identifier: Apache-2.0
"""What mkdocs does beyond its own: pictures are drawn, a phone can show tables, and no search finds decisions."""

import html
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DRAW = ("benchmarks/simulator", "draw", "--pictures", "build/pictures")
PICTURE = re.compile(r"<!-- picture: (\S+) (.*?) \| (.*?) -->", re.DOTALL)
"""File, caption, and what a reader who does not see it must know (alt)."""
FIGURE = '<figure><img src="assets/{}" alt="{}"><figcaption>{}</figcaption></figure>'

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Draw the pictures of docs/scaling-to-summit.md, which are not checked in, into the site."""
    from mkdocs.structure.files import File

    subprocess.run([sys.executable, *DRAW], cwd=ROOT, check=True)
    for picture in sorted((ROOT / DRAW[-1]).glob("*.svg")):
        files.append(File.generated(config, f"assets/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Tell each cell of a table the head of its column, which a narrow page shows before it (assets/site.css)."""
    return TABLE.sub(lambda table: label(table[0]), html)


def label(table: str) -> str:
    heads = [re.sub(r"<[^>]+>", "", head).replace('"', "&quot;") for head in HEAD.findall(table)]

    def row(found: re.Match[str]) -> str:
        columns = iter(heads)
        return re.sub(r"<td\b", lambda _: f'<td data-column="{next(columns, "")}"', found[0])

    return ROW.sub(row, table)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show the pictures; and leave decisions, which are for those who work on hpccoll, out of a user's search."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    return PICTURE.sub(figure, markdown)


def figure(found: re.Match[str]) -> str:
    """The picture with its caption."""
    file, caption, alt = (html.escape(" ".join(text.split())) for text in found.groups())
    return FIGURE.format(file, alt, caption)
