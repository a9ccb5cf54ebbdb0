# SPDX-License-Identifier: Apache-2.0
"""A store: a folder for the rows of an estimator, as Parquet, and for the checkpoints of its runs.

It is a local path, which all executors must see, or a URL of fsspec. Spark's tasks write the rows by pyarrow, so that
Spark itself needs no file system for the URL. One class serves all of them; LocalStore, HDFSStore and DBFSLocalStore
are Horovod's names for the paths and arguments that these have there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hpccoll import durable
from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.rows import Chunk
from hpccoll.spark.spool import TRAINING, VALIDATION, parts

__all__ = ["DBFSLocalStore", "FilesystemStore", "Group", "HDFSStore", "LocalStore", "Store", "StoredRows"]


HDFS_URL = re.compile(r"(?:hdfs://(?:(?P<user>[^/@]*)@)?(?P<host>[^/:@]*)(?::(?P<port>\d+))?)?(?P<path>/+[^/].*)")
KINDS = "kind string, group string"
"""What a task returns of each row group: TRAINING or VALIDATION, and the Group."""


class Group(NamedTuple):
    """A row group of a Parquet file."""

    file: str
    number: int
    rows: int


class Store:
    """A folder, by its path or URL.

    >>> store = Store.create("/scratch/me")  # or "s3://bucket/me", with fsspec and s3fs
    """

    def __init__(
        self,
        prefix_path: str,
        *,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        **options: Any,
    ) -> None:
        """Name the folder.

        :param prefix_path: the path or URL
        :param train_path: Parquet files for `fit_on_parquet()`; None: `intermediate_train_data` in `prefix_path`
        :param val_path: Parquet files for validation there; None: `intermediate_val_data`, if that is there
        :param test_path: Parquet files of the program's own; None: `intermediate_test_data`
        :param runs_path: the folder of the runs; None: `runs` in `prefix_path`
        :param save_runs: save the state of a run after each epoch
        :param storage_options: of fsspec's file system
        :param checkpoint_filename: the name of the file with this state; None: `checkpoint.pickle`
        :param options: further ones of `storage_options`
        :raises InvalidArgumentError: (a ValueError) there are options for the local file system
        """
        self.prefix_path = self._full(prefix_path)
        given = {"train": train_path, "val": val_path, "test": test_path}
        self._data = {
            kind: self._full(path) if path else f"{self.prefix_path}/intermediate_{kind}_data"
            for kind, path in given.items()
        }
        self._val_path_given = val_path is not None
        self._runs_path = self._full(runs_path) if runs_path else f"{self.prefix_path}/runs"
        self._save_runs, self._checkpoint = save_runs, checkpoint_filename or "checkpoint.pickle"
        self._options = {**(storage_options or {}), **options}
        if self._options and self._is_local(self.prefix_path):
            raise InvalidArgumentError(
                f"{type(self).__name__}: a path of the local file system, {self.prefix_path}, has no options: "
                f"{', '.join(self._options)}"
            )

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """Return the store for a path or URL, as Horovod's function of this name.

        :param args: arguments of the class: HDFSStore, DBFSLocalStore for paths of Databricks, FilesystemStore
        """
        of_path = (one for one in (HDFSStore, DBFSLocalStore) if one.matches(prefix_path))
        return next(of_path, FilesystemStore)(prefix_path, *args, **kwargs)

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Return the folder of Parquet files for `fit_on_parquet()`.

        :param idx: appended as `.IDX`, for several data sets
        """
        return self._data_path("train", idx)

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Return the folder of Parquet files for validation; see get_train_data_path."""
        return self._data_path("val", idx)

    def has_val_data(self, idx: int | None = None) -> bool:
        """Return whether there are files for validation: `val_path` was given, or there is its default."""
        return self._val_path_given or self.exists(self.get_val_data_path(idx))

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Return the folder of Parquet files of the program's own; see get_train_data_path."""
        return self._data_path("test", idx)

    def _data_path(self, kind: str, idx: int | None) -> str:
        return self._data[kind] if idx is None else f"{self._data[kind]}.{idx}"

    def _full(self, path: str) -> str:
        """Return the URL or the absolute path of a folder: executors and ranks have other working directories."""
        path = re.sub("^file:(?!//)", "file://", str(path))
        return (path if "://" in path else os.path.abspath(path)).rstrip("/")

    def saving_runs(self) -> bool:
        """Return whether the states of runs are saved."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """Return the folder of the runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Return the folder of a run."""
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_filename(self) -> str:
        """Return the name of the file with the state of a run."""
        return self._checkpoint

    def get_checkpoint_path(self, run_id: str) -> str:
        """Return the file with the state of a run after its last epoch."""
        return f"{self.get_run_path(run_id)}/{self._checkpoint}"

    def get_logs_subdir(self) -> str:
        """Return the name of the folder for logs in that of a run."""
        return "logs"

    def get_logs_path(self, run_id: str) -> str:
        """Return a folder for the logs of a run, which the program writes itself."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this path or URL."""
        from pyarrow.fs import FileType

        system, at = self._system(path)
        return bool(system.get_file_info(at).type != FileType.NotFound)

    def read(self, path: str) -> bytes:
        """Read a file."""
        system, at = self._system(path)
        with system.open_input_file(at) as file:
            return bytes(file.read())

    def write(self, path: str, data: bytes) -> None:
        """Write a file, which is complete or not there."""
        system, at = self._system(path)
        system.create_dir(at.rpartition("/")[0], recursive=True)
        if self._is_local(path):
            with durable.replacing(Path(at)) as fresh:
                fresh.write_bytes(data)
            return
        with system.open_output_stream(f"{at}.partial") as file:
            file.write(data)
        system.move(f"{at}.partial", at)

    def write_text(self, path: str, text: str) -> None:
        """Write a file, in UTF-8, which is complete or not there."""
        self.write(path, text.encode())

    @contextlib.contextmanager
    def rows(self, frame: Any, mask: str) -> Iterator[StoredRows]:
        """Write a DataFrame as Parquet, which is there as long as this context.

        :param frame: has columns that Arrow has
        :param mask: see hpccoll.spark.spool.spooled
        """
        folder = f"{self.prefix_path}/data/{secrets.token_hex(8)}"
        system, at = self._system(folder)
        system.create_dir(at, recursive=True)
        try:
            written = frame.mapInArrow(functools.partial(_write, self, folder, mask), KINDS).collect()
            groups = [(row.kind, Group(*json.loads(row.group))) for row in written]
            training, validation = ([one for kind, one in groups if kind == name] for name in (TRAINING, VALIDATION))
            yield StoredRows(self, training, validation)
        finally:
            system.delete_dir(at)

    def open(self, path: str) -> Any:
        """Open a Parquet file."""
        import pyarrow.parquet

        system, at = self._system(path)
        return pyarrow.parquet.ParquetFile(at, filesystem=system)

    def writer(self, path: str, schema: Any) -> Any:
        """Begin a Parquet file."""
        import pyarrow.parquet

        system, at = self._system(path)
        return pyarrow.parquet.ParquetWriter(at, schema, filesystem=system)

    def for_spark(self, path: str) -> str:
        """Return a path as a URL for Spark, to which a path belongs to its default file system."""
        return f"file://{path}" if self._is_local(path) and "://" not in path else path

    @staticmethod
    def _is_local(path: str) -> bool:
        return "://" not in path or path.startswith("file://")

    def _system(self, path: str) -> tuple[Any, str]:
        from pyarrow import fs

        if self._is_local(path):
            return fs.LocalFileSystem(), path.removeprefix("file://")
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ImportError(f"the store {path} needs fsspec: pip install fsspec") from error
        system, at = url_to_fs(path, **self._options)
        return fs.PyFileSystem(fs.FSSpecHandler(system)), at


class FilesystemStore(Store):
    """Horovod's name for a store at a local path, or at a URL of fsspec."""


class LocalStore(FilesystemStore):
    """Horovod's older name for it."""


class HDFSStore(Store):
    """A store in Hadoop's file system, by pyarrow and fsspec; the executors need Hadoop's libraries.

    >>> store = HDFSStore("hdfs://namenode:8020/user/me")  # or "hdfs:///user/me", or "/user/me"
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | str | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Name the folder.

        :param prefix_path: the URL, or the path
        :param host: of the namenode, in place of that of the URL; None: that of Hadoop's configuration
        :param port: of the namenode, in place of that of the URL
        :param user: the user; None: the one of the process
        :param kerb_ticket: the path of a cache of Kerberos tickets
        :param driver: pyarrow has `libhdfs` alone
        :param extra_conf: further configuration of Hadoop
        :param more: of Store
        :raises InvalidArgumentError: (a ValueError) it is no URL or path of Hadoop, or another driver
        """
        url = HDFS_URL.fullmatch(str(prefix_path))
        if not url:
            raise InvalidArgumentError(
                f"HDFSStore: {prefix_path} is none of hdfs://HOST:PORT/PATH, hdfs:///PATH, /PATH"
            )
        if driver != "libhdfs":
            raise InvalidArgumentError(f"HDFSStore: driver={driver!r}: pyarrow has 'libhdfs' alone")
        host, port = host or url["host"] or "", port or url["port"]
        if port and not host:
            raise InvalidArgumentError(f"HDFSStore: the port {port} has no host")
        if host == "default":  # Horovod's word for that of Hadoop's configuration
            host, port = "", None
        given = {
            "user": user or url["user"],
            "kerb_ticket": kerb_ticket,
            "extra_conf": extra_conf and dict(extra_conf),
        }
        options = {**(more.pop("storage_options", None) or {}), **{name: one for name, one in given.items() if one}}
        place = f"hdfs://{host}:{port}" if port else f"hdfs://{host}"
        self._place = place
        super().__init__(f"{place}{url['path']}", storage_options=options, **more)

    def _full(self, path: str) -> str:
        return super()._full(f"{self._place}{path}" if str(path).startswith("/") else path)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Return whether this is a URL of Hadoop's file system."""
        return str(path).startswith("hdfs://")


class DBFSLocalStore(Store):
    """A store in the file system of Databricks, which is the folder `/dbfs` of each machine.

    >>> store = DBFSLocalStore("dbfs:/user/me")  # or "/dbfs/user/me", "file:///dbfs/user/me", "file:/dbfs/user/me"
    """

    FORMS: ClassVar = ("dbfs:/", "/dbfs/", "file:///dbfs/", "file:/dbfs/")

    def __init__(self, prefix_path: str, **more: Any) -> None:
        """Name the folder.

        :param prefix_path: the path, in one of its forms
        :param more: of Store
        :raises InvalidArgumentError: (a ValueError) it has none of them
        """
        super().__init__(self.normalize_path(prefix_path), **more)

    def _full(self, path: str) -> str:
        return super()._full(self.normalize_path(path))

    @classmethod
    def matches(cls, path: str) -> bool:
        """Return whether this is a path of Databricks' file system."""
        return not str(path).startswith("dbfs://") and str(path).startswith(cls.FORMS)

    matches_dbfs = matches

    @classmethod
    def normalize_path(cls, path: str) -> str:
        """Return the path as `/dbfs/...`.

        :raises InvalidArgumentError: (a ValueError) it is no path of Databricks' file system
        """
        if not cls.matches(path):
            raise InvalidArgumentError(f"DBFSLocalStore: {path} begins with none of {', '.join(cls.FORMS)}")
        form = next(one for one in cls.FORMS if str(path).startswith(one))
        return "/dbfs/" + str(path)[len(form) :].lstrip("/")


class StoredRows:
    """The rows in a store; a Source. A rank has a range of all rows, and reads the row groups that it touches."""

    def __init__(self, store: Store, training: Sequence[Group], validation: Sequence[Group]) -> None:
        self._store, self._training, self._validation = store, training, validation

    def chunks(self, rank: int, size: int) -> tuple[list[Chunk], list[Chunk]]:
        """See Source."""
        opened = functools.lru_cache(maxsize=8)(self._store.open)
        return _share(self._training, rank, size, opened), _share(self._validation, rank, size, opened)


def _share(groups: Sequence[Group], rank: int, size: int, opened: Any) -> list[Chunk]:
    total = sum(group.rows for group in groups)
    first, last, at = total * rank // size, total * (rank + 1) // size, 0
    chunks = []
    for group in groups:
        low, high = max(first, at), min(last, at + group.rows)
        if low < high:
            chunks.append(Chunk(high - low, functools.partial(_read, opened, group, low - at, high - low)))
        at += group.rows
    return chunks


def _read(opened: Any, group: Group, start: int, rows: int) -> Any:
    return opened(group.file).read_row_group(group.number).slice(start, rows)


def _write(store: Store, folder: str, mask: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the rows of a task; an attempt that fails leaves files of other names than the next."""
    import pyarrow

    unique, groups = secrets.token_hex(8), []
    with contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}
        counts = {TRAINING: 0, VALIDATION: 0}
        for batch in batches:
            for kind, part in parts(batch, mask):
                if not part.num_rows:
                    continue
                path = f"{folder}/{kind.partition('.')[0]}-{unique}.parquet"
                if kind not in files:
                    files[kind] = stack.enter_context(store.writer(path, part.schema))
                files[kind].write_batch(part, row_group_size=part.num_rows)
                groups.append((kind, json.dumps(Group(path, counts[kind], part.num_rows))))
                counts[kind] += 1
    yield pyarrow.RecordBatch.from_arrays(
        [pyarrow.array([one[at] for one in groups], pyarrow.string()) for at in range(2)], ["kind", "group"]
    )
