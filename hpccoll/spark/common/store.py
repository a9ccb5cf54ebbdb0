# SPDX-License-Identifier: Apache-2.0
"""A store: a folder for the rows of an estimator, as Parquet, and for the checkpoints of its runs.

It is a local path, which all executors must see, or a URL of fsspec. Spark's tasks write the rows by pyarrow, so that
Spark itself needs no file system for the URL.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hpccoll import durable
from hpccoll.spark.estimators.rows import Chunk
from hpccoll.spark.spool import TRAINING, VALIDATION, parts

__all__ = ["Group", "Store", "StoredRows"]


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

    def __init__(self, prefix_path: str, **options: Any) -> None:
        """Name the folder.

        :param prefix_path: the path or URL
        :param options: of fsspec's file system
        """
        self.prefix_path = str(prefix_path).rstrip("/")
        self._options = options

    @staticmethod
    def create(prefix_path: str, **options: Any) -> Store:
        """Return a store, as Horovod's function of this name."""
        return Store(prefix_path, **options)

    def get_run_path(self, run_id: str) -> str:
        """Return the folder of a run."""
        return f"{self.prefix_path}/runs/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        """Return the file with the state of a run after its last epoch."""
        return f"{self.get_run_path(run_id)}/checkpoint.pickle"

    def exists(self, path: str) -> bool:
        """Return whether there is a file of this path or URL."""
        from pyarrow.fs import FileType

        system, at = self._system(path)
        return bool(system.get_file_info(at).type == FileType.File)

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
