# SPDX-License-Identifier: Apache-2.0
"""No circle of files in a layer of ext: a file that another one calls never calls it back, not by way of others either.

A file uses another one when it needs a symbol (`nm`) that the other one defines; types do not count.
"""

import subprocess
from collections.abc import Callable, Collection, Mapping
from glob import glob
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("core", "transport", "cuda", "loop", "world", "rendezvous", "gate", "api")
NEEDS_MPI = {"mpi.c"}

Graph = Mapping[str, Collection[str]]


def symbols(compiled: Path) -> tuple[set[str], set[str]]:
    """What an object file defines for others, and what it needs of them."""
    listing = subprocess.run(["nm", "-g", compiled], capture_output=True, text=True, check=True, timeout=60)
    lines = [line.split() for line in listing.stdout.splitlines()]
    defined = {name for *_, kind, name in lines if kind not in "Uw"}
    return defined, {name for *_, kind, name in lines if kind in "Uw"}


def uses(layer: str, objects: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each C file of a layer: the files of that layer whose functions or tables it uses."""
    of = {name.removeprefix(f"ext/{layer}/"): symbols(compiled) for name, compiled in objects.items()}
    definer = {symbol: name for name, (defined, _) in of.items() for symbol in defined}
    return {name: {definer[s] for s in needed if s in definer} - {name} for name, (_, needed) in of.items()}


def reached(graph: Graph, start: str) -> set[str]:
    """The files that a file uses, and those that they use, and so on."""
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph[name]
    return seen


def in_circles(graph: Graph) -> set[str]:
    """The files that use themselves by way of others."""
    return {name for name in graph if name in reached(graph, name)}


def circle_in(graph: Graph) -> str:
    """One circle in words, or ""."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        return " <- ".join(circle.args[1])
    return ""


@pytest.mark.parametrize("layer", LAYERS)
def test_no_circles(layer: str, objects_of: Callable[..., dict[str, Path]]) -> None:
    files = glob(f"ext/{layer}/**/*.c", root_dir=ROOT, recursive=True)
    sources = [file for file in files if Path(file).name not in NEEDS_MPI]
    graph = uses(layer, {name: made for source in sources for name, made in objects_of(source).items()})
    assert any(graph.values())
    circles = in_circles(graph)
    assert not circles, f"in a circle: {sorted(circles)}; one circle is {circle_in(graph)}"


def test_the_rule_finds_a_circle() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert in_circles(graph) == {"b", "c"}
    assert set(circle_in(graph).split(" <- ")) == {"b", "c"}
    assert not in_circles({"a": {"b"}, "b": set()})
    assert not circle_in({"a": {"b"}, "b": set()})
