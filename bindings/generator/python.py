# SPDX-License-Identifier: Apache-2.0
"""The sections of hpccoll/default_world.py: the functions of the package, which are the methods that move data."""

import ast
from collections.abc import Iterator

from table import ROOT, fill

PACKAGE = ROOT / "hpccoll"


def parsed(module: str) -> ast.Module:
    """A module of the package."""
    return ast.parse((PACKAGE / f"{module}.py").read_text())


def methods() -> Iterator[str]:
    """The public methods of the classes that World inherits, in the order of the source."""
    worlds = parsed("worlds").body
    home = {name.name: one.module for one in worlds if isinstance(one, ast.ImportFrom) for name in one.names}
    bases = next(one.bases for one in worlds if isinstance(one, ast.ClassDef) and one.name == "World")
    for base in (name.id for name in bases if isinstance(name, ast.Name)):
        module = parsed((home[base] or "").removeprefix("hpccoll."))
        own = next(one.body for one in module.body if isinstance(one, ast.ClassDef) and one.name == base)
        functions = (one.name for one in own if isinstance(one, ast.FunctionDef))
        yield from dict.fromkeys(name for name in functions if not name.startswith("_"))


def names() -> str:
    """Their names in `__all__`."""
    return "\n".join(["__all__ += [", fill("    ", [f'"{name}"' for name in sorted(methods())], ","), "]  # fmt: skip"])


def functions() -> str:
    """The functions themselves."""
    return "\n".join(f"{name} = default.{name}" for name in methods())


SECTIONS = {section.__name__: section for section in (names, functions)}
