# SPDX-License-Identifier: Apache-2.0
"""What bindings/table.toml says of the operations is what all languages have, Python among them."""

import inspect
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
from bindings_table import OPERATIONS

import hpccoll

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "bindings" / "generator"


COLLECTIVES = [name for name, one in OPERATIONS.items() if not one.is_message]


def test_generated_sections_are_up_to_date() -> None:
    checking = [sys.executable, GENERATOR, "--check"]
    done = subprocess.run(checking, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: make bindings"


@pytest.mark.parametrize("name", COLLECTIVES)
def test_parameters_follow_from_the_traits(name: str) -> None:
    """An operation of ext/core/hc.h has an op, a root, or counts of rows; its functions have them, too."""
    one = OPERATIONS[name]
    assert ("op" in one.parameters) == ("REDUCES" in one.traits)
    assert ("root" in one.parameters) == ("ROOTED" in one.traits)
    assert ("splits" in one.parameters) == ("COUNTS" in one.traits)
    assert ("out_count" in one.parameters) == ("RESULT_ALLOCATED" in one.traits)
    assert ("dtype" in one.parameters) == ("NO_TENSORS" not in one.traits)


def python_parameters(name: str, form: str) -> list[str]:
    """The parameters of a method of Python: data, what the operation is, and what every call may have."""
    one = OPERATIONS[name]
    if name == "sendrecv":
        return ["x", "dest", "out", "source", "sendtag", "recvtag"]  # the options behind the arrays and ranks of MPI's
    has_data = "dtype" in one.parameters
    what = [word for word in ("op", "root", "splits", "dest", "source", "tag") if word in one.parameters]
    options = one.options(form)
    out = ["out"] if has_data and not one.is_message else []
    return [*(["x"] if has_data else []), *what, *options[: "name" in options], *out, *options["name" in options :]]


@pytest.mark.parametrize("form", ["", "async", "init"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_python_has_the_parameters_of_the_table(name: str, form: str) -> None:
    if form not in OPERATIONS[name].forms:
        return
    method = getattr(hpccoll.World, OPERATIONS[name].function(form).removeprefix("hpccoll_"))
    found = [parameter for parameter in inspect.signature(method).parameters if parameter not in ("self", "status")]
    assert found == python_parameters(name, form)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_overloads_of_an_asynchronous_form_are_those_of_the_blocking_one(name: str) -> None:
    """The same parameters, and a Handle of what the blocking form returns."""

    def overloads(method: str) -> list[tuple[str, Any]]:
        found = map(inspect.signature, typing.get_overloads(getattr(hpccoll.World, method)))
        return [(str(one.replace(return_annotation=one.empty)), one.return_annotation) for one in found]

    blocking = overloads(name)
    assert overloads(f"{name}_async") == [(parameters, hpccoll.Handle[result]) for parameters, result in blocking]
    assert blocking or name in ("barrier", "join")
