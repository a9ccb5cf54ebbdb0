# SPDX-License-Identifier: Apache-2.0
"""What JAX does not publish and this package needs: the current trace, effects, and custom calls with tokens.

Decision 39 says what each is for, and since which version JAX has it. tests/jax run with the oldest and the newest.
"""

from __future__ import annotations

import jax

from hpccoll import errors

OLDEST = "0.5.3"

try:
    from jax._src import core as jax_core
    from jax._src import effects
    from jax._src.core import trace_ctx
    from jax._src.interpreters.mlir import TokenSet, custom_call
    from jax.extend.core import Primitive
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    EvalTrace = jax_core.EvalTrace
except (ImportError, AttributeError) as error:
    raise errors.UnsupportedError(
        f"hpccoll.jax and jax {jax.__version__} do not fit: {error}. It was made for jax {OLDEST} and later: install "
        "another jax, or a newer hpccoll"
    ) from error

__all__ = [
    "OLDEST", "ORDERED", "UNORDERED", "EvalTrace", "Primitive", "TokenSet", "custom_call", "ir",
    "stablehlo", "trace_ctx",
]  # fmt: skip


class _Ordered(effects.Effect):
    """An operation that must keep its place among others: messages and barriers."""

    def __str__(self) -> str:
        return "hpccoll, in order"


class _Unordered(effects.Effect):
    """An operation that must happen though this rank has no result of it."""

    def __str__(self) -> str:
        return "hpccoll"


ORDERED, UNORDERED = _Ordered(), _Unordered()
effects.ordered_effects.add_type(_Ordered)
for _kind in (_Ordered, _Unordered):
    for _allowed in (
        effects.lowerable_effects,
        effects.control_flow_allowed_effects,
        effects.remat_allowed_effects,
        effects.custom_derivatives_allowed_effects,
    ):
        _allowed.add_type(_kind)
