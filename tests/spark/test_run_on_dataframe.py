# SPDX-License-Identifier: Apache-2.0
"""hpccoll.spark.run_on_dataframe: each rank has its rows."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def rows(batches: Sequence[Any], *, name: str = "id") -> tuple[int, list[float], list[float], str]:
    """Read the rows twice, as two epochs do."""
    rank = hpccoll.init().rank
    values = [batch.column(name).to_pylist() for batch in batches]
    again = [batch.column(name).to_pylist() for batch in batches]
    sums = hpccoll.allreduce(np.array([float(sum(map(sum, values)))]), hpccoll.SUM)
    hpccoll.shutdown()
    flat = [value for batch in again for value in batch]
    return rank, flat, sums.tolist(), os.environ["_HPCCOLL_SPARK_ROWS"]


def fails(batches: Sequence[Any]) -> None:
    if hpccoll.init().rank == 1:
        raise ValueError(f"{sum(batch.num_rows for batch in batches)} rows")
    hpccoll.allreduce(np.ones(1))


@pytest.fixture
def run(by_value: Any) -> Any:
    import hpccoll.spark

    return hpccoll.spark.run_on_dataframe


def test_every_row_is_on_one_rank(run: Any, spark: Any) -> None:
    results = run(rows, spark.range(0, 30000, 1, 5), kwargs={"name": "id"}, num_proc=3)
    assert [rank for rank, *_ in results] == [0, 1, 2]
    assert sorted(value for _, values, *_ in results for value in values) == list(range(30000))
    assert {total for *_, (total,), _ in results} == {sum(range(30000))}
    assert max(abs(len(values) - 10000) for _, values, *_ in results) <= 5  # each of 5 partitions is dealt out
    assert not [folder for *_, folder in results if Path(folder).exists()]


def test_a_rank_without_rows_and_partitions_as_they_are(run: Any, spark: Any) -> None:
    df = spark.range(0, 100, 1, 2).where("id >= 50")
    results = run(rows, df, num_proc=2, repartition=False)
    assert sorted(values for _, values, *_ in results) == [[], list(range(50, 100))]
    with pytest.raises(hpccoll.InvalidArgumentError, match="3 ranks, and the DataFrame has 2 partitions"):
        run(rows, df, num_proc=3, repartition=False)


def test_a_data_frame_without_rows_is_refused(run: Any, spark: Any) -> None:
    """Spark's optimizer makes no tasks for it, so no rank ran, and the results were an empty list."""
    from hpccoll.tools.launch.job import LaunchError

    df = spark.range(0, 100, 1, 2)
    for empty in (df.limit(0), df.where("false")):
        with pytest.raises(LaunchError, match="0 tasks for 3 ranks: the DataFrame has no rows"):
            run(rows, empty, num_proc=3)


def test_vectors_are_arrays(run: Any, spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    table = [(Vectors.dense([1.0, 2.0]),), (Vectors.sparse(2, {1: 3.0}),)]
    df = spark.createDataFrame(table, ["v"])
    batches = run(lambda batches: [batch.to_pydict() for batch in batches], df.coalesce(1), num_proc=1)
    assert batches == [[{"v": [[1.0, 2.0], [0.0, 3.0]]}]]
    with pytest.raises(hpccoll.InvalidArgumentError, match=r"the name of column v\.w has a dot"):
        run(rows, spark.createDataFrame(table, ["v.w"]), num_proc=1)


def test_an_exception_names_its_rank(run: Any, spark: Any) -> None:
    with pytest.raises(hpccoll.RankError, match="50 rows") as raised:
        run(fails, spark.range(0, 100, 1, 2), num_proc=2)
    assert raised.value.rank == 1


def test_an_older_spark_is_refused(run: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpccoll.tools.launch.job import LaunchError

    monkeypatch.setattr("pyspark.__version__", "3.4.2")
    with pytest.raises(LaunchError, match=r"needs Spark 3.5 or later, and this is 3.4.2"):
        run(rows, spark.range(4), num_proc=2)
