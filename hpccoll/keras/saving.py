# SPDX-License-Identifier: Apache-2.0
"""load_model(): loads a saved Keras model, with the optimizer distributed again."""

from collections.abc import Iterable
from typing import Any

import keras

from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.keras.compiling import check_no_xla
from hpccoll.keras.optimizer import DistributedOptimizer

__all__ = ["load_model"]


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Compressor = NoneCompressor,
    legacy_opts: bool = False,
) -> Any:
    """Load a saved model, and make its optimizer a DistributedOptimizer, with the state that was saved.

    :param filepath: a file that model.save() has written, with hpccoll or without
    :param custom_optimizers: classes of optimizers that Keras does not know
    :param custom_objects: other classes and functions that Keras does not know, by their names
    :param compression: see DistributedOptimizer
    :param legacy_opts: has no effect; Horovod has this parameter, for Keras 2
    :returns: the model; one that was not compiled has no optimizer
    :raises UnsupportedError: (a ValueError) the model was compiled for XLA in TensorFlow
    """
    del legacy_opts
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
        check_no_xla(model)
    return model
