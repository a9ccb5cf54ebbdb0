# SPDX-License-Identifier: Apache-2.0
"""The addresses of the nodes in the network, and what would order the nodes of a World of these ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpccoll import config, errors, node_order
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.compared import from_list

NAME = "node order"


def collect(env: Mapping[str, str]) -> Facts:
    """Find where this node stands in the network."""
    try:
        settings = config.read()
    except errors.HpccollError:
        settings = config.Config()  # the check of the installation says what is wrong
    return {"address": list(node_order.address_here(settings, env)), "file": settings.node_file}


def judge(survey: Survey) -> Iterator[Finding]:
    """Find addresses that cannot order the nodes."""
    if warning := _order(survey).warning:
        yield Finding(
            NAME,
            WARNING,
            warning,
            "nodes far from each other exchange the largest parts of a sum, unless host names follow the switches",
            "Start all ranks alike (`srun`), or write where the hosts stand into a file (HPCCOLL_NODE_FILE)",
        )


def describe(survey: Survey) -> str:
    """Describe what orders the nodes; "" if there is only one node."""
    return _order(survey).said


def _order(survey: Survey) -> node_order.NodeOrder:
    places = [report.facts[NAME] for report in survey.reports]
    numbers = {node: i for i, node in enumerate(survey.nodes)}
    return node_order.order(
        from_list(node_order.read(place["address"]) for place in places),
        from_list(report.host for report in survey.reports),
        tuple(numbers[report.node] for report in survey.reports),
        places[0]["file"],
    )
