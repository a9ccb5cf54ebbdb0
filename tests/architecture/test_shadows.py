# SPDX-License-Identifier: Apache-2.0
"""No package gives a function or a class the name of one of its modules, which programs would get in its place."""

import ast
import inspect
from pathlib import Path

import pytest

import hpccoll

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "hpccoll").rglob("__init__.py"))


def modules(package: Path) -> set[str]:
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return {path.stem for path in package.glob("*.py")} - {"__init__"} | folders


def bound(package: Path) -> set[str]:
    """The names that `__init__.py` binds to something else than the module of this name."""
    own = ".".join(package.relative_to(ROOT).parts)
    names = set()
    for node in ast.walk(ast.parse((package / "__init__.py").read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name for a in node.names if (node.module, a.asname or a.name) != (own, a.name)}
    if own == "hpccoll":  # it takes its names from hpccoll.public
        modules_of_their_name = {name for name in hpccoll.__all__ if inspect.ismodule(getattr(hpccoll, name))}
        names |= {*hpccoll.__all__} - modules_of_their_name
    return names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: ".".join(path.relative_to(ROOT).parts))
def test_no_name_of_a_package_hides_a_module(package: Path) -> None:
    assert not modules(package) & bound(package)
