# SPDX-License-Identifier: Apache-2.0
"""The cheap checks of every `hpccoll.init()`; they print only problems (knob HPCCOLL_CHECK)."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpccoll import inherited
from hpccoll.checks import memory, names, placement
from hpccoll.checks.finding import ERROR, Facts, Finding, grouped
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.compared import Compared

__all__ = ["Node", "judge_node", "lines", "look"]

Node = dict[str, Any]
"""The result of one node, as JSON values: the findings of each check, by its name; under "trapped" the hosts whose
name has a loopback address (names.trapped); under "wrong" why the facts cannot be judged."""


def look(compare: Callable[[Any], Compared[Any]], rank: int, mates: Sequence[int]) -> list[str]:
    """Check the machines; all ranks call this together.

    The first rank of each node judges its node, so the ranks exchange only the findings, which are few.

    :param compare: exchanges a value between the ranks
    :param mates: the ranks on this machine
    :returns: one line per finding; errors are left out, as the step that fails raises them itself
    """
    seen = compare(placement.collect(inherited.environment()))
    own = {memory.NAME: memory.collect(), names.NAME: names.collect()} if rank == mates[0] else {}
    mine = judge_node([(mate, {placement.NAME: seen[mate]} | own) for mate in mates]) if own else {}
    found = compare(mine)
    several = any(node.get("trapped") for node in found.values) and not compare(names.network()).alike
    return lines(found.values, several) if rank == 0 else []


def judge_node(seen: Iterable[tuple[int, dict[str, Facts]]]) -> Node:
    """Judge one node.

    :param seen: each of its ranks, with its facts by the name of the check; checks of the whole node use the facts
        of the first rank
    """
    try:
        reports = [RankReport(rank, facts[names.NAME]["host"], "", facts) for rank, facts in seen]
        survey, host = Survey(reports), reports[0]
        found = {
            placement.NAME: placement.judge_at_start(survey),
            memory.NAME: memory.judge(survey),
        }
        trapped = names.trapped(host.facts[names.NAME])
    except Exception as error:  # noqa: BLE001 - facts come from outside; wrong ones must not stop the start
        return {"wrong": f"{type(error).__name__}: {error}"}
    node: Node = {check: [dataclasses.asdict(one) for one in those] for check, those in found.items() if those}
    return node | ({"trapped": {host.host: trapped}} if trapped else {})


def lines(nodes: Sequence[Node], several: bool) -> list[str]:
    """Format the findings of all nodes.

    :param nodes: the results of `judge_node`
    :param several: the job has several hosts
    """
    wrong = [node["wrong"] for node in nodes if "wrong" in node]
    if wrong:
        return [f"what the ranks found cannot be judged: {wrong[0]}"]
    found = [Finding(**one) for check in (placement.NAME, memory.NAME) for node in nodes for one in node.get(check, ())]
    if several:
        found += names.finding({host: those for node in nodes for host, those in node.get("trapped", {}).items()})
    return [finding.line() for finding in grouped(found) if finding.severity != ERROR]
