# SPDX-License-Identifier: Apache-2.0
"""The API reference is drawn from docstrings: they are complete, and their examples run."""

import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT

import hpccoll
from hpccoll import horovod, testing
from hpccoll.horovod.operations import Operations

PROGRAM = Path(__file__).with_name("docstrings.py")
FUNCTIONS = {
    name: value
    for name in hpccoll.__all__
    if inspect.isroutine(value := getattr(hpccoll, name)) and value.__module__ != "hpccoll.stopping"
}
HANDLE = ("wait", "done", "launched", "rows")
METHODS = {
    f"World.{name}": value
    for name, value in vars(hpccoll.World).items()
    if inspect.isfunction(value) and not name.startswith("_")
}


def text(function: Any) -> str:
    return inspect.getdoc(function) or ""


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.endswith("_async")])
def test_a_function_is_described(name: str) -> None:
    function, doc = FUNCTIONS[name], text(FUNCTIONS[name])
    signature = inspect.signature(function)
    missing = [p for p in signature.parameters if f":param {p}:" not in doc]
    assert not missing, f"{name}: no :param: for {missing}"
    returns = signature.return_annotation not in (None, "None")
    assert ":returns:" in doc or not returns or doc.startswith("Give the number"), name
    assert ":raises " in doc or name in ("shutdown", "is_initialized"), name


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.endswith("_async")])
def test_an_asynchronous_form_names_the_blocking_one(name: str) -> None:
    blocking = name.removesuffix("_async")
    assert f"`{blocking}`" in text(FUNCTIONS[name])
    own, other = (inspect.signature(FUNCTIONS[n]).parameters for n in (name, blocking))
    assert list(own) == [name for name in other if name != "status"]  # a Handle says what it would


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_described(name: str) -> None:
    parameters = [p for p in inspect.signature(METHODS[name]).parameters if p not in ("self", "cls")]
    missing = [p for p in parameters if f":param {p}:" not in text(METHODS[name])]
    assert not missing, f"{name}: no :param: for {missing}"


@pytest.mark.parametrize("name", HANDLE)
def test_a_handles_method_is_described(name: str) -> None:
    doc = text(getattr(hpccoll.Handle, name))
    assert ":returns:" in doc
    assert not doc.startswith("Handle."), "the signature stands before the text"


def test_every_collective_has_an_example() -> None:
    objects = {"broadcast_object", "allgather_object"}
    blocking = {n.removesuffix("_async") for n in FUNCTIONS if n.endswith("_async")} | objects
    assert blocking
    assert not [n for n in blocking if ">>>" not in text(FUNCTIONS[n])]


def test_stats_lists_every_counter_with_its_unit() -> None:
    described = dict(re.findall(r"^- `(\w+)` \((number|bytes|ns)\): ", text(hpccoll.World.stats), re.MULTILINE))
    (counters,) = testing.make_and_run(1, lambda world: world.stats())
    assert list(described) and set(described) == set(counters)
    assert all(unit == "ns" for name, unit in described.items() if name.endswith("_ns"))


def test_examples_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpccoll", "run", "--timeout", "60", "-np", "2", sys.executable, PROGRAM],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) docstrings with examples", done.stdout)[1]) >= 15  # type: ignore[index]


def on(page: str) -> set[str]:
    """The names that a page of the reference shows: `::: hpccoll.World`, or all in `::: hpccoll.p2p.Messages`."""
    text = (ROOT / "docs" / page).read_text()
    shown = set(re.findall(r"^::: \S*?(\w+)$", text, re.MULTILINE)) | set(re.findall(r"heading: (\w+)", text))
    found = [pkgutil.resolve_name(name) for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    shown |= {name for thing in found if inspect.isclass(thing) for name in vars(thing)}
    return shown.union(*(thing.__all__ for thing in found if inspect.ismodule(thing)))


@pytest.mark.parametrize("page", ["api.md", "api-torch.md", "api-jax.md", "api-tensorflow.md", "api-keras.md"])
def test_the_reference_shows_what_there_is(page: str) -> None:
    pytest.importorskip({"api.md": "torch"}.get(page, page.removeprefix("api-").removesuffix(".md")))
    for name in re.findall(r"^::: (\S+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE):
        assert pkgutil.resolve_name(name), name


def test_the_reference_has_every_function_and_class() -> None:
    constants = {name for name in hpccoll.__all__ if isinstance(getattr(hpccoll, name), int)}
    errors = {name for name in hpccoll.__all__ if name in hpccoll.errors.__all__}  # docs/errors.md has these
    assert set(hpccoll.__all__) - constants - errors - {"errors"} <= on("api.md")


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "keras"])
def test_the_reference_has_every_function_of(framework: str) -> None:
    """But those of the job and the reductions, which the page of PyTorch has."""
    pytest.importorskip(framework)
    module = pkgutil.resolve_name(f"hpccoll.{framework}")
    own = {name for name in module.__all__ if not inspect.ismodule(getattr(module, name))}
    assert own - {*horovod.__all__} - {"Compression"} <= on(f"api-{framework}.md")


def test_the_reference_has_every_function_of_torch() -> None:
    torch = pytest.importorskip("hpccoll.torch")
    operations = {name for name in dir(Operations) if not name.startswith(("_", "run_"))}
    built = {name for name in torch.__all__ if name.endswith(("_built", "_enabled", "_supported"))}
    reductions = {"Adasum", "Average", "Max", "Min", "Product", "Sum"}
    values = {"HorovodInternalError", "HostsUpdatedInterrupt", "global_process_set"}
    modules = {name for name in torch.__all__ if inspect.ismodule(getattr(torch, name))}
    assert set(torch.__all__) - operations - built - reductions - values - modules <= on("api-torch.md")
