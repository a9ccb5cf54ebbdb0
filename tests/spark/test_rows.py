# SPDX-License-Identifier: Apache-2.0
"""How the rows of the ranks become batches; without Spark."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hpccoll import InvalidArgumentError
from hpccoll.spark.columns import to_array
from hpccoll.spark.common.backend import SparkBackend
from hpccoll.spark.estimators.job import inputs_of, labels_of
from hpccoll.spark.estimators.rows import Batch, Chunk, Cut, Order, batches

PLAIN = itertools.repeat(Order(None))


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'hpccoll[spark]'")


def chunks(rows: range, size: int) -> list[Chunk]:
    import pyarrow

    tables = [pyarrow.table({"x": list(rows[start : start + size])}) for start in range(0, len(rows), size)]
    return [Chunk(table.num_rows, lambda table=table: table) for table in tables]


def of_rank(rows: list[int], rank: int, size: int, **options: Any) -> list[Batch]:
    start = sum(rows[:rank])
    mine = chunks(range(start, start + rows[rank]), 7)
    return list(
        batches(mine, Cut.of(rows, size, options.pop("multiple", 1)), rank, options.pop("orders", PLAIN), **options)
    )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[12, 12], [10, 13, 11], [1, 30], [5]])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_the_mean_over_ranks_is_that_of_all_rows(arrow: Any, rows: list[int], batch_size: int) -> None:
    """In exact fractions: the sum of factor × mean over ranks is that of the step's rows; each row is there once."""
    ranks = [of_rank(rows, rank, batch_size) for rank in range(len(rows))]
    seen: list[int] = []
    assert len({len(steps) for steps in ranks}) == 1
    for step in zip(*ranks, strict=True):
        own = [batch.columns["x"].tolist() if batch.rows else [] for batch in step]
        together = list(itertools.chain(*own))
        mean = sum(Fraction(batch.factor).limit_denominator(10**6) * Fraction(sum(x), max(len(x), 1))
                   for batch, x in zip(step, own, strict=True)) / len(rows)  # fmt: skip
        assert mean == Fraction(sum(together), len(together))
        assert all(len(batch.columns["x"]) == max(batch.rows, 1) <= max(batch_size, 1) for batch in step)
        seen += together
    assert sorted(seen) == list(range(sum(rows)))


@pytest.mark.slow
def test_equal_ranks_have_full_batches(arrow: Any) -> None:
    assert [batch.rows for batch in of_rank([12, 12], 0, 4)] == [4, 4, 4]
    assert {batch.factor for batch in of_rank([12, 12], 1, 4)} == {1.0}


@pytest.mark.slow
def test_passes_of_an_optimizer_fit_into_an_epoch(arrow: Any) -> None:
    assert len(of_rank([10, 10], 0, 4, multiple=2)) == 4
    assert [batch.rows for batch in of_rank([8], 0, 4, multiple=2)] == [4, 4]


def test_ranks_cut_their_rows_into_as_many_batches() -> None:
    cut = Cut.of([10, 3, 7], 4)
    assert [cut.batch(step).tolist() for step in range(cut.steps)] == [[3, 1, 2], [3, 1, 2], [4, 1, 3]]


def test_a_rank_without_rows_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="rank 1 has no rows to train with: 3 on 2 ranks"):
        Cut.of([3, 0], 2)


@pytest.mark.slow
@pytest.mark.parametrize("window", [3, 20, 1000])
def test_an_epoch_has_each_row_once_in_a_new_order(arrow: Any, window: int) -> None:
    epochs = [
        np.concatenate([b.columns["x"] for b in of_rank([50], 0, 8, orders=[Order([1, epoch], window)])]).tolist()
        for epoch in (0, 1, 0)
    ]
    assert [sorted(epoch) for epoch in epochs] == [list(range(50))] * 3
    assert epochs[0] == epochs[2] != epochs[1]
    assert epochs[0] != list(range(50))


@pytest.mark.slow
def test_more_steps_than_rows_begin_again(arrow: Any) -> None:
    steps = of_rank([6], 0, 2, steps=5)
    assert [batch.columns["x"].tolist() for batch in steps] == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]


@pytest.mark.slow
def test_each_row_is_changed(arrow: Any) -> None:
    (batch,) = of_rank([3], 0, 8, change=lambda row: {"y": np.array([row["x"], -row["x"]])})
    assert batch.columns["y"].tolist() == [[0, 0], [1, -1], [2, -2]]


@pytest.mark.slow
def test_a_row_that_is_changed_in_place_is_changed_once(arrow: Any) -> None:
    """On a rank with fewer rows than steps a row came again behind a step without rows, changed already."""
    table = arrow.table({"x": [[1.0], [2.0], [3.0], [4.0]]})

    def tenfold(row: dict[str, Any]) -> dict[str, Any]:
        row["x"] *= 10
        return row

    steps = batches([Chunk(4, lambda: table)], Cut.of([9, 4], 1), 1, PLAIN, change=tenfold)
    assert [batch.columns["x"].tolist() for batch in steps if batch.rows] == [[[10]], [[20]], [[30]], [[40]]]


@pytest.mark.slow
def test_arrays_of_other_lengths_in_other_chunks_are_named(arrow: Any) -> None:
    tables = [arrow.table({"v": [[1.0] * length] * 2}) for length in (2, 1)]
    for window in (65536, 2):
        pieces = [Chunk(2, lambda table=table: table) for table in tables]
        with pytest.raises(InvalidArgumentError, match=r"the arrays of column v have the shapes \(2,\), \(1,\)"):
            list(batches(pieces, Cut.of([4], 3), 0, [Order(None, window)]))


@pytest.mark.slow
def test_columns_become_arrays(arrow: Any) -> None:
    pyarrow = arrow
    assert to_array(pyarrow.array([1.5, 2.5]), "a").tolist() == [1.5, 2.5]
    assert to_array(pyarrow.array([True, False]), "a").tolist() == [True, False]
    assert to_array(pyarrow.array([[[1, 2]], [[3, 4]]]), "a").shape == (2, 1, 2)
    assert to_array(pyarrow.array([[0], [1], [2]]).slice(1, 2), "a").tolist() == [[1], [2]]
    assert to_array(pyarrow.chunked_array([[1], [2, 3]]), "a").tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="column a has 1 rows without a value"):
        to_array(pyarrow.array([1, None]), "a")
    with pytest.raises(InvalidArgumentError, match="the arrays of column a have 1 to 2 elements"):
        to_array(pyarrow.array([[1], [1, 2]]), "a")


def as_it_is(values: Any, _name: str) -> Any:
    return values


def test_shapes_are_those_of_all_rows_or_of_one() -> None:
    """Horovod's own tests give [[2]] for a vector of two numbers."""
    columns = {"v": np.arange(24.0).reshape(4, 6), "n": np.arange(4.0)}
    for shape in ([-1, 2, 3], [4, 2, 3], [2, 3]):
        (made,) = inputs_of(columns, ["v"], 1, [shape], as_it_is)
        np.testing.assert_array_equal(made, columns["v"].reshape(4, 2, 3))
    for shape in ([-1, 1], [1], [-1, 1, 1], [-1]):
        (made,) = labels_of(columns, ["n"], [shape], as_it_is)
        assert len(made) == 4 and made.ravel().tolist() == [0, 1, 2, 3]


def test_a_shape_that_does_not_fit_names_the_column() -> None:
    """Half as many rows of twice the numbers were silent; another number of them was NumPy's error."""
    columns = {"v": np.zeros((4, 6)), "n": np.zeros(4)}
    for shape in ([-1, 12], [-1, 5], [3], [2, 12]):
        with pytest.raises(
            InvalidArgumentError, match=r"column v has 6 numbers per row, which do not fit the shape \["
        ):
            inputs_of(columns, ["v"], 1, [shape], as_it_is)
    with pytest.raises(InvalidArgumentError, match=r"columns v, n has 7 numbers per row"):
        inputs_of(columns, ["v", "n"], 1, [[-1, 6]], as_it_is)
    with pytest.raises(InvalidArgumentError, match="there are 1 shapes for 2 arrays, of columns v, n"):
        labels_of(columns, ["v", "n"], [[-1, 6]], as_it_is)


def test_a_backend_refuses_what_it_does_not_know() -> None:
    """A misspelled argument had no effect."""
    assert SparkBackend(2, use_mpi=False, use_gloo=True, stdout=None, verbose=2).num_proc == 2
    with pytest.raises(InvalidArgumentError, match="SparkBackend has no parameter nic"):
        SparkBackend(num_proc=2, nic="eth1")
