# SPDX-License-Identifier: Apache-2.0
"""compile() of a model: it refuses XLA in TensorFlow if XLA cannot run hpccoll's operations, as on a GPU.

Keras turns XLA on by itself if it finds a GPU. It checks `supports_jit` of layers, and not of optimizers, so compile()
itself is replaced, once. A program that bypasses it gets the same error in its first step, from
hpccoll.tensorflow.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from hpccoll import errors

__all__ = ["check_no_xla", "watch_compile"]


def check_no_xla(model: Any) -> None:
    """Check that TensorFlow's XLA can run the operations of a model's DistributedOptimizer, if it compiles the model.

    :param model: a model that is compiled
    :raises UnsupportedError: (a ValueError) it cannot
    """
    exchanges = getattr(model.optimizer, "exchanges", None)
    if keras.backend.backend() != "tensorflow" or not model.jit_compile or exchanges is None or not exchanges():
        return
    from hpccoll.tensorflow import xla  # here: with another backend there is no TensorFlow

    if xla.problem():
        raise errors.UnsupportedError(
            f"{model.name} is compiled by XLA, which cannot run the operations of a DistributedOptimizer in TensorFlow "
            f"({xla.problem()}): use model.compile(..., jit_compile=False). Keras turns XLA on by itself where it sees "
            "a GPU"
        )


@functools.cache
def watch_compile() -> None:
    """Have each compile() of Keras call check_no_xla()."""
    owner: Any = next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))  # else Keras finds that it differs
    plain: Callable[..., None] = owner.compile

    @functools.wraps(plain)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        check_no_xla(self)

    owner.compile = checked
