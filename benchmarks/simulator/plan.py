# SPDX-License-Identifier: Apache-2.0
"""The runs of the study: what the simulator is asked, the most wanted runs first."""

import math
from typing import Any

from hpccoll.tools.model import chunks, messages

SIZES = (1 << 19, 3 << 20, 16 << 20)
"""Bytes of a batch: the last one is the largest that the engine fuses."""
PRECISIONS = (1e-9, 1e-8, 3e-8, 1e-7)
SOME, MANY = SIZES[1:]
WIRES = ("none", "fp16")
SUMMIT = (2, 4, 8, 16, 32, 64, 72, 96, 256, 1000, 1024, 4096, 4608)
FRONTIER = (2, 8, 32, 64, 128, 512, 1000)
"""Numbers of nodes; the largest ones are not simulated with the largest batches, which would take hours."""
GROUPS = {"summit": 18, "frontier": 128}
"""Nodes below a leaf switch, and in a group of the dragonfly."""
Run = dict[str, Any]


def known_group(machine: str, nodes: int) -> int:
    """Return the number of nodes that hpccoll knows to share a switch, if it knows the switches; 0: no such number."""
    whole, rest = divmod(nodes, GROUPS[machine])
    group = math.gcd(GROUPS[machine], rest)
    return group if whole and group > 1 and nodes > group else 0


def precision(nodes: int, turns: bool) -> float:
    """Return the seconds within which events count as simultaneous: it saves most of the time of large runs.

    :param turns: whether each rank is an actor
    """
    return 1e-9 if nodes < 64 else 1e-8 if nodes < 128 else 1e-7 if turns and nodes >= 512 else 3e-8


def allreduce(nodes: int, nbytes: int, machine: str = "summit", **more: Any) -> Run:
    """Return the run of one batch, cut as a node of that machine cuts it."""
    per_node = {"summit": 6, "frontier": 8}[machine]
    dtype = more.get("dtype", "float32")
    between = {"fp16": "float16"}.get(more.get("wire", ""), dtype)
    count = max(1, nbytes // messages.SIZES[dtype])
    cut = chunks.cut(count, dtype, between, per_node, more.get("rails", 0), nodes=nodes)
    found = {"what": "allreduce", "machine": machine, "nodes": nodes, "bytes": nbytes, "rails": cut.rails,
             "shard": cut.shard, "depth": cut.depth, "group": known_group(machine, nodes),
             "precision": precision(nodes, cut.turns)}  # fmt: skip
    if cut.turns:
        found |= {"turns": 1, "slots": cut.slots}
    return found | {name: value for name, value in more.items() if value != "none"}


def agreement(nodes: int, **more: Any) -> Run:
    """Return the run in which all ranks agree on ResNet-50's gradients."""
    return {"what": "agreement", "machine": "summit", "nodes": nodes} | more


VOTERS = (16, 64, 256, 1024, 4608)


def vote(nodes: int, **more: Any) -> Run:
    """Return the run in which all nodes vote on a blocking call of 8 bytes."""
    return {"what": "vote", "machine": "summit", "nodes": nodes} | more


def few_bytes(nodes: int) -> Run:
    """Return the run of an allreduce of 8 bytes, as it follows an agreement."""
    return allreduce(nodes, 8, rails=1)


def runs() -> list[Run]:
    """Return all runs."""
    found = [agreement(n) for n in (1, 2, 4, 16, 64, 256, 1024, 4608)]
    found += [agreement(n, fanout=4) for n in (16, 64, 256, 1024, 4608)]
    found += [run for n in VOTERS for run in (vote(n), vote(n, radix=2), few_bytes(n))]
    found += [allreduce(n, SIZES[0], wire=wire) for n in SUMMIT for wire in WIRES]
    found += [allreduce(n, SOME, wire=wire) for n in SUMMIT if n != 4096 for wire in WIRES]
    found += [allreduce(n, MANY, wire=wire) for n in SUMMIT if n <= 96 for wire in WIRES]
    found += [allreduce(n, size, "frontier", wire=wire) for n in FRONTIER for size in SIZES[:2] for wire in WIRES]
    found += [allreduce(n, MANY, "frontier", wire=wire) for n in FRONTIER if n <= 512 for wire in WIRES]
    found += disturbed(SOME) + grouped(SOME)
    return sorted((run for at, run in enumerate(found) if run not in found[:at]), key=cost)


def cost(run: Run) -> float:
    """Return about how many messages a run has, so that the short runs come first."""
    if run["what"] in ("agreement", "vote"):
        return float(100 * run["nodes"])
    nodes: int = run["nodes"]
    each = nodes if run.get("algorithm") == "ring" else 8 * math.log2(nodes)
    of_batch: float = run["bytes"] / (1 if "turns" in run else run["rails"]) / 4 / run["shard"]
    return float(each * nodes * max(1.0, of_batch))


def disturbed(some: int) -> list[Run]:
    """Return runs of 64 nodes in other ways, or with something in the way; and agreements of 256 nodes."""
    found = [agreement(256, skew=0.001), agreement(256, late=0.01), agreement(256, slow_node=40, slowness=10)]
    found += [agreement(1024, fanout=k) for k in (2, 8)] + [agreement(1024, fanout=k, hop=5e-6) for k in (4, 8, 16)]
    for more in ({"rails": 1}, {"depth": 1}, {"algorithm": "ring"}, {"slow_node": 5, "slowness": 2},
                 {"slow_link": 5, "slowness": 4}):  # fmt: skip
        found.append(allreduce(64, some, **more))
    return [*found, flat(some)]


def grouped(some: int) -> list[Run]:
    """Return runs without known groups, with nodes in a random order, and with events told apart to the nanosecond."""
    found = [allreduce(n, some, machine, group=0) for machine, n in (("summit", 72), ("frontier", 512))]
    found += [run | {"order": "random"} for run in found]
    return found + [run | {"precision": p} for run in compared() for p in PRECISIONS]


def compared() -> list[Run]:
    """Return the runs that are simulated with several precisions."""
    return [allreduce(96, SOME), *(allreduce(64, MANY, machine) for machine in GROUPS)]


def flat(nbytes: int) -> Run:
    """Return a run without nodes: all ranks take part in the algorithm, each with a sixth of its node's link."""
    cut = chunks.cut(1 << 30, "float32", "float32", 1)
    link: Run = {"per_node": 1, "injection": 23e9 / 6, "port": 23e9 / 6}
    return allreduce(6 * 64, nbytes, rails=1, shard=cut.shard, depth=cut.depth, group=0, **link)


def is_small(run: Run) -> bool:
    """Whether a test can repeat this run."""
    return bool(run["nodes"] <= 64 and (run["what"] != "allreduce" or run["nodes"] * run["bytes"] <= 32 << 20))
