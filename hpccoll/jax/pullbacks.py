# SPDX-License-Identifier: Apache-2.0
"""Checks that one thread applies each pullback of a function of `jit`. threads.py does so for calls outside of `jit`.

Such a pullback is a compiled program. XLA does not tell which thread has called it, so the check runs in Python, before
the program starts. The tickets of the differentiated calls are arguments of the program.
"""

import functools
import weakref
from collections.abc import Iterator
from typing import Any

from hpccoll.jax import eager
from hpccoll.jax.call import Call
from hpccoll.jax.internals import NAME, has_calls, jax_core, jit_primitive

__all__ = ["refuse_other_threads"]

_known: weakref.WeakKeyDictionary[Any, list[tuple[int, Call]]] = weakref.WeakKeyDictionary()
"""For each program, its derivatives, each with the index of the argument that is its ticket."""


def refuse_other_threads() -> None:
    """Make JAX check which thread applies the derivatives of a program, before it starts the program."""
    start = jit_primitive.impl

    @functools.wraps(start)
    def check_and_start(*arguments: Any, jaxpr: Any, **more: Any) -> Any:
        for place, call in _derivatives(jaxpr) if has_calls(jaxpr) else ():
            eager.refuse_other_thread(call, arguments[place])
        return start(*arguments, jaxpr=jaxpr, **more)

    jit_primitive.def_impl(check_and_start)


def _derivatives(program: Any) -> list[tuple[int, Call]]:
    if program not in _known:
        _known[program] = list(_find(program.jaxpr))
    return _known[program]


def _find(jaxpr: Any) -> Iterator[tuple[int, Call]]:
    """Yield the derivatives whose ticket is an argument of a function, each after the index of that argument."""
    places = {variable: place for place, variable in enumerate(jaxpr.invars)}
    for equation in jaxpr.eqns:
        operands = list(equation.invars)
        found = [(len(operands) - 1, equation.params["call"])] if equation.primitive.name == NAME else []
        for inner in jax_core.jaxprs_in_params(equation.params):
            before = len(operands) - len(inner.invars)  # the first operand of a condition selects the branch
            found += [(before + place, call) for place, call in _find(inner)]
        for place, call in found:
            if call.follows and isinstance(operands[place], jax_core.Var) and operands[place] in places:
                yield places[operands[place]], call
