# SPDX-License-Identifier: Apache-2.0
"""What JAX does not publish and this package needs: the current trace, effects, and custom calls with tokens.

Decision 39 says what each is for, and since which version JAX has it. tests/jax run with the oldest and the newest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import mlir

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
    "is_kept_argument", "register_lowering", "stablehlo", "trace_ctx",
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


def register_lowering(primitive: Primitive, rule: Callable[..., Any], platform: str | None = None) -> None:
    """Register a rule that is called at each place of a program, with the operands that it has there."""
    options = {"cacheable": False} if "cacheable" in inspect.signature(mlir.register_lowering).parameters else {}
    mlir.register_lowering(primitive, rule, platform, **options)


def is_kept_argument(operand: Any) -> bool:
    """Whether a value is an argument of the whole program that the caller keeps, having not donated it."""
    if not isinstance(operand, ir.BlockArgument):
        return False
    attributes: Any = operand.owner.owner.attributes
    if "sym_name" not in attributes or attributes["sym_name"] != ir.StringAttr.get("main"):
        return False
    known = attributes["arg_attrs"][operand.arg_number] if "arg_attrs" in attributes else {}
    return not any(name in known for name in ("tf.aliasing_output", "jax.buffer_donor"))
