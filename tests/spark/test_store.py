# SPDX-License-Identifier: Apache-2.0
"""The store, by a path and by a URL of fsspec; without Spark."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # with pyarrow


@pytest.fixture(params=["", "file://", "local://"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a store; the last one is of fsspec, as one of a remote file system."""
    pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'hpccoll[spark]'")
    if request.param == "local://":
        pytest.importorskip("fsspec")
    from hpccoll.spark.common.store import Store

    return Store.create(f"{request.param}{tmp_path}/store/")


def test_a_checkpoint_is_replaced(store: Any, tmp_path: Path) -> None:
    path = store.get_checkpoint_path("mine")
    assert not store.exists(path)
    store.write(path, b"first")
    store.write(path, b"second")
    assert store.exists(path) and store.read(path) == b"second"
    assert [file.name for file in (tmp_path / "store" / "runs" / "mine").iterdir()] == ["checkpoint.pickle"]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_ranks_share_the_rows_to_one(store: Any, size: int) -> None:
    import pyarrow

    from hpccoll.spark.common.store import Group, StoredRows

    counts, at, groups = ([10, 1, 4], [5, 12]), 0, []
    store.write(f"{store.prefix_path}/data/x", b"")  # makes the folder
    for number, file in enumerate(counts):
        path = f"{store.prefix_path}/data/{number}.parquet"
        with store.writer(path, pyarrow.schema([("x", pyarrow.int64())])) as writer:
            for group, rows in enumerate(file):
                writer.write_batch(pyarrow.RecordBatch.from_pydict({"x": list(range(at, at + rows))}))
                groups.append(Group(path, group, rows))
                at += rows
    shares = [StoredRows(store, groups, []).chunks(rank, size)[0] for rank in range(size)]
    values = [[chunk.read().column("x").to_pylist() for chunk in own] for own in shares]
    assert [len(rows) for own in values for rows in own] == [chunk.rows for own in shares for chunk in own]
    flat = [[x for rows in own for x in rows] for own in values]
    assert [x for own in flat for x in own] == list(range(32))
    assert max(map(len, flat)) - min(map(len, flat)) <= 1
