# SPDX-License-Identifier: Apache-2.0
"""Tables that several tests train on."""

from typing import Any

import numpy as np


def table(spark: Any, rows: int, partitions: int = 3) -> Any:
    """Rows of a linear function: inputs a and b, label y, weight w; held marks those for validation."""
    values = np.random.default_rng(5).standard_normal((rows, 2)).astype(np.float32)
    labels = values @ np.array([1.0, -2.0], np.float32) + 0.5
    columns = [
        (float(a), float(b), float(y), float(1 + at % 3), at % 4 == 0)
        for at, ((a, b), y) in enumerate(zip(values, labels, strict=True))
    ]
    return spark.createDataFrame(columns, ["a", "b", "y", "w", "held"]).repartition(partitions)
