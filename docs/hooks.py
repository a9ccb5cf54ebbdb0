# SPDX-License-Identifier: Apache-2.0
"""What mkdocs does with each page beyond its own: tables that a phone can show, decisions left out of the search."""

import re
from typing import Any

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


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
    """Decisions are for those who work on hpccoll; a user's search does not find them."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    return markdown
