# SPDX-License-Identifier: Apache-2.0
"""The library's errors as subclasses of TensorFlow's errors, too: a program that catches tf.errors catches ours.

In a graph the kernels raise TensorFlow's own classes, with the same codes (hc_gate_code() in ext/gate/gate.h).
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.tensorflow.internals import unconverted

__all__ = ["KINDS", "public"]

KINDS: dict[type[errors.HpccollError], type[Exception]] = {
    errors.InvalidArgumentError: tf.errors.InvalidArgumentError,
    errors.UnsupportedError: tf.errors.InvalidArgumentError,
    errors.NotDefinedError: tf.errors.InvalidArgumentError,
    errors.ResultSizeError: tf.errors.InvalidArgumentError,
    errors.DuplicateNameError: tf.errors.InvalidArgumentError,
    errors.MismatchError: tf.errors.FailedPreconditionError,
    errors.RootJoinedError: tf.errors.FailedPreconditionError,
    errors.ShutDownError: tf.errors.FailedPreconditionError,
    errors.ForkedError: tf.errors.FailedPreconditionError,
    errors.PeerLostError: tf.errors.UnavailableError,
    errors.StallError: tf.errors.UnavailableError,
    errors.TransportError: tf.errors.UnavailableError,
    errors.BrokenWorldError: tf.errors.UnavailableError,
    errors.OutOfMemoryError: tf.errors.ResourceExhaustedError,
    errors.ProtocolError: tf.errors.InternalError,
}
"""By class of our errors, the class of TensorFlow's errors that it also inherits from."""


def _both(ours: type[errors.HpccollError], theirs: Any) -> type[errors.HpccollError]:
    def make(self: Any, *arguments: Any) -> None:
        """:param arguments: the text; or a node, an operation and the text, as when Keras copies a TensorFlow error"""
        text = arguments[0] if len(arguments) == 1 else arguments[2]
        theirs.__init__(self, None, None, text)
        self.args = (text,)

    members = {
        "__doc__": ours.__doc__,
        "__module__": __name__,
        "__init__": make,
        "__reduce__": lambda self: (type(self), self.args),
    }
    return type(ours.__name__, (ours, theirs), members)


_BOTH = {ours: _both(ours, theirs) for ours, theirs in KINDS.items()}
globals().update({made.__name__: made for made in _BOTH.values()})  # where pickle looks for them


def public(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that a program calls: its errors are TensorFlow's, too, and AutoGraph does not rewrite it."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.HpccollError as error:
            both = _BOTH.get(type(error))
            if both is None:
                raise
            raise both(str(error)).with_traceback(error.__traceback__) from error.__cause__

    made: Callable[..., Any] = unconverted(called)
    return made
