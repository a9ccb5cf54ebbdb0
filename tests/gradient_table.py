# SPDX-License-Identifier: Apache-2.0
"""The table of docs/gradients.md as programs and as numbers, with which each front end's derivatives are compared.

Every rank gives a vector of one row per rank, and multiplies its result by weights.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gradients.md"
NONE = "none"
Parts = list[np.ndarray]

FORMULAS: dict[str, Callable[[Parts, int], np.ndarray]] = {
    "the sum": lambda g, me: sum(g),
    "the mean": lambda g, me: sum(g) / len(g),
    "g": lambda g, me: g[me],
    "g / P": lambda g, me: g[me] / len(g),
    "own rows of the sum": lambda g, me: np.split(sum(g), len(g))[me],
    "own rows of the mean": lambda g, me: np.split(sum(g) / len(g), len(g))[me],
    "the sum, on the root": lambda g, me: sum(g) * (me == root(len(g))),
    "the mean, on the root": lambda g, me: sum(g) / len(g) * (me == root(len(g))),
    "the rows go back": lambda g, me: np.array([of[me] for of in g]),
    "all": lambda g, me: np.concatenate(g),
    "all, times P": lambda g, me: np.concatenate(g) * len(g),
    "all, / P": lambda g, me: np.concatenate(g) / len(g),
    "all, on the root": lambda g, me: np.concatenate(g) * (me == root(len(g))),
}
"""Functions from the gradients of all ranks' results to the gradient of this rank's tensor."""


def root(size: int) -> int:
    return size - 1


def calls(hvd: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the operations of a front end; the second result of a group counts."""
    last = root(hvd.size())
    return {
        "allreduce(op=Sum)": lambda x: hvd.allreduce(x, op=hvd.Sum),
        "allreduce(op=Average)": lambda x: hvd.allreduce(x, op=hvd.Average),
        "grouped_allreduce(op=Sum)": lambda x: hvd.grouped_allreduce([x * 2, x], op=hvd.Sum)[1],
        "grouped_allreduce(op=Average)": lambda x: hvd.grouped_allreduce([x * 2, x], op=hvd.Average)[1],
        "allgather": lambda x: hvd.allgather(x),
        "grouped_allgather": lambda x: hvd.grouped_allgather([x * 2, x])[1],
        "broadcast": lambda x: hvd.broadcast(x, last),
        "alltoall": lambda x: hvd.alltoall(x),
        "reducescatter(op=Sum)": lambda x: hvd.reducescatter(x, op=hvd.Sum),
        "reducescatter(op=Average)": lambda x: hvd.reducescatter(x, op=hvd.Average),
        "grouped_reducescatter(op=Sum)": lambda x: hvd.grouped_reducescatter([x * 2, x], op=hvd.Sum)[1],
        "grouped_reducescatter(op=Average)": lambda x: hvd.grouped_reducescatter([x * 2, x], op=hvd.Average)[1],
        "scatter": lambda x: hvd.scatter(x, last),
    }


def weights(rank: int, count: int) -> np.ndarray:
    """Return the weights by which a rank multiplies its result before it adds it up: the gradient of the result."""
    return (rank + 1.0) * np.arange(1.0, count + 1)


def column(front_end: str) -> dict[str, str]:
    """Return the table's column of a front end: the formula of each operation."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    begin = next(at for at, line in enumerate(lines) if line.startswith("| operation | `hpccoll.torch`"))
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[begin:]]
    at = rows[0].index(front_end)
    return {row[0]: row[at] for row in rows[2:]}


def expected(formula: str, operation: str, rank: int, size: int) -> np.ndarray:
    """Return the gradient of a rank's tensor."""
    count = {"allgather": size * size, "scatter": 1, "reducescatter": 1}
    n = count.get(operation.removeprefix("grouped_").split("(")[0], size)
    return FORMULAS[formula]([weights(other, n) for other in range(size)], rank)
