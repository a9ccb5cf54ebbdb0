# SPDX-License-Identifier: Apache-2.0
"""What the bindings are made of: bindings/table.toml, and the tables of ext/core/hc.h."""

import re
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 120
TABLE = tomllib.loads((ROOT / "bindings" / "table.toml").read_text())
CORE = (ROOT / "ext" / "core" / "hc.h").read_text()

Names = list[str]


def rows(name: str) -> dict[str, str]:
    """NAME of each row of the table HC_`name` in hc.h, and the rest of the row."""
    body = re.search(rf"#define HC_{name}\(X\)((?:.*\\\n)*.*)", CORE)
    assert body, name
    return dict(re.findall(r"X\((\w+),\s*(.*?)\)\s*(?=X\(|$)", body[1].replace("\\\n", " ")))


DTYPES, OPERATIONS, REDUCTIONS = (list(rows(name)) for name in ("DTYPES", "OPERATIONS", "REDUCTIONS"))
STATUSES = {name: int(row.split(",")[0]) for name, row in rows("STATUSES").items()}
TRAITS = {name.lower(): set(re.findall(r"HC_OP_(\w+)", row)) for name, row in rows("OPERATIONS").items()}
PARAMETERS: dict[str, dict[str, str]] = TABLE["parameter"]
CODES: dict[str, int] = TABLE["code"]
COMMENTS: dict[str, str] = TABLE["comment"]
HANDLE = {"": [], "async": ["request"], "init": ["plan"]}
"""The parameter that a form of an operation has and the others have not."""


@dataclass(frozen=True)
class Operation:
    """A row of the table."""

    name: str
    is_message: bool
    parameters: Names
    comments: dict[str, str]
    reads: str | None = None
    forms: Names = field(default_factory=lambda: list(HANDLE))
    by_hand: Names = field(default_factory=list)

    @property
    def traits(self) -> set[str]:
        """What ext/core/hc.h says of it."""
        return TRAITS.get(self.name, set())

    @property
    def has_args(self) -> bool:
        """Whether it has what every collective may have: a name, factors, a compression, rows."""
        return not self.is_message and "ONLY_EVENT" not in self.traits

    def function(self, form: str) -> str:
        """The name of the function, and of the procedure of Fortran."""
        return f"hpccoll_{self.name}{'_' * bool(form)}{form}"

    def comment(self, language: str, form: str) -> str:
        """The comment above the function of a form; "": none."""
        return self.comments.get(f"{language}{'_' * bool(form)}{form}", "").strip()

    def in_c(self, form: str) -> Names:
        """The parameters of the function of C."""
        return [*self.parameters, *(["args"] if self.has_args else []), "world", *HANDLE[form]]

    def options(self, form: str) -> Names:
        """What stands in `args` in C, and is a parameter in Fortran."""
        factors = ["prescale", "postscale"] if "REDUCES" in self.traits else []
        compression = ["compression"] if "NARROWS" in self.traits else []
        return [*([] if form == "init" else ["name"]), *factors, *compression] if self.has_args else []

    def in_order(self, language: str, form: str, more: Names) -> Names:
        """The parameters that a language has, in the order of its arguments: that of the table."""
        own = {*self.parameters, *more, *HANDLE[form]}
        return [name for name, column in PARAMETERS.items() if name in own and language in column]


def operations(kind: str) -> list[Operation]:
    """Read the rows of a kind, "collective", "message" or "grid"."""
    made = []
    for name, row in TABLE[kind].items():
        comments = {key: row.pop(key) for key in list(row) if key.split("_")[0] in ("c", "fortran", "cpp")}
        made.append(Operation(name, kind != "collective", row.pop("parameters").split(), comments, **row))
    return made


COLLECTIVES, MESSAGES, GRIDS = operations("collective"), operations("message"), operations("grid")
ALL = COLLECTIVES + MESSAGES + GRIDS
WRAPPED = [one for one in ALL if one.reads is not None]
"""The operations that Fortran and C++ have, too."""


def fill(head: str, items: Names, tail: str, indent: int | None = None, columns: int = COLUMNS) -> str:
    """Write `head`, the items with commas between them, and `tail`, in lines that begin below the end of `head`."""
    lines, line = [], head
    margin = " " * (len(head) if indent is None else indent)
    for number, item in enumerate(items):
        text = item + ("," if number + 1 < len(items) else tail)
        if line.strip() and line != head and len(line) + 1 + len(text) > columns:
            lines.append(line)
            line = margin + text
        else:
            line += text if line == head else f" {text}"
    return "\n".join([*lines, line if items else head + tail])


def comment(text: str, first: str, more: str, last: str = "") -> str:
    """Write a comment of one or more lines; its own line breaks stay."""
    if not text:
        return ""
    lines = [
        line
        for paragraph in text.split("\n")
        for line in textwrap.wrap(paragraph, COLUMNS - len(more), break_on_hyphens=False)
    ]
    return first + f"\n{more}".join(lines) + f"{last}\n"
