# SPDX-License-Identifier: Apache-2.0
"""Jobs of this folder, programs of the project under `hpccoll run`; and modules of examples."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """The modules of an example: those of `MODULES` in the folder `FOLDER` of the test's module."""
    folder, names = str(request.module.FOLDER), request.module.MODULES
    sys.path.insert(0, folder)
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(folder)
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def job() -> Callable[..., str]:
    """`job(4, "examples/x.py", "--option", HPCCOLL_NODES=2, status=0)`: run it, check the status, return its output."""

    def run(ranks: int, program: str, *arguments: object, status: int = 0, **variables: object) -> str:
        command = [sys.executable, "-m", "hpccoll", "run", "-np", ranks, "--timeout", 280]  # on a busy machine
        command += [sys.executable, ROOT / program, *arguments]
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [str(word) for word in command], cwd=ROOT, env=environment, timeout=290, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    return run
