# SPDX-License-Identifier: Apache-2.0
"""Results that a tape of TensorFlow can differentiate.

An eager derivative waits for its result, so the ranks have to compute derivatives in the same order. A tape goes from
the loss to the tensors breadth first: the order depends on the number of steps between each call and the loss. A rank
whose loss has other steps (because it makes more calls, for example) may have another order; then each of two ranks
waits for a derivative that the other one computes later. No rank can see this before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend import names
from hpccoll.frontend.handles import HandleNumber

__all__ = ["now", "recorded"]

_ORDER = (
    "This is an eager derivative. A tape computes derivatives one after the other, in an order that depends on the "
    "steps between each call and the loss: if these differ between ranks, compute the loss in a tf.function"
)


def now(
    compute: Callable[..., tuple[Sequence[HandleNumber], list[Any], Any]],
    back: Callable[..., Any],
    tensors: Sequence[Any],
    *call_names: str | None,
) -> list[Any]:
    """Compute results of eager tensors, which a tape can differentiate.

    :param compute: takes the tensors; returns the handle of each call, which is done, the results, and a value for the
        derivative
    :param back: takes the gradients of the results, that value, and the names of the calls; returns the gradients of
        the tensors
    :param call_names: the name of each call; None: the call has no name
    """

    def named(*xs: Any) -> tuple[list[Any], Any]:
        handles, results, known = compute(*xs)
        its = [names.of_call(name, handle.number) for name, handle in zip(call_names, handles, strict=True)]
        return results, (known, *its)

    def derive(gradients: Sequence[Any], known: Any) -> Any:
        try:
            return back(gradients, *known)
        except errors.StallError as error:
            raise errors.StallError(f"{error}. {_ORDER}") from None

    return recorded(named, derive, tensors)


def recorded(
    compute: Callable[..., tuple[list[Any], Any]], back: Callable[[Sequence[Any], Any], Any], tensors: Sequence[Any]
) -> list[Any]:
    """Compute results that a tape of TensorFlow can differentiate.

    :param compute: takes the tensors; returns the results, and a value for the derivative
    :param back: takes the gradients of the results and that value; returns the gradients of the tensors
    """

    @tf.custom_gradient
    def differentiable(*xs: Any) -> Any:
        results, known = compute(*xs)
        return results, lambda *gradients: back(gradients, known)

    made: list[Any] = differentiable(*tensors)
    return made
