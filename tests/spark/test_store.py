# SPDX-License-Identifier: Apache-2.0
"""The store, by a path and by a URL of fsspec; without Spark."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpccoll import InvalidArgumentError
from hpccoll.spark.common import store as stores
from hpccoll.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

slow = pytest.mark.slow  # with pyarrow


@pytest.fixture(params=["", "file://", "local://"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a store; the last one is of fsspec, as one of a remote file system."""
    pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'hpccoll[spark]'")
    if request.param == "local://":
        pytest.importorskip("fsspec")
    return Store.create(f"{request.param}{tmp_path}/store/")


@slow
@pytest.mark.parametrize("torn", [b"", b"\x80", pickle.dumps({"epochs": 1})[:-3], pickle.dumps([1]), b"PK\x03\x04"])
def test_a_torn_checkpoint_is_named(store: Any, torn: bytes) -> None:
    """It was an error of pickle alone; an empty file began the run anew, and was overwritten."""
    from hpccoll.spark.estimators.job import Job

    path = store.get_checkpoint_path("mine")
    job = Job(("x",), ("y",), "", {"store": store}, 0, "mine")
    assert job.resumed() == {}
    job.save({"epochs": 2})
    assert replace(job, checkpoint=store.read(path)).resumed() == {"epochs": 2}
    store.write(path, torn)
    said = rf"^{re.escape(path)} holds no state of run mine \({len(torn)} bytes; .*\): .*, or remove it, and the run"
    with pytest.raises(InvalidArgumentError, match=said):
        replace(job, checkpoint=store.read(path)).resumed()


@slow
def test_a_checkpoint_is_replaced(store: Any, tmp_path: Path) -> None:
    path = store.get_checkpoint_path("mine")
    assert not store.exists(path)
    store.write(path, b"first")
    store.write(path, b"second")
    assert store.exists(path) and store.read(path) == b"second"
    assert store.exists(store.get_run_path("mine")) and not store.exists(store.get_run_path("other"))
    assert [file.name for file in (tmp_path / "store" / "runs" / "mine").iterdir()] == ["checkpoint.pickle"]


@slow
@pytest.mark.parametrize("size", [1, 3, 7])
def test_ranks_share_the_rows_to_one(store: Any, size: int) -> None:
    import pyarrow

    counts, at, groups = ([10, 1, 4], [5, 12]), 0, []
    store.write(f"{store.prefix_path}/data/x", b"")  # makes the folder
    for number, file in enumerate(counts):
        path = f"{store.prefix_path}/data/{number}.parquet"
        with store.writer(path, pyarrow.schema([("x", pyarrow.int64())])) as writer:
            for group, rows in enumerate(file):
                writer.write_batch(pyarrow.RecordBatch.from_pydict({"x": list(range(at, at + rows))}))
                groups.append(stores.Group(path, group, rows))
                at += rows
    shares = [stores.StoredRows(store, groups, []).chunks(rank, size)[0] for rank in range(size)]
    values = [[chunk.read().column("x").to_pylist() for chunk in own] for own in shares]
    assert [len(rows) for own in values for rows in own] == [chunk.rows for own in shares for chunk in own]
    flat = [[x for rows in own for x in rows] for own in values]
    assert [x for own in flat for x in own] == list(range(32))
    assert max(map(len, flat)) - min(map(len, flat)) <= 1


@slow
def test_a_text_is_written_as_utf_8(store: Any) -> None:
    path = f"{store.get_logs_path('mine')}/notes"
    store.write_text(path, "é")
    assert store.read(path) == b"\xc3\xa9"


@pytest.mark.parametrize(
    ("path", "kind", "prefix"),
    [
        ("/scratch/me/", FilesystemStore, "/scratch/me"),
        ("file:///scratch/me", FilesystemStore, "file:///scratch/me"),
        ("s3://bucket/me", FilesystemStore, "s3://bucket/me"),
        ("hdfs://namenode:8020/user/me", HDFSStore, "hdfs://namenode:8020/user/me"),
        ("hdfs:///user/me", HDFSStore, "hdfs:///user/me"),
        ("dbfs:/user/me", DBFSLocalStore, "/dbfs/user/me"),
        ("/dbfs/user/me", DBFSLocalStore, "/dbfs/user/me"),
        ("file:///dbfs/user/me", DBFSLocalStore, "/dbfs/user/me"),
        ("file:/dbfs/user/me", DBFSLocalStore, "/dbfs/user/me"),
        ("/dbfs2/me", FilesystemStore, "/dbfs2/me"),
        ("dbfs://me", FilesystemStore, "dbfs://me"),
        ("file:/scratch/me", FilesystemStore, "file:///scratch/me"),  # Hadoop's form
        ("me/", FilesystemStore, f"{Path.cwd()}/me"),
    ],
)
def test_a_path_has_the_class_of_horovods(path: str, kind: type[Store], prefix: str) -> None:
    made = Store.create(path)
    assert (type(made), made.prefix_path) == (kind, prefix)
    assert issubclass(LocalStore, FilesystemStore) and LocalStore(path).get_runs_path().endswith("/runs")


def test_the_folders_of_a_run() -> None:
    made = Store.create("/scratch/me", runs_path="/home/me/runs/", checkpoint_filename="last", save_runs=False)
    assert made.get_run_path("a") == "/home/me/runs/a"
    assert made.get_checkpoint_path("a") == "/home/me/runs/a/last"
    assert made.get_logs_path("a") == "/home/me/runs/a/logs"
    assert not made.saving_runs()
    assert Store.create("/scratch/me").saving_runs()
    assert pickle.loads(pickle.dumps(made)).__dict__ == made.__dict__


@pytest.mark.parametrize(
    ("prefix", "given", "full"),
    [
        ("/me", "/data/a/", "/data/a"),
        ("s3://bucket/me", "s3://other/a", "s3://other/a"),
        ("hdfs://name:1/me", "/data/a", "hdfs://name:1/data/a"),
        ("hdfs:///me", "hdfs://other/a", "hdfs://other/a"),
        ("dbfs:/me", "dbfs:/a", "/dbfs/a"),
        ("me", "data/../a", f"{Path.cwd()}/a"),
        ("file:/me", "file:/a", "file:///a"),
    ],
)
def test_the_folders_of_data(prefix: str, given: str, full: str) -> None:
    made = Store.create(prefix, train_path=given, runs_path=given)
    assert (made.get_train_data_path(), made.get_train_data_path(3)) == (full, f"{full}.3")
    assert made.get_val_data_path() == f"{made.prefix_path}/intermediate_val_data"
    assert made.get_test_data_path(0) == f"{made.prefix_path}/intermediate_test_data.0"
    assert made.get_run_path("x") == f"{full}/x"
    assert made.for_spark(full) == (full if "://" in full else f"file://{full}")


@pytest.mark.parametrize(
    ("arguments", "prefix", "options"),
    [
        (("/user/me",), "hdfs:///user/me", {}),
        (("/user/me", "namenode"), "hdfs://namenode/user/me", {}),
        (("hdfs://NameService1/a#b?c", None, 9000, "me"), "hdfs://NameService1:9000/a#b?c", {"user": "me"}),
        (("hdfs://you@one:1/x", "two", 2), "hdfs://two:2/x", {"user": "you"}),
        (("hdfs://one:1/x", "default", 0), "hdfs:///x", {}),
        (
            ("/x", None, None, None, "/tmp/krb5cc", "libhdfs", {"dfs.replication": "1"}),
            "hdfs:///x",
            {"kerb_ticket": "/tmp/krb5cc", "extra_conf": {"dfs.replication": "1"}},
        ),
    ],
)
def test_arguments_of_hdfs(arguments: Any, prefix: str, options: dict[str, Any]) -> None:
    made = HDFSStore(*arguments, storage_options={"replication": 2})
    assert (made.prefix_path, made._options) == (prefix, {"replication": 2, **options})
    found = pytest.importorskip("fsspec.implementations.arrow").HadoopFileSystem._get_kwargs_from_urls(prefix)
    assert f"{found.get('host', '')}:{found.get('port', '')}" == prefix.split("/")[2] + ":" * (":" not in prefix[7:])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: Store.create("/x", driver="libhdfs"),
            "FilesystemStore: a path of the local file system, /x, has no .* driver",
        ),
        (lambda: LocalStore("file:///x", storage_options={"key": 1}), "LocalStore: .* file:///x, has no options: key"),
        (lambda: HDFSStore("s3://bucket/me"), "HDFSStore: s3://bucket/me is none of hdfs://HOST:PORT/PATH"),
        (lambda: HDFSStore("hdfs:///"), "HDFSStore: hdfs:/// is none of"),
        (lambda: HDFSStore("hdfs://host:port/x"), "HDFSStore: hdfs://host:port/x is none of"),
        (lambda: HDFSStore("relative"), "HDFSStore: relative is none of"),
        (lambda: HDFSStore("/x", port=8020), "HDFSStore: the port 8020 has no host"),
        (lambda: HDFSStore("/x", driver="libhdfs3"), "HDFSStore: driver='libhdfs3': pyarrow has 'libhdfs' alone"),
        (lambda: DBFSLocalStore("/tmp/x"), "DBFSLocalStore: /tmp/x begins with none of dbfs:/, /dbfs/"),
    ],
)
def test_a_wrong_store_is_an_error(wrong: Callable[[], Store], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        wrong()
