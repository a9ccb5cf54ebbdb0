# SPDX-License-Identifier: Apache-2.0
"""Parameters with many combinations: `make test` runs a few that contain every pair of values, `make test-all` all.

Most faults show with one value, or with a pair of values (Kuhn, Wallace and Gallo, Software Fault Interactions and
Implications for Software Testing, IEEE TSE 30, 2004).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from allpairspy import AllPairs


def every_pair(counts: Sequence[int]) -> set[tuple[int, ...]]:
    """Choose combinations of one place per parameter, which has so many, that hold each pair of two places."""
    return {tuple(places) for places in AllPairs([list(range(count)) for count in counts])}


def parametrize_pairs(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize by all combinations; those that every_pair() leaves out are slow. `a__b=[(1, 2)]`: two at once."""
    chosen = every_pair([len(of_one) for of_one in values.values()])
    parameters = [
        pytest.param(
            *(value for name, at in zip(values, places, strict=True) for value in each(name, values[name][at])),
            marks=() if places in chosen else pytest.mark.slow,
        )
        for places in product(*(range(len(of_one)) for of_one in values.values()))
    ]
    return pytest.mark.parametrize([word for name in values for word in name.split("__")], parameters)


def each(name: str, value: Any) -> tuple[Any, ...]:
    return tuple(value) if "__" in name else (value,)
