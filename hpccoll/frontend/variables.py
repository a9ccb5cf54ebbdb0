# SPDX-License-Identifier: Apache-2.0
"""What the ranks compare before the root's values go to the variables of all."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

from hpccoll import errors
from hpccoll.frontend.objects import allgather_object
from hpccoll.frontend.process_sets import ProcessSet

__all__ = ["compare_variables"]


def compare_variables(
    what: str, mine: Sequence[str], name: str, process_set: ProcessSet, here: Sequence[str] = ()
) -> None:
    """Compare the variables of the ranks.

    :param what: the function that gives them the root's values, for the error
    :param mine: for each variable what must be the same on all ranks: dtype and shape, perhaps a path
    :param name: of the exchange
    :param process_set: the ranks that compare
    :param here: names of the variables that may differ between ranks
    :raises MismatchError: the ranks have other variables; the same error on all, but for `here`
    """
    digest = hashlib.sha256(repr(list(mine)).encode()).digest()
    digests = allgather_object(digest, name=name, process_set=process_set)
    if all(other == digests[0] for other in digests):
        return  # the lists of many ranks are long: they travel only to name the difference
    each = allgather_object(list(mine), name=name, process_set=process_set)
    for rank, other in enumerate(each):
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
