# SPDX-License-Identifier: Apache-2.0
"""The nodes of a process set stand as those of the job, and the largest equal groups on one switch are found."""

import runpy
from pathlib import Path

import pytest

COUNTS = Path(__file__).resolve().parents[2] / "benchmarks" / "simulator" / "partners.py"
ADDRESSES = "s2/n4,s1/n1,s2/n3,s1/n2,s3/n6,s3/n5"


@pytest.mark.parametrize(
    ("addresses", "ranks", "printed"),
    [
        (ADDRESSES, "0,1,2,3,4,5", "3 0 2 1 5 4 group 2"),
        (ADDRESSES, "5,4,3,2,1,0", "4 5 1 2 0 3 group 2"),
        (ADDRESSES, "2,4,0", "0 2 1 group 1"),  # two nodes of a switch, one of another
        (ADDRESSES, "4,3", "1 0 group 1"),
        (ADDRESSES, "0,2", "1 0 group 0"),  # one switch
        (ADDRESSES, "3", "0 group 0"),
        ("a/1,a/2,a/3,a/4,b/1,b/2,c/1,c/2,c/3,c/4,c/5,c/6", "0,1,2,3,4,5,6,7,8,9,10,11",
         "6 7 8 9 10 11 0 1 2 3 4 5 group 2"),  # the largest switch first
        ("a/1,b/1,b/2,c/1,c/2,d/1", "0,1,2,3,4,5", "4 0 1 2 3 5 group 1"),
        ("a/1,b/1,b/2,c/1,c/2,d/1", "5,4,0,2,3", "4 2 3 0 1 group 1"),  # a set keeps the order of the job
        ("-,-,-", "2,0,1", "0 1 2 group 0"),  # by first appearance
    ],
)  # fmt: skip
def test_the_nodes_of_a_set(build_c, run_c, addresses, ranks, printed):
    program = build_c("tests/world/members.c", "ext/world/members.c", "ext/world/node_order.c")
    assert run_c(program, addresses, ranks).strip() == printed


@pytest.fixture(scope="module")
def counts():
    return runpy.run_path(str(COUNTS))


def found_group(build_c, run_c, slots, group):
    """The group that the library finds, with a rank on each slot."""
    program = build_c("tests/world/members.c", "ext/world/members.c", "ext/world/node_order.c")
    addresses = ",".join(f"s{slot // group}/n{slot}" for slot in slots)
    return int(run_c(program, addresses, ",".join(map(str, range(len(slots))))).split()[-1])


def carried(counts, pairs, group, slots):
    """Count by each divisor of the number of nodes: the bytes between groups, and on the busiest link."""
    n, found, ordered = len(slots), {}, counts["whole_first"](slots, group)
    network = counts["Network"]("", group, pairs)
    for divisor in (d for d in range(1, n) if n % d == 0):
        stages = counts["known_radices"](n, divisor)
        if stages not in found:
            found[stages] = network.load(counts["stages_allreduce"](n, stages), ordered)
        found[divisor] = found[stages]
    return found


@pytest.mark.parametrize(
    ("pairs", "group", "nodes", "first"),
    [
        (False, 8, 120, 3),
        (False, 16, 96, 5),
        (False, 32, 480, 5),
        (False, 32, 600, 3),
        (True, 128, 480, 101),
    ],
)
def test_no_other_group_sends_fewer_bytes(build_c, run_c, counts, pairs, group, nodes, first):
    """A run of nodes that begins and ends within a group: of all divisors, that of the whole groups is the best."""
    slots = list(range(first, first + nodes))
    known, all_links = carried(counts, pairs, group, slots), 0
    fewest = min(load[all_links] for load in known.values())
    assert known[found_group(build_c, run_c, slots, group)][all_links] == pytest.approx(fewest)
    assert known[1][all_links] > 1.1 * fewest  # what the borders in the tail allow


def test_a_large_tail_counts(build_c, run_c, counts):
    """512 nodes from slot 20 of a group of 128 on: a quarter of them is in two cut groups, whose link is the busiest.

    Groups of 128 would put more on it than those of the common divisor, 4.
    """
    slots = list(range(20, 532))
    known, busiest_link = carried(counts, True, 128, slots), 1
    assert known[found_group(build_c, run_c, slots, 128)][busiest_link] == known[4][busiest_link]
    assert known[128][busiest_link] > 1.03 * known[4][busiest_link]
