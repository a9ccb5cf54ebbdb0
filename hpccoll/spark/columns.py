# SPDX-License-Identifier: Apache-2.0
"""The columns of a DataFrame: those that Arrow has, and those that NumPy has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.errors import InvalidArgumentError

__all__ = ["check_columns", "is_scalar", "is_vector", "to_array", "without_vectors"]

SCALARS = {"tinyint", "smallint", "int", "bigint", "float", "double", "boolean"}
"""Spark's types that NumPy has, as `simpleString()` writes them."""


def is_vector(field: Any) -> bool:
    """Return whether a field of a schema holds vectors of Spark ML, dense ones or sparse ones."""
    return type(field.dataType).__name__ == "VectorUDT"


def is_scalar(field: Any) -> bool:
    """Return whether a field holds one number per row."""
    return field.dataType.simpleString() in SCALARS


def without_vectors(df: Any) -> Any:
    """Turn columns of vectors, which Arrow does not have, into arrays of doubles.

    :raises InvalidArgumentError: mapInArrow would not find a column, because its name has a dot
    """
    for name in df.columns:
        if "." in name:
            raise InvalidArgumentError(f"the name of column {name} has a dot, which Spark takes for a field: rename it")
    vectors = [field.name for field in df.schema.fields if is_vector(field)]
    if not vectors:
        return df
    from pyspark.ml.functions import vector_to_array

    return df.withColumns({name: vector_to_array(df[name]) for name in vectors})


def check_columns(
    what: str, schema: Any, features: Sequence[str], labels: Sequence[str], others: Sequence[str]
) -> None:
    """Check that a DataFrame has the columns of an estimator, with types that NumPy has.

    :param what: the estimator, for errors
    :param schema: of the DataFrame
    :param others: the columns of weights and for validation
    :raises InvalidArgumentError: (a ValueError) names the column, and its type
    """
    if not features or not labels:
        raise InvalidArgumentError(f"{what}: feature_cols and label_cols must name columns")
    both = [name for name in labels if name in features]
    if both:
        raise InvalidArgumentError(f"{what}: column {both[0]} is a label and a feature")
    fields = {field.name: field for field in schema.fields}
    for name in (*features, *labels, *others):
        if name not in fields:
            raise InvalidArgumentError(f"{what}: there is no column {name}; the DataFrame has {', '.join(fields)}")
        kind = fields[name].dataType.simpleString()
        inner = kind
        while inner.startswith("array<"):
            inner = inner[len("array<") : -1]
        if inner not in SCALARS and not is_vector(fields[name]):
            raise InvalidArgumentError(f"{what}: column {name} is of type {kind}, which is no number, vector or array")
    for name in others:
        if not is_scalar(fields[name]):
            kind = "vector" if is_vector(fields[name]) else fields[name].dataType.simpleString()
            raise InvalidArgumentError(f"{what}: column {name} is of type {kind}: a weight or a mark is one number")


def to_array(column: Any, name: str) -> NDArray[Any]:
    """Make an array of a column.

    :param column: a pyarrow Array or ChunkedArray of numbers, or of lists of them
    :param name: for errors
    :returns: rows × the shape of a value
    :raises InvalidArgumentError: a value is missing, or lists have different lengths
    """
    import pyarrow

    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if column.null_count:
        raise InvalidArgumentError(f"column {name} has {column.null_count} rows without a value (null)")
    if not pyarrow.types.is_list(column.type) and not pyarrow.types.is_large_list(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    lengths = np.asarray(column.value_lengths())
    if len(lengths) and lengths.min() != lengths.max():
        raise InvalidArgumentError(f"the arrays of column {name} have {lengths.min()} to {lengths.max()} elements")
    values = to_array(column.flatten(), name)
    return values.reshape(len(column), lengths[0] if len(lengths) else 0, *values.shape[1:])
