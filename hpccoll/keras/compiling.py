# SPDX-License-Identifier: Apache-2.0
"""compile() of a model: it refuses XLA in TensorFlow, which cannot run our operations.

Keras turns XLA on by itself where it sees a GPU. It asks layers what they support (`supports_jit`), and not optimizers,
so compile() itself is replaced, once. A program that goes around it gets the same error in its first step, from
hpccoll.tensorflow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from hpccoll import errors

__all__ = ["check_no_xla", "watch_compile"]


def check_no_xla(model: Any) -> None:
    """Check that a model with a DistributedOptimizer is not compiled by XLA in TensorFlow.

    :param model: a model that is compiled
    :raises UnsupportedError: (a ValueError) it is
    """
    exchanges = getattr(model.optimizer, "exchanges", None)
    if keras.backend.backend() == "tensorflow" and model.jit_compile and exchanges is not None and exchanges():
        raise errors.UnsupportedError(
            f"{model.name} is compiled by XLA, which cannot run the operations of a DistributedOptimizer in "
            "TensorFlow: use model.compile(..., jit_compile=False). Keras turns XLA on by itself where it sees a GPU"
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
