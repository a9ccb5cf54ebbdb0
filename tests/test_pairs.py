# SPDX-License-Identifier: Apache-2.0
"""The combinations that `make test` runs hold every pair of values, and are few."""

from itertools import combinations, product

import pytest
from pairs import every_pair, parametrize_pairs


@pytest.mark.parametrize("counts", [(4, 3, 3), (3, 3, 3, 2, 2), (2, 3, 2, 2)])
def test_chosen_combinations_hold_every_pair(counts: tuple[int, ...]) -> None:
    chosen = every_pair(counts)
    for (one, of_one), (other, of_other) in combinations(enumerate(counts), 2):
        assert {(c[one], c[other]) for c in chosen} == set(product(range(of_one), range(of_other)))
    assert len(chosen) <= len(list(product(*map(range, counts)))) / 2


def test_all_combinations_are_there_and_the_others_are_slow() -> None:
    mark = parametrize_pairs(first=["a", "b"], second__third=[(1, 2), (3, 4)], fourth=[5, 6])
    names, parameters = mark.args
    assert list(names) == ["first", "second", "third", "fourth"]
    assert {p.values for p in parameters} == {(a, *b, c) for a in "ab" for b in ((1, 2), (3, 4)) for c in (5, 6)}
    assert sum(not p.marks for p in parameters) == 4
