# SPDX-License-Identifier: Apache-2.0
"""hpccoll.torch and horovod.torch are asked the same questions (side_by_side), and answer alike but where we say why.

Horovod must have been built into .venv-horovod (benchmarks/peers.sh). docs/from-horovod.md has the same differences.
"""

import json
import math
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOROVOD = ROOT / ".venv-horovod" / "bin"
RANKS = (2, 3)
Answers = dict[str, list[Any]]
"""The answers to each question, one per rank."""

DIFFERENT = {
    "name: check_extension": "how Horovod finds its own library; no part of its interface",
    "name: init": "Horovod says *args and **kwargs and passes them on",
    "name: shutdown": "Horovod says *args and **kwargs and passes them on",
    "build of a library: cuda_built": "the driver is looked for at run time, not when built",
    "*: * uint8": "more types are reduced",
    "*: * int8": "more types are reduced",
    "*: * int16": "more types are reduced",
    "*: * bool": "more types are reduced",
    "*: * bfloat16": "more types are reduced",
    "*: bool": "more types are moved",
    "*: bfloat16": "more types are moved",
    "alltoall of splits: int64": "splits of any integer type",
    "reducescatter: Min *": "Horovod has Sum and Average",
    "reducescatter: Max *": "Horovod has Sum and Average",
    "reducescatter: Product *": "Horovod has Sum and Average",
    "a transposed tensor: *": "Horovod refuses what is not contiguous",
    "a scalar: allgather": "a scalar counts as one row",
    "group*": "a group comes back as a list, also where Horovod has a tuple",
    "no elements: grouped_allgather": "a group comes back as a list, also where Horovod has a tuple",
    "a number that is no handle: synchronize": "Horovod returns None",
    "gradient of allreduce: Min": "Horovod gives the gradient of a sum",
    "gradient of allreduce: Product": "Horovod gives the gradient of a sum",
    "ranks differ in: *": "a HorovodInternalError is what a new World may cure",
    "mistake: not a tensor": "a ValueError instead of an AttributeError",
    "process sets": "a ValueError instead of a TypeError for a set that was removed",
    "broadcast parameters: generator": "model.named_parameters() is taken as it is",
    "broadcast optimizer state: LBFGS": "Horovod refuses it",
    "state of a distributed optimizer: SGD": "Horovod leaves an optimizer without a state alone, its rates, too",
    "compression: fp16": "sums in a node are not rounded to float16",
    "optimizer: *fp16": "sums in a node are not rounded to float16",
    "sync batch norm: *": "Horovod has it for GPUs only",
    "join and allreduce: Max": "a joined rank brings nothing to a maximum, not zeros",
    "join and allreduce: Product": "a joined rank brings ones to a product, not zeros",
}
"""Question: why the answer is another."""


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """For each number of ranks the questions that are answered differently."""
    out = tmp_path_factory.mktemp("answers")
    ours, theirs = Path(sys.executable).parent, HOROVOD
    return {
        ranks: differences(answers("hpccoll.torch", ours, ranks, out), answers("horovod.torch", theirs, ranks, out))
        for ranks in RANKS
    }


def answers(module: str, programs: Path, ranks: int, folder: Path) -> Answers:
    out = folder / f"{module}-{ranks}.json"
    command = [sys.executable, "-m", "hpccoll", "run", "-np", ranks, "--timeout", 400]
    command += ["--launcher", programs / "mpirun", programs / "python"]
    command += [Path(__file__).with_name("side_by_side"), module, out]
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=420, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    answered: Answers = json.loads(out.read_text())
    names = answered.pop("public names")
    return answered | {f"name: {name}": [one[name] for one in names] for name in names[0]}


def differences(ours: Answers, theirs: Answers) -> list[str]:
    return [title for title, answer in theirs.items() if not same(title, ours.get(title), answer)]


def same(title: str, ours: Any, theirs: Any) -> bool:
    """Arguments may be added behind Horovod's; sums may be formed in another order."""
    match ours, theirs:
        case list(), list():
            pairs = zip(ours, theirs, strict=True)
            return len(ours) == len(theirs) and all(same(title, *pair) for pair in pairs)
        case dict(), dict():
            return ours.keys() == theirs.keys() and all(same(title, ours[key], theirs[key]) for key in theirs)
        case float(), float():
            return math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-6)
        case str(), str() if title.startswith("name: "):
            return ours == theirs or ours.startswith(f"{theirs}, " if theirs else "")
    return bool(ours == theirs)


needs_horovod = pytest.mark.skipif(
    not (HOROVOD / "horovodrun").exists(), reason="needs Horovod: sh benchmarks/peers.sh builds it"
)


@needs_horovod
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", RANKS)
def test_answers_are_horovods(different: dict[int, list[str]], ranks: int) -> None:
    unexplained = [t for t in different[ranks] if not any(fnmatchcase(t, pattern) for pattern in DIFFERENT)]
    assert unexplained == []


@needs_horovod
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_is_said_to_differ_does(different: dict[int, list[str]]) -> None:
    titles = [title for ranks in RANKS for title in different[ranks]]
    assert [pattern for pattern in DIFFERENT if not any(fnmatchcase(t, pattern) for t in titles)] == []
