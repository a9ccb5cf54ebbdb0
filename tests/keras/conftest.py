# SPDX-License-Identifier: Apache-2.0
"""A job of `hpccoll.keras` that lasts for one file, on the backend that KERAS_BACKEND names: torch, unless it is set.

test_backends.py runs these tests with the other backends.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
if importlib.util.find_spec("keras") is None:  # its import would take seconds in runs without tests of this folder
    pytest.skip("needs Keras: pip install 'hpccoll[keras]'", allow_module_level=True)

import hpccoll

ROWS, WHOLE_BATCH = 96, 48
"""The numbers of samples of the data and of a batch of all ranks, divisible by 1 to 4 ranks."""


@pytest.fixture(scope="module")
def job() -> Iterator[None]:
    import keras

    import hpccoll.keras as hvd

    if keras.config.backend() != "tensorflow" and "tensorflow" not in sys.modules:
        # Keras seeds TensorFlow, too, wherever it is installed: each rank would import it for that.
        with pytest.MonkeyPatch.context() as hidden:
            hidden.setitem(sys.modules, "tensorflow", None)
            keras.utils.set_random_seed(0)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="session")
def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((ROWS, 20)).astype("float32")
    return x, x[:, :1] * 2 + x[:, 1:2]


@pytest.fixture(scope="session")
def share(data: Any) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """This rank's samples; the batches of all ranks together are those of one process."""

    def mine() -> tuple[np.ndarray, np.ndarray]:
        each = WHOLE_BATCH // hpccoll.size()
        batches = [
            range(at + hpccoll.rank() * each, at + (hpccoll.rank() + 1) * each) for at in range(0, ROWS, WHOLE_BATCH)
        ]
        rows = [row for batch in batches for row in batch]
        return data[0][rows], data[1][rows]

    return mine


@pytest.fixture(scope="session")
def network() -> Callable[[int], Any]:
    """A function from a seed to a model."""
    import keras

    def make(seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        return keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])

    return make


@pytest.fixture(scope="session")
def values() -> Callable[[Any], list[np.ndarray]]:
    import keras

    return lambda variables: [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


@pytest.fixture(scope="session")
def equal_on_all_ranks(values: Any) -> Callable[[Any], bool]:
    def equal(variables: Any) -> bool:
        mine = [value.tobytes() for value in values(variables)]
        return all(other == mine for other in hpccoll.allgather_object(mine))

    return equal
