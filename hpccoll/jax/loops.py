# SPDX-License-Identifier: Apache-2.0
"""Makes JAX keep the calls in a loop that it differentiates, so that each iteration makes them.

To differentiate a scan, JAX splits it into two loops. It moves loop-invariant code out of the first loop, and removes
unused code from the rest. Both are wrong for calls of hpccoll. A call with the same arrays in each iteration looks
loop-invariant, but its result depends on other ranks, which make the call in each iteration. A call with an unused
result, such as a send, looks like unused code. So if a loop would lose a call, JAX moves and removes nothing in it.
"""

import sys
from collections.abc import Sequence
from typing import Any

import jax

from hpccoll.jax.internals import NAME, has_calls, jax_core, jax_loops, partial_eval

__all__ = ["keep_calls"]

Unknown = Sequence[bool]
"""For each argument of a loop's body, whether it may differ between iterations."""


def keep_calls() -> None:
    """Make JAX keep the calls of hpccoll in the loops that it differentiates."""
    vars(jax_loops)["pe"] = _PartialEval()


class _PartialEval:
    """Replaces JAX's module for partial evaluation in its loops, which use it to find loop-invariant code."""

    def __getattr__(self, name: str) -> Any:
        return getattr(partial_eval, name)

    @staticmethod
    def trace_to_jaxpr_nounits(fun: Any, pvals: Sequence[Any], instantiate: Any = False) -> Any:
        """Split the body of a loop: compute loop-invariant code now, and return the rest as the new body."""
        (body,) = fun.f.args
        unknown = [not pval.is_known() for pval in pvals]
        if not _loses_calls(body, unknown):
            return partial_eval.trace_to_jaxpr_nounits(fun, pvals, instantiate)
        whole = partial_eval.convert_constvars_jaxpr(body.jaxpr)
        kept = [*body.consts, *(pval.get_known() for pval in pvals if pval.is_known())]
        first = [True] * len(body.consts) + [not differs for differs in unknown]
        ordered = partial_eval.move_binders_to_front(jax_core.ClosedJaxpr(whole, ()), first)
        results = [partial_eval.PartialVal.unknown(aval) for aval in body.out_avals]
        return partial_eval.convert_invars_to_constvars(ordered.jaxpr, len(kept)), results, kept

    @staticmethod
    def partial_eval_jaxpr_nounits(body: Any, unknown: Unknown, instantiate: Any) -> Any:
        """Split the body of a loop inside of jax.checkpoint in the same way; other callers get JAX's own result."""
        splits = sys._getframe(1).f_code.co_name == "_scan_partial_eval_custom"  # noqa: SLF001 - no argument says it
        if not splits or not _loses_calls(body, unknown):
            return partial_eval.partial_eval_jaxpr_nounits(body, unknown, instantiate)
        same = [aval for aval, differs in zip(body.in_avals, unknown, strict=True) if not differs]
        passed = jax.make_jaxpr(lambda *values: values)(*same)
        passed = jax_core.ClosedJaxpr(passed.jaxpr.replace(debug_info=body.jaxpr.debug_info), ())
        ordered = partial_eval.move_binders_to_front(body, [not differs for differs in unknown])
        return passed, ordered, [True] * len(body.out_avals), same


def _loses_calls(body: Any, unknown: Unknown) -> bool:
    """Return whether JAX would move calls out of a loop, or remove calls with unused results."""
    if not has_calls(body):
        return False
    _, kept, *_ = partial_eval.partial_eval_jaxpr_nounits(body, unknown, True)
    return _count(kept.jaxpr) < _count(body.jaxpr)


def _count(jaxpr: Any) -> int:
    """Return the number of calls of a traced function, including its loops, branches and nested functions."""
    direct = sum(1 for equation in jaxpr.eqns if equation.primitive.name == NAME)
    return direct + sum(_count(inner) for inner in jax_core.subjaxprs(jaxpr) if has_calls(inner))
