# SPDX-License-Identifier: Apache-2.0
"""Calls in a loop that JAX differentiates happen in each turn.

JAX makes two loops of a scan that it differentiates. It takes out of the first one what depends on no turn, to compute
it once, and keeps of the rest what its results need. A call whose arrays are the same in each turn was taken out, too,
but its result depends on other ranks, which make the call in each turn and may have other arrays. And a call whose
result nothing needs, as a send, was left out. So a loop that would lose a call keeps all that it has.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax

from hpccoll.jax.internals import NAME, has_calls, jax_core, jax_loops, partial_eval

__all__ = ["keep_calls"]

Unknown = Sequence[bool]
"""For each argument of a loop's body, whether it may differ between turns."""


def keep_calls() -> None:
    """Make JAX keep calls of ours in the loops that it differentiates."""
    vars(jax_loops)["pe"] = _PartialEval()


class _PartialEval:
    """JAX's partial evaluation, as its loops use it: to find what depends on no turn."""

    def __getattr__(self, name: str) -> Any:
        return getattr(partial_eval, name)

    @staticmethod
    def trace_to_jaxpr_nounits(fun: Any, pvals: Sequence[Any], instantiate: Any = False) -> Any:
        """Split the body of a loop; only what depends on turns stays in it. The rest is computed now."""
        (body,) = fun.f.args
        unknown = [not pval.is_known() for pval in pvals]
        if not _loses_calls(body, unknown):
            return partial_eval.trace_to_jaxpr_nounits(fun, pvals, instantiate)
        whole = partial_eval.convert_constvars_jaxpr(body.jaxpr)
        kept = [*body.consts, *(pval.get_known() for pval in pvals if pval.is_known())]
        first = [True] * len(body.consts) + [not one for one in unknown]
        ordered = partial_eval.move_binders_to_front(jax_core.ClosedJaxpr(whole, ()), first)
        results = [partial_eval.PartialVal.unknown(aval) for aval in body.out_avals]
        return partial_eval.convert_invars_to_constvars(ordered.jaxpr, len(kept)), results, kept

    @staticmethod
    def partial_eval_jaxpr_nounits(body: Any, unknown: Unknown, instantiate: Any) -> Any:
        """Split the body of a loop in a checkpoint in the same way; other loops use this function for other ends."""
        splits = sys._getframe(1).f_code.co_name == "_scan_partial_eval_custom"  # noqa: SLF001 - nothing else says it
        if not splits or not _loses_calls(body, unknown):
            return partial_eval.partial_eval_jaxpr_nounits(body, unknown, instantiate)
        same = [aval for aval, one in zip(body.in_avals, unknown, strict=True) if not one]
        passed = jax.make_jaxpr(lambda *values: values)(*same)
        passed = jax_core.ClosedJaxpr(passed.jaxpr.replace(debug_info=body.jaxpr.debug_info), ())
        ordered = partial_eval.move_binders_to_front(body, [not one for one in unknown])
        return passed, ordered, [True] * len(body.out_avals), same


def _loses_calls(body: Any, unknown: Unknown) -> bool:
    """Whether calls would be taken out of a loop. One whose result nothing needs would be left out altogether."""
    if not has_calls(body):
        return False
    _, kept, *_ = partial_eval.partial_eval_jaxpr_nounits(body, unknown, True)
    return _count(kept.jaxpr) < _count(body.jaxpr)


def _count(jaxpr: Any) -> int:
    """Return how many calls a function that JAX has traced has, also in its loops, branches and nested functions."""
    own = sum(1 for equation in jaxpr.eqns if equation.primitive.name == NAME)
    return own + sum(_count(one) for one in jax_core.subjaxprs(jaxpr) if has_calls(one))
