# SPDX-License-Identifier: Apache-2.0
"""Where nodes stand in the network, and the stages that follow it.

The addresses are those of real jobs and manuals: Sherlock and a cluster of three levels (topology/tree),
topology/block, HPE Cray EX, Summit.
"""

import itertools
import math
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from hpccoll import _core, node_order
from hpccoll.compared import from_list

HOST, FILE, SWITCH, BLOCK, XNAME = range(5)


@pytest.mark.parametrize(
    ("address", "pattern", "found"),
    [
        ("sh04.sh04-isw-16.sh04-16n05", "switch.switch.node", (SWITCH, "sh04/sh04-isw-16/sh04-16n05")),
        (".ib-core.tors-r1pac16.gpu027", "switch.switch.switch.node", (SWITCH, "/ib-core/tors-r1pac16/gpu027")),
        ("s0.s2.tux5.cluster.org", "switch.switch.node", (SWITCH, "s0/s2/tux5.cluster.org")),
        ("b1.n1", "block.node", (BLOCK, "b1/n1")),
        ("pp208", "node", (HOST, "h")),
        ("localhost.localdomain", "node", (HOST, "h")),
        ("s0.tux5", "switch.switch.node", (HOST, "h")),
        ("s0.tux5", "", (HOST, "h")),
        ("s" * 200 + ".tux5", "switch.node", (HOST, "h")),
    ],
)
def test_slurms_addresses(address, pattern, found):
    assert _core.node_address("h", slurm=address, slurm_pattern=pattern) == found


@pytest.mark.parametrize(
    ("xname", "found"),
    [
        ("x1000c0s3b0n1\n", (XNAME, "x1000/c0s3b0n1")),
        ("x3000c0s19b1n0", (XNAME, "x3000/c0s19b1n0")),
        ("x3000c0r15b0", (HOST, "h")),  # a switch
        ("x1000c0s3b0", (HOST, "h")),  # a board
        ("", (HOST, "h")),
    ],
)
def test_xnames(xname, found):
    assert _core.node_address("h", xname=xname) == found


def test_a_file_goes_before_the_scheduler(tmp_path):
    file = tmp_path / "nodes"
    file.write_text("# host, pod, leaf\nn1 pod1 leaf1\n\nn17\tpod2 leaf5 # moved\nlogin\n")
    slurm = {"slurm": "s0.n17", "slurm_pattern": "switch.node"}
    assert _core.node_address("n17", str(file), **slurm) == (FILE, "pod2/leaf5/n17")
    assert _core.node_address("n17.cluster.org", str(file), **slurm) == (FILE, "pod2/leaf5/n17")
    assert _core.node_address("login", str(file)) == (FILE, "login")
    assert _core.node_address("n18", str(file), **slurm) == (HOST, "n18")
    assert _core.node_address("n1", str(tmp_path / "none")) == (HOST, "n1")


@pytest.mark.parametrize(
    ("along", "groups"),
    [
        (["a01n05", "a01n17", "a02n01", "a10n01", "b01n02", "h36n08"], 1),
        (["frontier00009", "frontier00010", "frontier10001"], 1),
        (["n1", "n2", "n009", "n10", "n100"], 1),
        (["x999/c0s0b0n0", "x999/c1s0b0n0", "x1000/c0s2b0n0", "x1000/c0s10b0n0"], 2),
        (["x1000/c0s0b0n0", "x1000/c0s2b0n0", "x1000/c0s10b0n0", "x1000/c1s0b0n0", "x999/c0s0b0n0"], 2),
        (["s1/n9", "s1/n10", "s1-a/n0", "s2/n3", "s10/n1"], 4),
        (["s1/l1/n3", "s1/l2/n1", "s2/l1/n2"], 3),
    ],
)
def test_natural_order(along, groups):
    for seed in range(5):
        mixed = random.Random(seed).sample(along, len(along))
        positions, group = _core.nodes_order(mixed)
        assert [mixed[positions.index(i)] for i in range(len(along))] == along
        assert len(set(group)) == groups
        assert [group[mixed.index(text)] for text in along] == sorted(group)


@pytest.mark.parametrize(
    "along",
    [
        # one run of nodes that begins and ends within a leaf of 4
        ["s2/n5", "s2/n6", "s2/n7", "s2/n8", "s3/n9", "s3/n10", "s3/n11", "s3/n12", "s1/n4", "s4/n13", "s4/n14"],
        # the cut leaves stay in the order of the network, whatever their sizes
        ["s3/n7", "s3/n8", "s3/n9", "s1/n1", "s2/n4", "s2/n5", "s4/n10", "s5/n13", "s5/n14"],
        # pods of 4, 4 and 3 nodes: in each the whole leaves come first, and no leaf leaves its pod
        ["p2/l1/n1", "p2/l1/n2", "p2/l2/n3", "p2/l2/n4", "p3/l2/n2", "p3/l2/n3", "p3/l2/n4", "p3/l1/n1",
         "p1/l2/n2", "p1/l2/n3", "p1/l1/n1"],
        # a file that gives some hosts no group
        ["s1/n1", "s1/n2", "n3"],
        ["n2", "n3", "s1/n1"],
        # levels without a name
        ["/b/n2", "/b/n3", "/a/n1"],
        ["s1/n1"],
        [],
    ],
)  # fmt: skip
def test_whole_groups_come_first(along):
    for seed in range(5):
        mixed = random.Random(seed).sample(along, len(along))
        positions = _core.nodes_order(mixed)[0]
        assert [mixed[positions.index(i)] for i in range(len(along))] == along


def ordered_by_the_rule(nodes):
    """Sort nodes, lists of numbers with as many levels, so that at each level the groups of most nodes come first."""
    if len(nodes[0]) == 1:
        return sorted(nodes)
    size = Counter(node[0] for node in nodes)
    groups = sorted(size, key=lambda group: (size[group] != max(size.values()), group))
    return [[group, *rest] for group in groups for rest in ordered_by_the_rule([n[1:] for n in nodes if n[0] == group])]


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_random_allocations(levels):
    """A permutation, in which all whole groups stand before the cut ones; both keep the order of the network."""
    draw = random.Random(levels)
    for _ in range(100):
        widths = [draw.randrange(2, 12) for _ in range(levels)]
        machine = list(itertools.product(*map(range, widths)))
        nodes = [list(node) for node in draw.sample(machine, draw.randrange(1, min(len(machine), 2000) + 1))]
        texts = ["/".join(f"l{level}" for level in node) for node in nodes]
        positions, group = _core.nodes_order(texts)
        assert sorted(positions) == list(range(len(nodes)))
        along = [nodes[positions.index(i)] for i in range(len(nodes))]
        assert along == ordered_by_the_rule(nodes)
        size = Counter(group)
        if levels == 2:
            sizes = [size[group[positions.index(i)]] for i in range(len(nodes))]
            whole = [each == max(size.values()) for each in sizes]
            assert whole == sorted(whole, reverse=True)
        assert len({(g, *node[:-1]) for g, node in zip(group, nodes, strict=True)}) == len(size)


def test_many_nodes_are_ordered_in_no_time():
    """A run of 50,000 nodes from the middle of a group of 128, which the ranks report in any order."""
    slots = random.Random(0).sample(range(100, 50_100), 50_000)
    began = time.perf_counter()
    positions = _core.nodes_order([f"g{slot // 128}/n{slot}" for slot in slots])[0]
    assert time.perf_counter() - began < 10
    along = [0] * len(slots)
    for slot, position in zip(slots, positions, strict=True):
        along[position] = slot
    assert along == [*range(128, 50_048), *range(100, 128), *range(50_048, 50_100)]


def test_equal_addresses_keep_the_order_of_ranks():
    assert _core.nodes_order(["n2", "n1", "n2", "n1"]) == ([2, 0, 3, 1], [0, 0, 0, 0])


def ordered(addresses, hosts, node_of=None, file=""):
    return node_order.order(from_list(addresses), from_list(hosts), tuple(node_of or range(len(hosts))), file)


def test_what_orders_the_nodes():
    hosts = ["n3", "n1", "n2"]
    by_switch = [(SWITCH, "s1/n3"), (SWITCH, "s2/n1"), (SWITCH, "s1/n2")]
    assert ordered(by_switch, hosts) == (["s1/n3", "s2/n1", "s1/n2"], "Slurm's topology (2 switches)", "")
    by_cabinet = [(XNAME, f"x1000/c{i}s0b0n0") for i in range(3)]
    assert ordered(by_cabinet, hosts).said == "Cray's xnames (1 cabinet)"
    assert ordered([(HOST, host) for host in hosts], hosts) == (hosts, "host names", "")
    assert ordered(by_switch[:1] * 2, ["n3", "n3"], [0, 0]) == (None, "", "")  # one node
    assert ordered(by_switch[:1] * 2, ["n3", "n3"]) == (None, "", "")  # emulated nodes


def test_ranks_that_know_different_things():
    found = ordered([(SWITCH, "s1/n3"), (HOST, "n1"), (HOST, "n2")], ["n3", "n1", "n2"])
    assert found.addresses == ["n3", "n1", "n2"] and found.said == "host names"
    assert found.warning.endswith("Slurm's topology on rank 0; host names on ranks 1, 2")


def test_the_environment_of_the_first_host_on_all():
    """As Hydra passes it on."""
    found = ordered([(SWITCH, "s1/n3")] * 2, ["n3", "n1"])
    assert found.addresses == ["n3", "n1"]
    assert "Slurm's topology says s1/n3 on n3 and on n1" in found.warning


def test_a_file_without_these_hosts():
    assert "HPCCOLL_NODE_FILE=f cannot be read or has no line" in ordered([(HOST, "a"), (HOST, "b")], "ab", file="f")[2]


@pytest.mark.parametrize(("nodes", "group"), [(4608, 18), (72, 18), (1024, 16), (36, 9)])
def test_the_first_stages_of_a_large_sum_stay_in_a_group(nodes, group):
    """On a network of 23 GB/s: some of the first stages are together one group of nodes."""
    radices = _core.net_choice(nodes, 1 << 24, "float32", "auto", False, 2e-6, 1 / 23e9, 1e-10, group)[3]
    assert math.prod(radices) == nodes
    assert group in [math.prod(radices[:stages]) for stages in range(len(radices))]


JOB = """
import os
import numpy as np
import hpccoll
from mpi4py import MPI

rank, along = MPI.COMM_WORLD.rank, [2, 0, 3, 1]  # where the node of each rank stands
place = along[rank]

def total(values, world):
    return world.allreduce(np.full(1, values[place]))[0]

def checks(pairs, pairs_of_subset, chain):
    made = hpccoll.World(algorithm="stages")
    assert total([1e16, -1e16, 1.0, 1.0], made) == pairs  # adds the first two and the last two
    assert total([1e16, -1e16, 1.0, 1.0], made.subset([2, 3, 1, 0])) == pairs_of_subset
    assert made.allgather(np.array([rank])).tolist() == [0, 1, 2, 3]
    assert (made.cross_rank, made.cross_size) == (rank, 4)
    x = np.arange(8.0) + 8 * rank
    assert (made.reducescatter(x.reshape(8, 1)).ravel() == (4 * np.arange(8.0) + 48)[2 * rank:2 * rank + 2]).all()
    for root in range(4):
        assert (made.broadcast(x, root) == np.arange(8.0) + 8 * root).all()
        summed = made.reduce(x, root=root)
        assert root != rank or (summed == 4 * np.arange(8.0) + 48).all()
    made.shutdown()
    direct = hpccoll.World(algorithm="direct")
    assert total([1e16, 1.0, -1e16, 1.0], direct) == chain  # adds one after another
    direct.shutdown()

os.environ["SLURM_TOPOLOGY_ADDR"] = f"s{place // 2}.n{place}"
os.environ["SLURM_TOPOLOGY_ADDR_PATTERN"] = "switch.node"
along_the_network = (1e16 + -1e16) + (1.0 + 1.0), (1e16 + -1e16) + (1.0 + 1.0), ((1e16 + 1.0) + -1e16) + 1.0
by_rank = (1.0 + 1e16) + (1.0 + -1e16), (1.0 + -1e16) + (1e16 + 1.0), ((-1e16 + 1e16) + 1.0) + 1.0
assert along_the_network == (2.0, 2.0, 1.0) and by_rank == (0.0, 0.0, 2.0)
checks(*along_the_network)
os.environ["SLURM_TOPOLOGY_ADDR"] = f"s{(place + 1) // 2}.n{place}"  # s1 is whole: places 1, 2, then 0, 3
whole_first = hpccoll.World(algorithm="stages")
assert (1e16 + -1e16) + (1.0 + 1.0) == 2.0 and (1.0 + 1e16) + (-1e16 + 1.0) == 0.0
assert total([1.0, 1e16, -1e16, 1.0], whole_first) == 2.0
whole_first.shutdown()
os.environ["SLURM_TOPOLOGY_ADDR"] = f"s{place // 2}.n{place}"
deterministic = hpccoll.World(deterministic=True, verbose=0)
assert total([1e16, 1.0, -1e16, 1.0], deterministic) == by_rank[2]
deterministic.shutdown()
if rank == 2:
    del os.environ["SLURM_TOPOLOGY_ADDR"]
checks(*by_rank)  # one host: by the lowest ranks
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_stages_follow_the_network():
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "4", "--nodes", "4", "--timeout", "90"]
    done = subprocess.run(
        [*command, sys.executable, "-c", JOB], timeout=110, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "HPCCOLL_NODES=4, ordered by Slurm's topology (2 switches); " in done.stdout
    assert done.stdout.count("ordered by host names: Slurm's topology on ranks 0, 1, 3; host names on rank 2") == 2
