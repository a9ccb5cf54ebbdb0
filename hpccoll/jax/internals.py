# SPDX-License-Identifier: Apache-2.0
"""What JAX does not publish and this package needs: traces, effects and their tokens, custom calls, lowered functions.

Decisions 39 and 60 say what each is for. tests/jax run with the oldest version and the newest.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import mlir

from hpccoll import errors

OLDEST = "0.5.3"

try:
    from jax._src import core as jax_core
    from jax._src import dispatch, effects
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
    "is_kept_argument", "place_in_program", "register_lowering", "stablehlo", "tell_calls", "trace_ctx",
    "wait_for_programs",
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


Key = tuple[int, str]
"""The number of a process set, and a name: other sets have other ranks, which do not have these operations."""


class _Branches:
    """The operations of the branches of one condition, of which one runs: they share their numbers."""

    def __init__(self) -> None:
        self.before: dict[Key, int] = {}
        self.within: collections.defaultdict[int, Counter[Key]] = collections.defaultdict(Counter)


class _Places:
    """The operations of a program, as far as it is lowered: how many of each set and name, and how many in all."""

    def __init__(self) -> None:
        self.names: Counter[Key] = Counter()
        self.all = 0
        self.made: collections.defaultdict[Key, list[Any]] = collections.defaultdict(list)
        self._branches: collections.defaultdict[Any, _Branches] = collections.defaultdict(_Branches)

    def count(self, name: Key, path: list[tuple[Any, int]]) -> int:
        """Count an operation.

        :param path: the conditions that it is in, the outermost first, and in which branch of each
        :returns: its number among those of its name
        """
        if not path:
            self.names[name] += 1
            return self.names[name]
        condition, branch = path[-1]
        one = self._branches[condition]
        before = one.before.setdefault(name, self._so_far(name, path[:-1]))
        one.within[branch][name] += 1
        number = before + one.within[branch][name]
        self._raise_to(name, path[:-1], number)
        return number

    def _so_far(self, name: Key, path: list[tuple[Any, int]]) -> int:
        if not path:
            return self.names[name]
        condition, branch = path[-1]
        one = self._branches[condition]
        return one.before.setdefault(name, self._so_far(name, path[:-1])) + one.within[branch][name]

    def _raise_to(self, name: Key, path: list[tuple[Any, int]], number: int) -> None:
        more = number - self._so_far(name, path)
        if more > 0 and not path:
            self.names[name] = number
        elif more > 0:
            condition, branch = path[-1]
            self._branches[condition].within[branch][name] += more
            self._raise_to(name, path[:-1], number)


class _Lowered(dict[Any, Any]):
    """The functions of a program that JAX has lowered, and uses again where a program calls them again.

    It keeps none that have operations: those are lowered at each place, so that each place has operations of its own.
    """

    def __init__(self, before: dict[Any, Any], places: _Places) -> None:
        super().__init__(before)
        self.places = places
        self._begun: dict[Any, int] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self._begun[key] = self.places.all
        return super().get(key, default)

    def __missing__(self, key: Any) -> Any:
        self._begun[key] = self.places.all
        raise KeyError(key)

    def __setitem__(self, key: Any, function: Any) -> None:
        if self._begun.pop(key, None) == self.places.all:  # None: it was begun before the first operation
            super().__setitem__(key, function)


_CACHES = ("cached_primitive_lowerings", "lowering_cache")
"""The context of a program that is being lowered has them. JAX 0.5 has the first alone."""


def _conditions() -> list[tuple[Any, int]]:
    """Return the condition of which what is lowered now is a branch, and which one; none where it is no branch itself.

    What is further outside cannot be asked of programs that JAX has not finished, and JAX 0.5 does not show it.
    """
    block = ir.InsertionPoint.current.block
    owner = block.owner.operation
    if owner.name not in ("stablehlo.case", "stablehlo.if"):
        return []
    return [(owner, next(i for i, region in enumerate(owner.regions) if block in list(region.blocks)))]


def _places_of(module: Any) -> _Places:
    places: _Places | None = getattr(module.cached_primitive_lowerings, "places", None)
    if places is None:
        places = _Places()
        for cache in _CACHES:
            if hasattr(module, cache):
                setattr(module, cache, _Lowered(getattr(module, cache), places))
    return places


def place_in_program(module: Any, process_set: int, name: str) -> int:
    """Count an operation that is lowered now: return which one of its set and name it is in the program, from 1.

    Those in the branches of one condition have the same numbers: ranks that branch differently have the same names.

    :param module: what a lowering rule knows of the program: its context's module_context
    """
    places = _places_of(module)
    places.all += 1
    return places.count((process_set, name), _conditions())


def _in_main() -> bool:
    attributes: Any = ir.InsertionPoint.current.block.owner.attributes
    return "sym_name" in attributes and attributes["sym_name"] == ir.StringAttr.get("main")


def tell_calls(module: Any, name: Key, made: Any, write: Callable[[Any, int], None]) -> None:
    """Write into the operations of a name how many calls of it the program has, as far as it is lowered.

    Into those of the main function alone: JAX may throw away another function, and its operations with it.

    :param made: the newest of them
    :param write: called with each of them, and the number
    """
    places = _places_of(module)
    if _in_main():
        places.made[name].append(made)
    calls = places.names[name]
    for one in places.made[name] if calls > 1 else ():
        write(one, calls)


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
