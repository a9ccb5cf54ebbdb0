# SPDX-License-Identifier: Apache-2.0
"""What JAX does not publish and this package needs: traces, effects and their tokens, custom calls, lowered functions.

Decisions 39 and 60 say what each is for. tests/jax run with the oldest version and the newest.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import mlir

from hpccoll import errors

OLDEST = "0.5.3"
NAME = "hpccoll"
"""The name of the primitive."""

try:
    from jax._src import core as jax_core
    from jax._src import dispatch, effects, pjit
    from jax._src.core import trace_ctx
    from jax._src.interpreters import mlir as mlir_internals
    from jax._src.interpreters import partial_eval
    from jax._src.interpreters.mlir import TokenSet, custom_call, lower_jaxpr_to_module  # noqa: F401 - is it there?
    from jax._src.lax.control_flow import loops as jax_loops
    from jax.extend.core import Primitive
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    EvalTrace = jax_core.EvalTrace
    jit_primitive = vars(pjit)["jit_p" if hasattr(pjit, "jit_p") else "pjit_p"]
except (ImportError, AttributeError, KeyError) as error:
    raise errors.UnsupportedError(
        f"hpccoll.jax and jax {jax.__version__} do not fit: {error}. It was made for jax {OLDEST} and later: install "
        "another jax, or a newer hpccoll"
    ) from error

__all__ = [
    "NAME", "OLDEST", "ORDERED", "UNORDERED", "EvalTrace", "Primitive", "TokenSet", "count_call", "custom_call",
    "has_calls", "ir", "is_kept_argument", "jax_core", "jax_loops", "jit_primitive", "partial_eval",
    "register_lowering", "stablehlo", "trace_ctx", "wait_for_programs", "when_lowered",
]  # fmt: skip


# ---- effects ---------------------------------------------------------------------------------------------


class _Ordered(effects.Effect):
    """An operation that must keep its place among others: messages and barriers."""

    def __str__(self) -> str:
        return "hpccoll, in order"


class _Unordered(effects.Effect):
    """An operation that must happen whether or not this rank uses its result, because the others wait for it."""

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


def has_calls(jaxpr: Any) -> bool:
    """Whether a function that JAX has traced has operations of ours."""
    return any(isinstance(effect, (_Ordered, _Unordered)) for effect in jaxpr.effects)


class _Tokens(dispatch.RuntimeTokenSet):
    """JAX's tokens, of which ours is always a new one.

    A token orders the operations of one program. XLA runs the programs of a process one after another, so none is
    needed between them, and that of a program that has failed would fail all that follow.
    """

    def get_token_input(self, eff: Any, devices: Any) -> Any:
        if isinstance(eff, _Ordered):
            self.current_tokens.pop(eff, None)
        return super().get_token_input(eff, devices)


dispatch.runtime_tokens = _Tokens()


def wait_for_programs() -> None:
    """Wait until the programs that this thread has started have done their operations, or have failed."""
    for token in dispatch.runtime_tokens.output_runtime_tokens.values():
        with contextlib.suppress(Exception):  # raised where the program's results are used
            token.block_until_ready()


# ---- lowering --------------------------------------------------------------------------------------------


class _Calls:
    """How many operations of ours a program has, as far as it is lowered."""

    number = 0


class _Lowered(dict[Any, Any]):
    """The functions of a program that JAX has lowered, and uses again where a program calls them again.

    It keeps none that have operations: those are lowered at each place, so that each place has operations of its own.
    """

    def __init__(self, before: dict[Any, Any], calls: _Calls) -> None:
        super().__init__(before)
        self.calls = calls
        self._begun: dict[Any, int] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self._begun[key] = self.calls.number
        return super().get(key, default)

    def __missing__(self, key: Any) -> Any:
        self._begun[key] = self.calls.number
        raise KeyError(key)

    def __setitem__(self, key: Any, function: Any) -> None:
        if self._begun.pop(key, None) == self.calls.number:  # None: it was begun before the first operation
            super().__setitem__(key, function)


_CACHES = ("cached_primitive_lowerings", "lowering_cache")
"""The context of a program that is being lowered has them. JAX 0.5 has the first alone."""


def count_call(module: Any) -> None:
    """Note that an operation is lowered now, so that JAX keeps no function that has it.

    :param module: what a lowering rule knows of the program: its context's module_context
    """
    calls: _Calls | None = getattr(module.cached_primitive_lowerings, "calls", None)
    if calls is None:
        calls = _Calls()
        for cache in _CACHES:
            if hasattr(module, cache):
                setattr(module, cache, _Lowered(getattr(module, cache), calls))
    calls.number += 1
    _lowering.has_calls = True


class _Lowering(threading.local):
    """Whether the program that this thread lowers has operations of ours."""

    has_calls = False


_lowering = _Lowering()


def when_lowered(finish: Callable[[Any], None]) -> None:
    """Call `finish` with each module that has operations of ours, when JAX has made all of it."""
    lower = mlir_internals.lower_jaxpr_to_module

    @functools.wraps(lower)
    def lower_and_finish(*given: Any, **more: Any) -> Any:
        outer, _lowering.has_calls = _lowering.has_calls, False
        try:
            result = lower(*given, **more)
            if _lowering.has_calls:
                with result.module.context, ir.Location.unknown():
                    finish(result.module)
            return result
        finally:
            _lowering.has_calls = outer

    mlir_internals.lower_jaxpr_to_module = lower_and_finish


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
