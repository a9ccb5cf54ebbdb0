# SPDX-License-Identifier: Apache-2.0
"""The count of bytes between groups, against what can be counted by hand, and the textbook's facts about each form."""

import random
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "simulator" / "partners.py"
POWERS = [2**k for k in range(1, 10)]


@pytest.fixture(scope="module")
def partners() -> dict[str, Any]:
    return runpy.run_path(str(FILE))


def test_bine_partners_are_mutual_and_every_pair_meets(partners: dict[str, Any]) -> None:
    """Distances 1, 1, 3, 5, 11 (Jacobsthal's numbers); each step doubles what a member has heard of, up to all."""
    assert [abs(partners["distance_of"](step)) for step in range(7)] == [1, 1, 3, 5, 11, 21, 43]
    for n in POWERS:
        heard = [{member} for member in range(n)]
        for step in range(n.bit_length() - 1):
            partner = [partners["partner"](n, member, step) for member in range(n)]
            assert all(partner[partner[member]] == member for member in range(n))
            assert all(heard[member].isdisjoint(heard[partner[member]]) for member in range(n))
            heard = [heard[member] | heard[partner[member]] for member in range(n)]
        assert all(len(each) == n for each in heard)


@pytest.mark.parametrize("n", POWERS)
def test_bytes_of_all_messages(partners: dict[str, Any], n: int) -> None:
    """2 (n - 1)/n per member of an allreduce; each member of a broadcast but the root receives the array once."""
    for operation, forms in partners["forms"](n, 0).items():
        for sent in forms:
            received, given = Counter[int](), Counter[int]()
            for sender, receiver, nbytes in sent:
                given[sender] += nbytes
                received[receiver] += nbytes
            if operation == "allreduce":
                assert all(given[m] == received[m] == pytest.approx(2 * (n - 1) / n) for m in range(n))
            else:
                assert [received[m] for m in range(n)] == pytest.approx([0.0] + [1.0] * (n - 1)), operation


def test_eight_nodes_in_two_groups(partners: dict[str, Any]) -> None:
    """Counted by hand. Recursive doubling: only the last step, an eighth each way. Bine: 2 pairs in each of 2 steps."""
    dragonfly, tree = (partners["Network"]("x", 4, pairs=pairs) for pairs in (True, False))
    (_, ours, bine), slots = partners["forms"](8, 0)["allreduce"], list(range(8))
    sent = {"ours": list(ours), "bine": list(bine)}
    assert dragonfly.load(sent["ours"], slots) == (2 * 8 / 8, 1.0)
    assert dragonfly.load(sent["bine"], slots) == (2 * (4 / 4 + 4 / 8), 1.5)
    assert tree.load(sent["bine"], slots) == dragonfly.load(sent["bine"], slots)
    assert dragonfly.load(sent["ours"], [2 * slot for slot in slots])[0] == 2 * 8 * (1 / 4 + 1 / 8)


def test_allocations(partners: dict[str, Any]) -> None:
    """As many different nodes as asked, along the network."""
    for allocate in partners["ALLOCATIONS"]:
        for n in (64, 512):
            slots = allocate(n, 32, random.Random(n))
            assert len(set(slots)) == n
            assert slots == sorted(slots) or allocate.__name__ == "unordered"


def test_whole_groups_come_first(partners: dict[str, Any]) -> None:
    """The library's order: the groups of most nodes, then the others, both along the network."""
    for allocate in partners["ALLOCATIONS"]:
        slots = allocate(512, 32, random.Random(1))
        size = Counter(slot // 32 for slot in slots)
        most = max(size.values())
        expected = sorted(slots, key=lambda slot: (size[slot // 32] != most, slot))
        assert partners["whole_first"](slots, 32) == expected


def test_a_run_that_begins_within_a_group(partners: dict[str, Any]) -> None:
    """16 nodes in groups of 4 from slot 2 on. Whole groups first: 12 nodes, and 4 in two groups.

    As given: each stage of 2 after the first crosses for all 16 nodes, 1/4, 1/8 and 1/16 each way. Whole groups first:
    the second one crosses for the last 4 nodes alone.
    """
    sent = list(partners["stages_allreduce"](16, (2, 2, 2, 2)))
    tree, slots = partners["Network"]("x", 4, pairs=False), list(range(2, 18))
    assert tree.load(sent, slots)[0] == 2 * 16 * (1 / 4 + 1 / 8 + 1 / 16)
    assert tree.load(sent, partners["whole_first"](slots, 4))[0] == 2 * (4 / 4 + 16 / 8 + 16 / 16)


def test_numbers_without_bine(partners: dict[str, Any]) -> None:
    """Bine trees need a power of two; an allreduce of 60 nodes sends 2 (n - 1)/n per member."""
    forms = partners["forms"](60, 0)
    assert all(len(sent) == 1 for sent in forms.values())
    assert sum(nbytes for _, _, nbytes in forms["allreduce"][0]) == pytest.approx(2 * 59, rel=1e-3)
    lines = list(partners["loads"](partners["NETWORKS"][1], partners["ALLOCATIONS"][1], 60))
    assert [line.split(" | ")[2] for line in lines] == ["as_given", "whole_first", "by_divisor"] * 2


def test_groups_by_divisors(partners: dict[str, Any]) -> None:
    """8 nodes in groups of 3, 4 and 1: 4 divides 8."""
    assert partners["by_divisor"]([1, 2, 3, 4, 5, 6, 7, 8], 4) == [4, 5, 6, 7, 1, 2, 3, 8]


def test_groups_without_the_tail(partners: dict[str, Any]) -> None:
    """Counted by hand: runs in groups of 4 from slot 2 on, whole groups first.

    20 nodes: four whole groups, and two cut ones, of which the first begins with node 16, in the last fifth. 16 nodes:
    three and two, and the first cut one begins with node 12, before the last fifth.
    """
    for n, first, borders, without in ((20, 2, 2, 4), (16, 2, 2, 2), (20, 0, 4, 4), (16, 1, 1, 1), (20, 1, 1, 4)):
        slots = partners["whole_first"](list(range(first, first + n)), 4)
        assert partners["known_group"](slots, 4, 0.0) == borders
        assert partners["known_group"](slots, 4, 1 / 5) == without
    assert partners["known_group"]([0, 1, 2, 3], 4, 0.0) == 0  # one group


def test_the_table_of_groups(partners: dict[str, Any]) -> None:
    """160 nodes on leaves of 32 are 5 aligned groups, or 4 and two cut ones in the last fifth."""
    fields = partners["cut_groups"](partners["NETWORKS"][1], 160, (0.0, 1 / 5)).split(" | ")
    assert fields[:2] == ["| fat tree, leaves of 32", "160"]
    assert float(fields[4]) < 0.9 * float(fields[2])
    assert partners["cut_groups"](partners["NETWORKS"][1], 160, (0.0, 0.0)).endswith(" | 0 of 32 |")
