# SPDX-License-Identifier: Apache-2.0
"""The reports of all ranks of a job, which the checks judge."""

from dataclasses import dataclass, field
from functools import cached_property

from hpccoll import node_order
from hpccoll.checks.finding import Facts
from hpccoll.compared import from_list


@dataclass(frozen=True)
class RankReport:
    """The facts that one rank collected about its process and machine."""

    rank: int
    host: str
    node: str
    """Equal on ranks that share memory and network interfaces."""
    facts: dict[str, Facts]
    """The facts of each check, by the check's name."""


@dataclass(frozen=True)
class Survey:
    """The reports of all ranks that answered, in order of rank, and the measurements between them."""

    reports: list[RankReport]
    size: int = 0
    """Number of ranks that the launcher started; 0: as many as there are reports."""
    reached: list[Facts] = field(default_factory=list)
    """Each attempt to connect two nodes, see hpccoll.tools.doctor.reach."""
    links: list[Facts] = field(default_factory=list)
    """Each measurement of a pair of nodes, see hpccoll.tools.doctor.measure."""
    inside: list[Facts] = field(default_factory=list)
    """Each measured allreduce inside a node, and one over all ranks."""
    distances: list[Facts] = field(default_factory=list)
    """The latencies of a cache line between the ranks of each node, see hpccoll.tools.doctor.distances."""
    strangers: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    """For each host, the number of connections from other jobs, by address; see hpccoll.tools.doctor.reach."""

    @cached_property
    def nodes(self) -> dict[str, list[RankReport]]:
        """The reports of each node, in order of the node's first rank."""
        nodes: dict[str, list[RankReport]] = {}
        for report in self.reports:
            nodes.setdefault(report.node, []).append(report)
        return nodes

    @cached_property
    def leaders(self) -> list[RankReport]:
        """The first report of each node."""
        return [reports[0] for reports in self.nodes.values()]

    @cached_property
    def order(self) -> node_order.NodeOrder:
        """The order of the nodes in a World of these ranks, by the facts of hpccoll.tools.doctor.order."""
        places = [report.facts["node order"] for report in self.reports]
        numbers = {node: i for i, node in enumerate(self.nodes)}
        return node_order.order(
            from_list(node_order.read(place["address"]) for place in places),
            from_list(report.host for report in self.reports),
            tuple(numbers[report.node] for report in self.reports),
            places[0]["file"],
        )
