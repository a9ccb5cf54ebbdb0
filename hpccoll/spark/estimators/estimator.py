# SPDX-License-Identifier: Apache-2.0
"""What the estimators of all frameworks do: check, start a rank on each part of the rows, and make a model."""

import secrets
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from pyspark.ml import Estimator
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.columns import check_columns, is_vector, without_vectors
from hpccoll.spark.common.backend import SparkBackend
from hpccoll.spark.driver import Settings, check_version, context_of, ranks_of, start_on_rows, start_ranks
from hpccoll.spark.estimators.job import Job, LocalRows, Source
from hpccoll.spark.estimators.parameters import Parameter, check_names
from hpccoll.spark.estimators.params import NOT_SAVED, Saved, pickled
from hpccoll.tools.launch.job import LaunchError

__all__ = ["FrameEstimator"]

HELD = "hpccoll_held"
"""The column of booleans that says which rows come from the files for validation."""
MASK = "hpccoll_validation"
"""The column of booleans that says which rows are for validation."""
LEAST = {"random_seed": 0, "shuffle_buffer_size": 0} | dict.fromkeys(
    ("batch_size", "val_batch_size", "epochs", "train_steps_per_epoch", "validation_steps_per_epoch",
     "backward_passes_per_step"), 1,
)  # fmt: skip
"""The smallest values of parameters."""


class FrameEstimator(Estimator, Saved):
    """An estimator of Spark ML that trains a model of a framework on all rows of a DataFrame.

    A subclass has the parameters of its table, and the abstract methods.
    """

    table: ClassVar[tuple[Parameter, ...]]
    required: ClassVar[tuple[str, ...]] = ("model", "loss", "feature_cols", "label_cols")
    refused: ClassVar[dict[str, str]] = {}
    """Parameters that only other estimators have, and the sentences of their errors."""

    def __init__(self, **parameters: Any) -> None:
        """Set parameters by their names; None: the default.

        :raises InvalidArgumentError: (a ValueError) there is no such parameter, with what to use instead
        """
        super().__init__()
        check_names(type(self).__name__, parameters, self.table, self.refused)
        self._setDefault(**{one.name: one.default for one in self.table})
        self._set(**{name: value for name, value in parameters.items() if value is not None})

    def fit_on_parquet(self, params: Any = None, dataset_idx: int | None = None) -> Any:
        """Train on the Parquet files of the store: `train_path`, and `val_path` for validation.

        Spark reads them, so it needs a file system for their URL. Without files for validation, `validation` chooses
        rows of the others.

        :param params: Spark's map of parameters to use in place of those that are set
        :param dataset_idx: the number of one of several data sets, see Store.get_train_data_path
        :returns: the model, as `fit`
        :raises InvalidArgumentError: (a ValueError) there is no store
        :raises LaunchError: there is no Spark session; others as `fit`
        """
        what, own = f"{type(self).__name__}.fit_on_parquet", self.copy(params)
        store, session = own.getOrDefault("store"), SparkSession.getActiveSession()
        if store is None:
            raise InvalidArgumentError(f"{what}: store is required: Store.create(folder, train_path=..., val_path=...)")
        if session is None:
            raise LaunchError(f"{what}: there is no Spark session: SparkSession.builder.getOrCreate()")
        df = session.read.parquet(store.for_spark(store.get_train_data_path(dataset_idx)))
        if store.has_val_data(dataset_idx):
            held = session.read.parquet(store.for_spark(store.get_val_data_path(dataset_idx)))
            df = df.withColumn(HELD, lit(False)).unionByName(held.withColumn(HELD, lit(True)))
            own.setValidation(HELD)
        return own.fit(df)

    @abstractmethod
    def _check_model(self) -> None:
        """Check the parameters that only the framework understands."""

    @abstractmethod
    def _trainer(self) -> Callable[[Source, Job], Any]:
        """Return what each rank calls; rank 0 returns the history and the state."""

    @abstractmethod
    def _fitted(self, result: Any, metadata: dict[str, Any], run_id: str) -> Any:
        """Make the model of what rank 0 has returned."""

    def _fit(self, df: Any) -> Any:
        what = type(self).__name__
        check_version(what, df.sparkSession)
        self._check(df.schema)
        backend: SparkBackend = self.getOrDefault("backend") or SparkBackend(self.getOrDefault("num_proc"))
        size = ranks_of(what, context_of(df.sparkSession), backend.num_proc)
        job = self._job()
        result = self._train(df, job, size, backend.settings(job.values.get("backend_env")))
        kinds = {one.name: "vector" if is_vector(one) else one.dataType.simpleString() for one in df.schema.fields}
        return self._fitted(result, {"labels": {name: kinds[name] for name in job.labels}}, job.run_id)

    def _train(self, df: Any, job: Job, size: int, settings: Settings) -> Any:
        """Return what rank 0 has returned."""
        what, store = type(self).__name__, self.getOrDefault("store")
        frame, mask = self._frame(df, job.seed)
        if store is None:
            rows: Source = LocalRows()
            return start_on_rows(
                what, self._trainer(), frame.repartition(size), ((rows, job), {}), size, settings, mask
            )[0]
        session = df.sparkSession
        with store.rows(frame, mask) as rows:
            return start_ranks(what, session, self._trainer(), ((rows, job), {}), size, settings)[0]

    def _check(self, schema: Any) -> None:
        what = type(self).__name__
        for name in self.required:
            if not self.getOrDefault(name):
                raise InvalidArgumentError(f"{what}: {name} is required")
        if self.getOrDefault("backend") is not None and self.getOrDefault("num_proc") is not None:
            raise InvalidArgumentError(f"{what}: give backend or num_proc, not both")
        for name, least in LEAST.items():
            if (value := self.getOrDefault(name)) is not None and value < least:
                raise InvalidArgumentError(f"{what}: {name} is {value}; it is at least {least}")
        features, labels, validation = map(self.getOrDefault, ("feature_cols", "label_cols", "validation"))
        if not isinstance(validation, str | None) and not 0 <= validation < 1:
            raise InvalidArgumentError(f"{what}: validation is {validation}: a fraction is at least 0 and less than 1")
        others = [name for name in (self.getOrDefault("sample_weight_col"), validation) if isinstance(name, str)]
        check_columns(what, schema, features, labels, others)
        self._check_model()

    def _job(self) -> Job:
        what = type(self).__name__
        values = {one.name: self.getOrDefault(one.name) for one in self.table if one.name != "backend"}
        pickled(what, {name: value for name, value in values.items() if name not in NOT_SAVED})
        seed, run_id, store = (
            values["random_seed"],
            values["run_id"] or f"{what}_{secrets.token_hex(4)}",
            values["store"],
        )
        path = store.get_checkpoint_path(run_id) if store and store.saving_runs() else ""
        checkpoint = store.read(path) if path and store.exists(path) else None
        return Job(
            tuple(values["feature_cols"]),
            tuple(values["label_cols"]),
            values["sample_weight_col"] or "",
            values,
            secrets.randbits(31) if seed is None else seed,
            run_id,
            checkpoint,
        )

    def _frame(self, df: Any, seed: int) -> tuple[Any, str]:
        """Return the columns of the job, and the name of the mask."""
        from pyspark.sql import functions

        validation, weight = self.getOrDefault("validation"), self.getOrDefault("sample_weight_col")
        names = [*self.getOrDefault("feature_cols"), *self.getOrDefault("label_cols"), *([weight] if weight else [])]
        columns = list(dict.fromkeys(names))
        if not validation:
            return without_vectors(df.select(columns)), ""
        held = df[validation].cast("boolean") if isinstance(validation, str) else functions.rand(seed) < validation
        mask = functions.coalesce(held, functions.lit(False)).alias(MASK)
        return without_vectors(df.select(*columns, mask)), MASK
