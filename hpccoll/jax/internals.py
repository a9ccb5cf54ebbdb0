# SPDX-License-Identifier: Apache-2.0
"""The unpublished parts of JAX that this package needs: traces, effects, tokens, custom calls, lowered functions.

Decisions 39, 60 and 104 say what each part is for. tests/jax run with the oldest and the newest version of JAX.
"""

import contextlib
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import experimental
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
    from jax._src.interpreters import partial_eval, pxla
    from jax._src.interpreters.mlir import TokenSet, custom_call, lower_jaxpr_to_module  # noqa: F401 - is it there?
    from jax._src.lax.control_flow import loops as jax_loops
    from jax.extend.core import Primitive
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    EvalTrace = jax_core.EvalTrace
    enable_x64 = vars(jax if hasattr(jax, "enable_x64") else experimental)["enable_x64"]
    jit_primitive = vars(pjit)["jit_p" if hasattr(pjit, "jit_p") else "pjit_p"]
except (ImportError, AttributeError, KeyError) as error:
    raise errors.UnsupportedError(
        f"hpccoll.jax and jax {jax.__version__} do not fit: {error}. It was made for jax {OLDEST} and later: install "
        "another jax, or a newer hpccoll"
    ) from error

__all__ = [
    "NAME", "OLDEST", "ORDERED", "UNORDERED", "EvalTrace", "Primitive", "TokenSet", "count_call", "custom_call",
    "enable_x64", "has_calls", "ir", "is_kept_argument", "jax_core", "jax_loops", "jit_primitive", "partial_eval",
    "register_lowering", "stablehlo", "trace_ctx", "wait_for_programs", "when_lowered",
]  # fmt: skip


# ---- effects ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)  # equal to another of its class, as jax.export asks for
class _Ordered(effects.Effect):
    """An operation that must keep its place among others: messages and barriers."""

    def __str__(self) -> str:
        return "hpccoll, in order"


@dataclasses.dataclass(frozen=True)
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
    """Return whether a traced function has operations of hpccoll."""
    return any(isinstance(effect, (_Ordered, _Unordered)) for effect in jaxpr.effects)


# ---- programs that were started --------------------------------------------------------------------------


class _Tokens(dispatch.RuntimeTokenSet):
    """JAX's tokens, except that each program gets a new token of hpccoll, and that all programs are waited for.

    A token orders the operations of one program. XLA runs the programs of a process one after another, so programs need
    no token between them. And if JAX passed on the token of a failed program, all later programs would fail.
    """

    def get_token_input(self, eff: Any, devices: Any) -> Any:
        if isinstance(eff, _Ordered):
            self.current_tokens.pop(eff, None)
        return super().get_token_input(eff, devices)

    def block_until_ready(self) -> None:
        _wait_for_programs_without_token()
        super().block_until_ready()


dispatch.runtime_tokens = _Tokens()


class _Programs:
    """The programs of this process that have operations."""

    device: Any = None
    """Where they run; None: there is none yet."""
    without_token = False
    """Whether JAX starts any of them without Python, and so without a token."""


def _check_device(device: Any) -> None:
    """Refuse programs on a second device, which would run at the same time: calls of one name would mix their values.

    :raises UnsupportedError: (a ValueError) there are programs on another device
    """
    if _Programs.device not in (None, device):
        raise errors.UnsupportedError(
            f"a program with operations of hpccoll for {device}, and another one was for {_Programs.device}: one "
            "process drives one device with hpccoll.jax; use jax.device_put(x, device) with one device for all "
            "arguments, or start a process per device"
        )
    _Programs.device = device


def _watch_programs() -> None:
    """Check each program's device, and make JAX start it from C++ if its only effect is the unordered one.

    JAX starts programs with effects from Python, which costs about 80 us for each argument and result. The effect has
    done its work when the program is compiled: JAX has removed no operation.
    """
    initialize = pxla.ExecuteReplicated.__init__
    signature = inspect.signature(initialize)

    @functools.wraps(initialize)
    def initialize_and_check(self: Any, *given: Any, **more: Any) -> None:
        initialize(self, *given, **more)
        arguments = signature.bind(self, *given, **more).arguments
        unordered, ordered = arguments["unordered_effects"], arguments["ordered_effects"]
        if any(isinstance(effect, (_Ordered, _Unordered)) for effect in (*unordered, *ordered)):
            _check_device(self.xla_executable.local_devices()[0])
        if unordered and all(isinstance(effect, _Unordered) for effect in unordered):
            self.has_unordered_effects = False
            _Programs.without_token = True

    pxla.ExecuteReplicated.__init__ = initialize_and_check  # type: ignore[method-assign]


_watch_programs()


@functools.cache
def _empty_program(device: Any) -> Callable[[], Any]:
    with jax.ensure_compile_time_eval():
        zero = jax.device_put(np.zeros(()), device)
        return functools.partial(jax.jit(lambda x: x + 1).lower(zero).compile(), zero)


def _wait_for_programs_without_token() -> None:
    """Wait until the CPU has run all programs of this thread: it runs them in the order of their calls."""
    if _Programs.without_token:
        with jax.disable_jit(False):  # the caller may have disabled jit, and then JAX starts no compiled program
            _empty_program(_Programs.device)().block_until_ready()


def wait_for_programs() -> None:
    """Wait until the programs that this thread has started have finished their operations, or have failed."""
    tokens = dispatch.runtime_tokens.output_runtime_tokens.values()
    for wait in (_wait_for_programs_without_token, *(token.block_until_ready for token in tokens)):
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # JAX raises it where the program's results are used
            wait()


# ---- lowering --------------------------------------------------------------------------------------------


class _Calls:
    """The number of operations of hpccoll that JAX has lowered so far in a program."""

    number = 0


class _Lowered(dict[Any, Any]):
    """JAX's cache of the lowered functions of a program, without functions that have operations of hpccoll.

    JAX lowers such a function again at each call, so that each call has separate operations.
    """

    def __init__(self, before: dict[Any, Any], calls: _Calls) -> None:
        super().__init__(before)
        self.calls = calls
        self._calls_before: dict[Any, int] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self._calls_before[key] = self.calls.number
        return super().get(key, default)

    def __missing__(self, key: Any) -> Any:
        self._calls_before[key] = self.calls.number
        raise KeyError(key)

    def __setitem__(self, key: Any, function: Any) -> None:
        # None: JAX began to lower it before the first operation of hpccoll, and so before this cache existed
        if self._calls_before.pop(key, None) == self.calls.number:
            super().__setitem__(key, function)


_CACHES = ("cached_primitive_lowerings", "lowering_cache")
"""The caches in the context of a program that is being lowered. JAX 0.5 has only the first."""


def count_call(module: Any) -> None:
    """Note that an operation is lowered now, so that JAX does not cache the functions around it.

    :param module: the module_context of the lowering rule's context
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
    """Whether the program that this thread lowers has operations of hpccoll."""

    has_calls = False


_lowering = _Lowering()


def when_lowered(finish: Callable[[Any], None]) -> None:
    """Make JAX call `finish` with each complete module that has operations of hpccoll."""
    lower = mlir_internals.lower_jaxpr_to_module
    signature = inspect.signature(lower)

    @functools.wraps(lower)
    def lower_and_finish(*given: Any, **more: Any) -> Any:
        whole = signature.bind(*given, **more).arguments["jaxpr"]
        outer, _lowering.has_calls = _lowering.has_calls, has_calls(whole)  # those of jax.export are lowered already
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
    """Register a lowering rule that JAX calls for each operation of a program; JAX does not cache its result."""
    options = {"cacheable": False} if "cacheable" in inspect.signature(mlir.register_lowering).parameters else {}
    mlir.register_lowering(primitive, rule, platform, **options)


def is_kept_argument(operand: Any) -> bool:
    """Return whether a value is an argument of the whole program that the caller did not donate."""
    if not isinstance(operand, ir.BlockArgument):
        return False
    attributes: Any = operand.owner.owner.attributes
    if "sym_name" not in attributes or attributes["sym_name"] != ir.StringAttr.get("main"):
        return False
    known = attributes["arg_attrs"][operand.arg_number] if "arg_attrs" in attributes else {}
    return not any(name in known for name in ("tf.aliasing_output", "jax.buffer_donor"))
