# SPDX-License-Identifier: Apache-2.0
"""Keras 3 with the backends torch, jax and tensorflow, under Horovod's names.

>>> import hpccoll.keras as hvd  # in place of import horovod.keras as hvd
>>> hvd.init()
>>> model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), "mse")
>>> model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

    optimizer.py     DistributedOptimizer
    backends.py      the front end for Keras's backend
    callbacks.py     callbacks for fit()
    values.py        values and variables between ranks
    compiling.py     compile() refuses XLA where it cannot run
    saving.py        load_model
    elastic.py       elastic jobs
    shared_names.py  names that hpccoll.tensorflow.keras exports, too
"""

from typing import Any

try:
    import keras as _keras
except ImportError as error:
    raise ImportError("hpccoll.keras needs Keras 3: pip install 'hpccoll[keras]'") from error

if tuple(int(part) for part in _keras.__version__.split(".")[:2]) < (3, 5):
    raise ImportError(
        f"hpccoll.keras needs Keras 3.5 or later, and this is {_keras.__version__}: pip install --upgrade keras"
    )

from hpccoll.keras import callbacks, elastic
from hpccoll.keras import shared_names as _shared_names
from hpccoll.keras.optimizer import DistributedOptimizer
from hpccoll.keras.shared_names import *  # noqa: F403 - all names of its __all__
from hpccoll.not_there import no_name as _no_name

__all__ = ["DistributedOptimizer", "callbacks", "elastic"]
__all__ += _shared_names.__all__


def __getattr__(name: str) -> Any:
    """Raise an error that names the replacement of a missing name of Horovod's."""
    raise _no_name(__name__, name)
