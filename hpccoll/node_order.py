# SPDX-License-Identifier: Apache-2.0
"""Where the nodes stand in the network, and their order along it.

The stages of a sum between nodes begin with the nearest numbers, so nodes of one switch should have numbers that follow
each other. Ranks keep their numbers, whatever the order of their nodes.
"""

import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hpccoll import _core, config
from hpccoll.compared import Compared
from hpccoll.text import some_ranks

__all__ = ["HOST", "Address", "NodeOrder", "address_here", "called", "order", "read"]

HOST = 0
"""The kind of an address that is only the name of the host."""
Address = tuple[int, str]
"""A kind, an index of `_core.ADDRESSES`, and the levels from the top of the network down: "core/leaf3/n12"."""


class NodeOrder(NamedTuple):
    """The order of the nodes of a World."""

    addresses: list[str] | None
    """What orders the nodes; None: they are ordered by their lowest ranks."""
    said: str
    """A description of what orders the nodes; "" if there is only one node."""
    warning: str = ""
    """Why the nodes are not ordered by what some ranks know; "" if they are."""


def address_here(settings: config.Config, env: Mapping[str, str]) -> Address:
    """Find where this node stands in the network, by the best that this process can know."""
    slurm, pattern = (env.get(f"SLURM_TOPOLOGY_ADDR{part}", "") for part in ("", "_PATTERN"))
    return _core.node_address(platform.node(), settings.node_file, slurm, pattern, None)


def read(sent: Any) -> Address:
    """Read the address of another rank.

    :raises ValueError: it is none
    """
    kind, text = sent
    if type(kind) is not int or not 0 <= kind < len(_core.ADDRESSES) or type(text) is not str:
        raise ValueError(f"address is {sent!r}")
    return kind, text


def order(
    addresses: Compared[Address],
    hosts: Compared[str],
    node_of: tuple[int, ...],
    node_file: str,
    loop: _core.Loop | None = None,
) -> NodeOrder:
    """Order the nodes of a World by their addresses, if all ranks have one of one kind, else by the hosts' names.

    :param addresses: of the ranks
    :param node_of: node of each rank; a node stands where its lowest rank says
    :param node_file: HPCCOLL_NODE_FILE
    :param loop: takes the order
    """
    if max(node_of) == 0:
        return NodeOrder(None, "")
    kinds = addresses.map(lambda address: address[0])
    firsts = np.unique(node_of, return_index=True)[1].tolist()
    texts, names = [addresses[rank][1] for rank in firsts], [hosts[rank] for rank in firsts]
    return NodeOrder(*_core.order_nodes(names, texts, kinds[0], _differing(kinds), node_file, loop))


def called(kind: int) -> str:
    """Name a kind of addresses in words."""
    return _core.ADDRESSES[kind]


def _differing(kinds: Compared[int]) -> str:
    if kinds.alike:
        return ""
    return "; ".join(f"{called(kind)} on {some_ranks(kinds.ranks(i))}" for i, kind in enumerate(kinds.values))
