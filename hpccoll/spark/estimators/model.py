# SPDX-License-Identifier: Apache-2.0
"""What the models of all frameworks do: add columns of predictions to a DataFrame."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pyspark.ml import Model
from pyspark.ml.param.shared import HasOutputCols

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.columns import is_vector, to_array, without_vectors
from hpccoll.spark.estimators.parameters import Parameter
from hpccoll.spark.estimators.params import Saved
from hpccoll.spark.estimators.rows import Arrays

__all__ = ["FITTED", "FrameModel"]

FITTED = (
    Parameter("history", [], "the losses and metrics of each epoch"),
    Parameter("model", None, "the trained model"),
    Parameter("feature_columns", None, "the columns of the model's inputs", "names"),
    Parameter("label_columns", None, "the columns of the labels", "names"),
    Parameter("run_id", None, "the name of the run", "str"),
    Parameter("_metadata", {}, "the types of the labels, and the shapes of the outputs"),
)
PREDICTED = "hpccoll_predicted"

Predictor = Callable[[Arrays], list[NDArray[Any]]]
"""Columns of features to the outputs of the model."""


class FrameModel(Model, HasOutputCols, Saved):
    """A model of Spark ML that calls a model of a framework for each row."""

    table: ClassVar[tuple[Parameter, ...]]

    def __init__(self, **parameters: Any) -> None:
        """Set parameters by their names; `outputCols` are the labels' names + "__output"."""
        super().__init__()
        self._setDefault(**{one.name: one.default for one in self.table})
        if parameters.get("label_columns"):
            self.setOutputCols([f"{name}__output" for name in parameters["label_columns"]])
        self._set(**{name: value for name, value in parameters.items() if value is not None})

    def setOutputCols(self, value: list[str]) -> Any:  # noqa: N802 - Spark's name
        """Name the columns of predictions, one per label."""
        return self._set(outputCols=value)

    @abstractmethod
    def _predictor(self) -> Predictor:
        """Return what predicts; it is pickled."""

    def _transform(self, df: Any) -> Any:
        from pyspark.ml.functions import array_to_vector
        from pyspark.sql import functions

        features, labels, outputs = map(self.getOrDefault, ("feature_columns", "label_columns", "outputCols"))
        missing = [name for name in features if name not in df.columns]
        if missing:
            raise InvalidArgumentError(f"{type(self).__name__}: there is no column {missing[0]}")
        if len(outputs) != len(labels):
            raise InvalidArgumentError(f"{type(self).__name__}: {len(labels)} labels, {len(outputs)} outputCols")
        arrays = without_vectors(df.select(features))
        schema = ", ".join(f"c{at} array<double>" for at in range(len(outputs)))
        predicted = functions.pandas_udf(_on_frames(self._predictor(), features), schema)
        inputs = functions.struct(*(_without_nulls(df, name, _as_array(df, name, arrays)) for name in features))
        together = df.withColumn(PREDICTED, predicted(inputs))
        kinds, widths = (self.getOrDefault("_metadata").get(name, {}) for name in ("labels", "widths"))
        for at, (label, output) in enumerate(zip(labels, outputs, strict=True)):
            values = functions.col(f"{PREDICTED}.c{at}")
            kind = kinds.get(label, "vector")
            if kind == "vector" or kind.startswith("array") or widths.get(label) != 1:
                column = array_to_vector(values)
            else:
                column = (values[0] if kind in ("float", "double") else functions.round(values[0])).cast(kind)
            together = together.withColumn(output, column)
        return together.drop(PREDICTED)


def _as_array(df: Any, name: str, arrays: Any) -> Any:
    """Return a column of features, and that of a vector as an array."""
    if df.schema[name].dataType == arrays.schema[name].dataType:
        return df[name]
    from pyspark.ml.functions import vector_to_array

    return vector_to_array(df[name])


def _without_nulls(df: Any, name: str, column: Any) -> Any:
    """Let a missing value of a column be an error, before pandas makes it NaN, which is a value."""
    from pyspark.sql import functions

    def lacks(value: Any, kind: str) -> Any:
        if not kind.startswith("array<"):
            return value.isNull()
        return value.isNull() | functions.exists(value, lambda each: lacks(each, kind[len("array<") : -1]))

    kind = "array<double>" if is_vector(df.schema[name]) else df.schema[name].dataType.simpleString()
    said = functions.raise_error(functions.lit(f"column {name} has rows without a value (null)"))
    lacking = functions.coalesce(lacks(column, kind), functions.lit(True))
    return functions.when(lacking, said).otherwise(column).alias(name)


def _on_frames(predictor: Predictor, features: list[str]) -> Callable[..., Any]:
    """Make a function of pandas for Spark, which reads its annotations."""
    import pandas
    import pyarrow

    def predict(frames):  # type: ignore[no-untyped-def]
        for frame in frames:
            columns = {name: to_array(pyarrow.array(frame[name], from_pandas=False), name) for name in features}
            outputs = (np.asarray(output, np.float64) for output in predictor(columns))
            rows = (output.reshape(len(frame), int(np.prod(output.shape[1:]))) for output in outputs)
            yield pandas.DataFrame({f"c{at}": list(each) for at, each in enumerate(rows)})

    predict.__annotations__ = {"frames": Iterator[pandas.DataFrame], "return": Iterator[pandas.DataFrame]}
    return predict
