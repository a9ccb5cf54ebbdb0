# SPDX-License-Identifier: Apache-2.0
"""What the differential tests run: descriptions of programs, and what MPI's standard and NumPy say must come out.

A program is a list of calls. Every rank knows the whole description, so a call says what each rank gives. The same
description is run by every front end and in every mode (modes_*.py). The expected values are made here, in float64 or
int64, from the inputs of all ranks.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]

OPERATIONS = (
    "allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scatter", "scan", "exscan",
    "sendrecv",
)  # fmt: skip
REDUCES = ("allreduce", "reducescatter", "reduce", "scan", "exscan")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
DTYPES = ("int32", "int64", "float16", "float32", "float64")
FOLDS = {
    "SUM": np.add, "AVERAGE": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply,
}  # fmt: skip
TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


@dataclass(frozen=True)
class Call:
    """One call, as all ranks make it."""

    operation: str
    dtype: str = "float32"
    rows: int = 2
    columns: int = 3
    reduction: str = "SUM"
    root: int = 0
    factors: tuple[float, float] = (1.0, 1.0)
    """prescale and postscale."""
    name: str | None = None
    layout: str = "C"
    """C, or strided: every second element of a larger array, its dimensions in the other order in memory."""
    seed: int = 0

    def __str__(self) -> str:
        given = [f"{key}={value!r}" for key, value in vars(self).items() if value != getattr(Call, key, None)]
        return f"{self.operation}({', '.join(given[1:])})"

    def own_rows(self, rank: int, size: int) -> int:
        """How many rows this rank gives."""
        if self.operation in ("allgather", "gather"):
            return self.rows + rank
        return sum(self.splits(rank, size)) if self.operation == "alltoall" else self.rows

    def splits(self, rank: int, size: int) -> list[int]:
        """The rows that a rank sends to each in an alltoall."""
        return [(self.rows + rank + 2 * to) % 4 for to in range(size)]

    def values(self, rank: int, size: int, turn: int = 0) -> Array:
        """What this rank gives in the given turn: small numbers, whose sums and products every dtype holds."""
        top = 3 if self.reduction == "PRODUCT" else 9
        shape = (self.own_rows(rank, size), self.columns)
        return np.random.default_rng([self.seed, rank, turn]).integers(1, top, shape).astype(self.dtype)

    def given(self, rank: int, size: int, turn: int = 0) -> Array:
        """The same values, in the layout of the call."""
        values = self.values(rank, size, turn)
        if self.layout == "C":
            return values
        wide = np.zeros((2 * values.shape[1], 2 * values.shape[0]), values.dtype)
        wide[::2, ::2] = values.T
        return wide[::2, ::2].T


@dataclass(frozen=True)
class Program:
    """Calls, and how the ranks make them."""

    calls: tuple[Call, ...]
    orders: int | None = None
    """A seed: each rank makes the calls with a name in an order of its own. None: in the same order."""
    turns: int = 1
    """How often the calls are made, with other values; in a compiled program by the same function, reached again."""
    differs: tuple[int, Call] | None = None
    """A rank that makes another last call than the others; all must hear of it."""

    def __str__(self) -> str:
        lines = [f"orders={self.orders}, turns={self.turns}:", *map(str, self.calls)]
        return "\n  ".join([*lines, *([f"but rank {self.differs[0]}: {self.differs[1]}"] if self.differs else [])])

    def of(self, rank: int) -> "Program":
        """What this rank runs."""
        if self.differs is None or self.differs[0] != rank:
            return self
        return replace(self, calls=(*self.calls[:-1], self.differs[1]))

    def order(self, rank: int) -> list[int]:
        """The places of the calls in the order in which this rank makes them; those without a name keep theirs."""
        places = list(range(len(self.calls)))
        if self.orders is None:
            return places
        named = [i for i in places if self.calls[i].name is not None]
        shuffled = named.copy()
        random.Random(f"{self.orders} {rank}").shuffle(shuffled)
        moved = dict(zip(named, shuffled, strict=True))
        return [moved.get(i, i) for i in places]


# ---- what must come out ------------------------------------------------------------------------------


def wide(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def shares(rows: int, size: int) -> list[int]:
    """The rows of each rank, as even as can be: Horovod's rule for a reducescatter."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def cut(x: Array, counts: list[int]) -> list[Array]:
    return np.split(x, np.cumsum(counts)[:-1])


def neutral(call: Call) -> Any:
    """What rank 0 gets of an exscan: docs/reductions.md."""
    integers = np.iinfo(call.dtype) if np.dtype(call.dtype).kind in "iu" else None
    least, largest = (integers.min, integers.max) if integers else (-np.inf, np.inf)
    return {"SUM": 0, "PRODUCT": 1, "MIN": largest, "MAX": least}[call.reduction]


def folded(call: Call, inputs: list[Array], divisor: int) -> Array:
    total = FOLDS[call.reduction].reduce(
        [wide(x) * call.factors[0] if call.factors[0] != 1 else wide(x) for x in inputs]
    )
    total = total / divisor if call.reduction == "AVERAGE" else total
    return total * call.factors[1] if call.factors[1] != 1 else total


def expected(call: Call, size: int, turn: int = 0) -> list[Array | None]:
    """The result of each rank; None where a rank has none."""
    inputs = [call.values(rank, size, turn) for rank in range(size)]
    everybody = range(size)
    match call.operation:
        case "allreduce":
            return [folded(call, inputs, size)] * size
        case "reduce":
            return [folded(call, inputs, size) if rank == call.root else None for rank in everybody]
        case "reducescatter":
            return list(cut(folded(call, inputs, size), shares(call.rows, size)))
        case "scan":
            return [folded(call, inputs[: rank + 1], rank + 1) for rank in everybody]
        case "exscan":
            return [
                np.full_like(inputs[0], neutral(call)),
                *(folded(call, inputs[:rank], rank) for rank in range(1, size)),
            ]
        case "allgather":
            return [np.concatenate(inputs)] * size
        case "gather":
            return [np.concatenate(inputs) if rank == call.root else None for rank in everybody]
        case "broadcast":
            return [inputs[call.root]] * size
        case "scatter":
            return list(cut(inputs[call.root], shares(call.rows, size)))
        case "alltoall":
            parts = [cut(inputs[rank], call.splits(rank, size)) for rank in everybody]
            return [np.concatenate([parts[source][rank] for source in everybody]) for rank in everybody]
        case "sendrecv":  # around a ring
            return [inputs[(rank - 1) % size] for rank in everybody]
    raise AssertionError(call.operation)


def gradients(call: Call, size: int, turn: int, convention: str) -> list[Array]:
    """The gradient of sum(weights * result) for each rank's input, by the conventions of docs/gradients.md.

    "Horovod": with Sum the losses of all ranks count as one, with Average their mean does (horovod/torch/mpi_ops.py,
    horovod/tensorflow/mpi_ops.py, since 0.21). "own": each rank differentiates its own loss (JAX's psum, mpi4jax).
    """
    weights = [weight(call, size, rank, turn) * call.factors[0] * call.factors[1] for rank in range(size)]
    own = convention == "own"
    divisor = 1 if own else size
    match call.operation:
        case "allreduce":
            of_sums = weights if own else [np.add.reduce(weights)] * size
            return [of_sum / size if call.reduction == "AVERAGE" else of_sum for of_sum in of_sums]
        case "allgather":
            rows = [call.own_rows(rank, size) for rank in range(size)]
            return list(cut(np.add.reduce(weights) / divisor, rows))
        case "broadcast":
            on_root = np.add.reduce(weights) / divisor
            return [on_root if rank == call.root else np.zeros_like(on_root) for rank in range(size)]
        case "alltoall":
            back = [[call.splits(source, size)[rank] for source in range(size)] for rank in range(size)]
            parts = [cut(weights[rank], back[rank]) for rank in range(size)]
            return [np.concatenate([parts[to][rank] for to in range(size)]) for rank in range(size)]
        case "reducescatter":
            of_sum = np.concatenate(weights) * (1 if own else size)
            return [of_sum / size if call.reduction == "AVERAGE" else of_sum] * size
    raise AssertionError(call.operation)


def weight(call: Call, size: int, rank: int, turn: int) -> Array:
    """What the gradient tests multiply a rank's result by."""
    result = expected(call, size, turn)[rank]
    assert result is not None
    return np.random.default_rng([call.seed + 1, rank, turn]).integers(1, 5, result.shape).astype(np.float64)


def difference(call: Call, got: Array | None, want: Array | None) -> str:
    """Say how a result differs from what it must be; "" if it does not."""
    if want is None or got is None:
        return "" if want is got else f"got {got}, not {want}"
    if got.shape != want.shape:
        return f"got the shape {got.shape}, not {want.shape}"
    if str(got.dtype) != call.dtype:
        return f"got {got.dtype}, not {call.dtype}"
    same = np.allclose(wide(got), want, rtol=TOLERANCE.get(call.dtype, 0), atol=0)
    return "" if same else f"got\n{got}, not\n{want}"


# ---- any program ---------------------------------------------------------------------------------------


@st.composite
def calls(draw: st.DrawFn, operations: tuple[str, ...], dtypes: tuple[str, ...], size: int, names: int) -> Call:
    operation, dtype = draw(st.sampled_from(operations)), draw(st.sampled_from(dtypes))
    real = dtype.startswith("float")
    reduction, factors = "SUM", (1.0, 1.0)
    if operation in REDUCES:
        means = ("AVERAGE",) if real and operation not in ("scan", "exscan") else ()
        reduction = draw(st.sampled_from(("SUM", "MIN", "MAX", "PRODUCT", *means)))
        if real and reduction in ("SUM", "AVERAGE") and operation in ("allreduce", "reducescatter"):
            factors = draw(st.sampled_from(((1.0, 1.0), (0.5, 1.0), (1.0, 0.25), (2.0, 0.5))))
    return Call(
        operation=operation,
        dtype=dtype,
        rows=draw(st.sampled_from((1, 2, 3, 5, 0, 700))),
        columns=draw(st.sampled_from((1, 2, 3, 40))),
        reduction=reduction,
        root=draw(st.integers(0, size - 1)) if operation in ROOTED else 0,
        factors=factors,
        name=None if operation == "sendrecv" else draw(st.sampled_from((None, *(f"name {i}" for i in range(names))))),
        layout=draw(st.sampled_from(("C", "strided"))),
        seed=draw(st.integers(0, 99)),
    )


def unique_names(given: list[Call]) -> tuple[Call, ...]:
    """A name is in flight once: later calls of the same name lose it."""
    seen: set[str] = set()
    result = []
    for call in given:
        result.append(replace(call, name=None) if call.name in seen else call)
        seen |= {call.name} if call.name else set()
    return tuple(result)


@st.composite
def programs(
    draw: st.DrawFn, size: int, operations: tuple[str, ...] = OPERATIONS, dtypes: tuple[str, ...] = DTYPES
) -> Program:
    given = draw(st.lists(calls(operations, dtypes, size, 5), min_size=1, max_size=6))
    return Program(
        unique_names(given),
        orders=draw(st.none() | st.integers(0, 99)),
        turns=draw(st.sampled_from((1, 2, 3))),
    )


DIFFERENT: dict[str, tuple[str, ...]] = {
    "dtype": ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scan"),
    "columns": ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scan"),
    "reduction": ("allreduce", "reducescatter", "reduce", "scan"),
    "root": ("broadcast", "reduce", "gather", "scatter"),
}
"""What one rank may have otherwise, and of which operations. The number of rows of a gather may differ."""
OTHER = {"int32": "float32", "int64": "float64", "float16": "int32", "float32": "int32", "float64": "int64"}
"""Another dtype, of the same size where there is one."""


@st.composite
def disagreements(draw: st.DrawFn, size: int, operations: tuple[str, ...], dtypes: tuple[str, ...]) -> Program:
    """Programs of which one rank makes another last call."""
    program = draw(programs(size, operations, dtypes))
    what = draw(st.sampled_from([what for what, of in DIFFERENT.items() if set(of) & set(operations)]))
    chosen = tuple(name for name in DIFFERENT[what] if name in operations)
    call = replace(draw(calls(chosen, dtypes, size, 5)), rows=2, reduction="SUM", factors=(1.0, 1.0))
    other = {
        "dtype": replace(call, dtype=OTHER[call.dtype]),
        "columns": replace(call, columns=call.columns + 1),
        "reduction": replace(call, reduction="MAX"),
        "root": replace(call, root=(call.root + 1) % size),
    }[what]
    if other == call:
        other = replace(call, columns=call.columns + 1)
    given = unique_names([*program.calls[:2], call])
    other = replace(other, name=given[-1].name)
    return Program(given, differs=(draw(st.integers(0, size - 1)), other))


@st.composite
def derivable(draw: st.DrawFn, size: int, operations: tuple[str, ...], dtypes: tuple[str, ...]) -> Program:
    """Programs whose results have gradients: sums and means."""
    program = draw(programs(size, operations, dtypes))
    smooth = tuple(
        replace(call, reduction="SUM") if call.reduction in ("MIN", "MAX", "PRODUCT") else call
        for call in program.calls
    )
    return replace(program, calls=smooth)
