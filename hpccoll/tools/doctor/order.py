# SPDX-License-Identifier: Apache-2.0
"""The addresses of the nodes in the network, and what would order the nodes of a World of these ranks."""

from collections.abc import Iterator, Mapping

from hpccoll import config, errors, node_order
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.survey import Survey

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
    if warning := survey.order.warning:
        yield Finding(
            NAME,
            WARNING,
            warning,
            "nodes far from each other exchange the largest parts of a sum, unless host names follow the switches",
            "Start all ranks alike (`srun`), or write where the hosts stand into a file (HPCCOLL_NODE_FILE)",
        )
