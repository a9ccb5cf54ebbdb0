# SPDX-License-Identifier: Apache-2.0
"""What the ranks compare before the root's values go to the variables of all, and what else front ends share."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpccoll import errors, objects
from hpccoll.compared import Compared
from hpccoll.frontend.objects import allgather_object
from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.text import some_ranks

__all__ = ["all_built", "compare_named", "compare_variables", "with_committed"]

MOST_DIFFERENCES = 8
"""Names that an error writes out before it only counts."""


def all_built(model: Any) -> bool:
    """Return whether all variables of a model of layers are there; `model.built` says nothing of the layers in it."""
    return all(layer.built for layer in model._flatten_layers())  # noqa: SLF001 - flat for nested models


def with_committed(what: str, variables: Sequence[Any], values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Pair the variables of an elastic state with their committed values.

    :param what: the state, for the error
    :param variables: those of now
    :param values: those of the commit
    :raises InvalidArgumentError: variables were made after the commit, for example by compile()
    """
    if len(variables) != len(values):
        raise errors.InvalidArgumentError(
            f"{what}: the commit has {len(values)} variables, and the model and its optimizer have {len(variables)} "
            "now: call model.compile() before the state is made, or give it optimizer="
        )
    return zip(variables, values, strict=True)


def compare_variables(
    what: str,
    mine: Sequence[str],
    name: str,
    process_set: ProcessSet,
    here: Sequence[str] = (),
    root_rank: int | None = None,
) -> None:
    """Compare the variables of the ranks, and the root.

    :param what: the function that gives them the root's values, for the error
    :param mine: for each variable what must be the same on all ranks: dtype and shape, perhaps a path
    :param name: of the exchange
    :param process_set: the ranks that compare
    :param here: names of the variables that may differ between ranks
    :param root_rank: what the program gave for it, unchecked
    :raises MismatchError: the ranks have other variables; the same error on all, but for `here`
    """
    digest = hashlib.sha256(repr([root_rank, *mine]).encode()).digest()
    digests = allgather_object(digest, name=name, process_set=process_set)
    if all(other == digests[0] for other in digests):
        return  # the lists of many ranks are long: they travel only to name the difference
    said = allgather_object((repr(root_rank), list(mine)), name=name, process_set=process_set)
    roots, each = [root for root, _ in said], [given for _, given in said]
    for rank, (root, other) in enumerate(said):
        if root != roots[0]:
            raise errors.MismatchError(f"{what}: root_rank is {roots[0]} on rank 0 and {root} on rank {rank}")
        if other == each[0]:
            continue
        pairs = itertools.zip_longest(each[0], other, fillvalue="missing")
        at, first, theirs = next((i, a, b) for i, (a, b) in enumerate(pairs) if a != b)
        path = f" ({here[at]} here)" if at < len(here) else ""
        counts = f", of {len(each[0])} and {len(other)} variables" if len(each[0]) != len(other) else ""
        raise errors.MismatchError(
            f"{what}: variable {at}{path} is {first} on rank 0 and {theirs} on rank {rank}{counts}; all ranks need the "
            "same variables: build the model and the optimizer first"
        )


def compare_named(what: str, mine: Mapping[str, str], name: str, process_set: ProcessSet) -> None:
    """Compare what the ranks give to a function under names, in any order.

    :param what: the function, for the error
    :param mine: for each name what must be the same on all ranks
    :param name: of the exchange
    :param process_set: the ranks that compare
    :raises MismatchError: the ranks have other names, or something else under a name; the same error on all
    """
    said = objects.compare(world_of(process_set).core, sorted(mine.items()), name, None)
    if said.alike:
        return
    given = [dict(table) for table in said.values]
    names = sorted({key for table in given for key in table})
    differing = [key for key in names if len({table.get(key) for table in given}) > 1]
    texts = [f"{key} is {_by_ranks(said, [table.get(key, 'missing') for table in given])}" for key in differing]
    more = f"; and {len(texts) - MOST_DIFFERENCES} more" if len(texts) > MOST_DIFFERENCES else ""
    raise errors.MismatchError(f"{what}: {'; '.join(texts[:MOST_DIFFERENCES])}{more}; all ranks must give the same")


def _by_ranks(said: Compared[Any], texts: Sequence[str]) -> str:
    """Write each text once, with its ranks: `float32[4] on ranks 0, 2 and missing on rank 1`.

    :param texts: one for each of `said.values`
    """
    ranks: dict[str, list[int]] = {}
    for at, text in enumerate(texts):
        ranks.setdefault(text, []).extend(said.ranks(at))
    return " and ".join(f"{text} on {some_ranks(those)}" for text, those in ranks.items())
