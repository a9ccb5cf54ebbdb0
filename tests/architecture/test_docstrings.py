# SPDX-License-Identifier: Apache-2.0
"""Every public method has a docstring: its own, or that of the method which it overrides, as help() shows it."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "hpccoll"

Classes = dict[str, list[ast.ClassDef]]


def classes(*texts: str) -> Classes:
    """Return the classes in Python files, by name, which some of them share."""
    found: Classes = defaultdict(list)
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(node)
    return dict(found)


def methods(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in owner.body if isinstance(one, ast.FunctionDef) and not is_overload(one)]


def is_overload(method: ast.FunctionDef) -> bool:
    return any("overload" in ast.unparse(one) or ".setter" in ast.unparse(one) for one in method.decorator_list)


def is_described(owner: ast.ClassDef, method: str, known: Classes) -> bool:
    """Return whether a class, or a base of it, describes a method. A class of another package describes its own."""
    if any(one.name == method and ast.get_docstring(one) for one in methods(owner)):
        return True
    bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in owner.bases]
    if owner.name.endswith("Adapter") and not bases:
        bases = ["ParameterAdapter"]  # a protocol, which they have without being derived from it
    of_bases = [[one for one in known.get(base, []) if one is not owner] for base in bases]
    return any(not of_base or any(is_described(one, method, known) for one in of_base) for of_base in of_bases)


def bare(known: Classes) -> list[str]:
    return [
        f"{owner.name}.{method.name}"
        for owner in (one for of_one_name in known.values() for one in of_one_name)
        for method in methods(owner)
        if not {owner.name[0], method.name[0]} & {"_"} and not is_described(owner, method.name, known)
    ]


def test_public_methods_are_described() -> None:
    known = classes(*(file.read_text() for file in sorted(PACKAGE.rglob("*.py"))))
    assert len(known) > 300 and not bare(known)


def test_the_rule_finds_a_method_without_a_docstring() -> None:
    text = 'class A:\n    def f(self):\n        "Do."\n    def g(self): ...\nclass B(A):\n    def f(self): ...\n'
    assert bare(classes(text)) == ["A.g"]
