# SPDX-License-Identifier: Apache-2.0
"""The rows of a task in Arrow IPC files of its machine, and the rank that maps them into its memory.

A rank is another process than the task that gets the rows, and reads them in every epoch. Mapped files serve both: the
rows are in the page cache while the machine has memory for them, and on the disk beyond that.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hpccoll import inherited

__all__ = ["ROWS", "TRAINING", "VALIDATION", "Batches", "here", "on_rank", "parts", "spooled"]

ROWS = "_HPCCOLL_SPARK_ROWS"
"""The variable that holds the folder of the rank's rows."""
TRAINING, VALIDATION = "training.arrow", "validation.arrow"


@contextlib.contextmanager
def spooled(batches: Iterable[Any], mask: str = "") -> Iterator[dict[str, str]]:
    """Write the rows into files that are there as long as this context.

    They are in Spark's local directory (`spark.local.dir`), which Spark removes with the executor.

    :param batches: pyarrow.RecordBatch
    :param mask: a column of booleans, which is not written: rows where it is true go to VALIDATION; "": none
    :returns: the variables for the rank
    """
    local = inherited.environment().get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with tempfile.TemporaryDirectory(prefix="hpccoll-", dir=local) as folder, contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}
        for batch in batches:
            for name, part in parts(batch, mask):
                if part.num_rows and name not in files:
                    files[name] = stack.enter_context(_new_file(Path(folder, name), part.schema))
                if part.num_rows:
                    files[name].write_batch(part)
        stack.close()
        yield {ROWS: folder}


def parts(batch: Any, mask: str) -> Iterator[tuple[str, Any]]:
    """Part the rows of a batch into those for training and those for validation; see `spooled`."""
    if not mask:
        yield TRAINING, batch
        return
    import pyarrow.compute

    chosen = batch.column(mask)
    rest = batch.drop_columns([mask])
    yield TRAINING, rest.filter(pyarrow.compute.invert(chosen))
    yield VALIDATION, rest.filter(chosen)


def _new_file(path: Path, schema: Any) -> Any:
    import pyarrow

    return pyarrow.ipc.new_file(str(path), schema)


class Batches:
    """The record batches of a file, which is mapped into memory; a sequence."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        :param path: of an Arrow IPC file; there is none if there are no rows
        """
        import pyarrow

        self._file = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))) if path.exists() else None

    def __len__(self) -> int:
        return self._file.num_record_batches if self._file else 0

    def __getitem__(self, at: int) -> Any:
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._file.get_batch(at)  # type: ignore[union-attr]

    def sizes(self) -> list[int]:
        """Return the number of rows of each batch."""
        return [self[at].num_rows for at in range(len(self))]


def here(name: str) -> Batches:
    """Open a file of this rank.

    :param name: TRAINING or VALIDATION
    """
    return Batches(Path(inherited.environment()[ROWS], name))


def on_rank(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with the rows of this rank; this is what a rank of run_on_dataframe calls."""
    return fn(here(TRAINING), *args, **kwargs)
