# SPDX-License-Identifier: Apache-2.0
"""The schedule of measurements: no node twice in a round, log2(n) partners per node, suspects confirmed or not."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from reports import link

from hpccoll.tools.doctor import reach, rounds


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 300))
def test_a_round_has_each_node_once_and_partners_change(nodes: int) -> None:
    schedule = rounds.rounds(nodes)
    assert len(schedule) <= nodes.bit_length() + 1
    for pairs in schedule:
        members = [node for pair in pairs for node in pair]
        assert len(members) == len(set(members)) >= nodes - nodes % 2
        assert all(0 <= a < b < nodes for a, b in pairs)
    everything = [pair for pairs in schedule for pair in pairs]
    assert len(everything) == len(set(everything))
    partners = {node: sum(node in pair for pair in everything) for node in range(nodes)}
    assert min(partners.values()) >= min(nodes - 1, (nodes - 1).bit_length())


def test_one_node_has_no_partner() -> None:
    assert rounds.rounds(1) == []


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 200))
def test_each_node_is_tried_by_another(nodes: int) -> None:
    tried = {node for mine in range(nodes) for node in reach.partners(mine, nodes)}
    assert tried == set(range(nodes))
    assert all(mine not in reach.partners(mine, nodes) for mine in range(nodes))


@settings(max_examples=50, deadline=None)
@given(st.integers(4, 12), st.data())
def test_a_slow_node_is_told_from_a_slow_link(nodes: int, data: st.DataObject) -> None:
    """Measure as the doctor does: a schedule, then the suspects again."""
    guilty = data.draw(st.integers(0, nodes - 1))
    is_node = data.draw(st.booleans())
    pairs = [pair for one in rounds.rounds(nodes) for pair in one]
    bad = [p for p in pairs if guilty in p] if is_node else [next(p for p in pairs if guilty in p)]

    def measured(pair: rounds.Pair) -> dict[str, object]:
        slow = guilty in pair if is_node else pair in bad
        return link(*pair, 100 if slow else 1000)

    links = [measured(pair) for pair in pairs]
    links += [measured(pair) for pair in rounds.again(rounds.slow_pairs(links), nodes)]
    assert rounds.slow_nodes(links) == ([guilty] if is_node else [])
    assert set(bad) <= set(rounds.slow_pairs(links))


def test_suspects_are_measured_alone_and_with_a_sound_node() -> None:
    links = [link(a, b, 100 if (a, b) == (0, 3) else 1000) for a, b in combinations(range(5), 2)]
    assert rounds.again(rounds.slow_pairs(links), 5) == [(0, 3), (0, 1), (1, 3)]


def test_the_best_figures_of_several_measurements_count() -> None:
    """A pair that answered late once, and was as fast as ever the second time, is not slow."""
    well = [link(a, b, 1000, latency=30e-6) for a, b in combinations(range(4), 2)]
    late = link(0, 1, 1001, latency=1e-3)
    assert rounds.slow_pairs([late, *well[1:]]) == [(0, 1)]
    assert rounds.slow_pairs([late, *well]) == []


def test_two_links_cannot_tell() -> None:
    assert rounds.slow_pairs([link(0, 1, 100), link(0, 2, 1000)]) == []
