# SPDX-License-Identifier: Apache-2.0
"""Examines all ranks of an exchange together, and makes the report."""

import contextlib
import math
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from hpccoll import _core, config, inherited
from hpccoll.checks import memory, names, placement
from hpccoll.checks.finding import ERROR, Facts, Finding, grouped
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.tools.doctor import (
    addresses,
    build,
    clocks,
    distances,
    gpus,
    inside,
    launcher,
    limits,
    links,
    load,
    measure,
    mpi,
    network,
    order,
    rails,
    reach,
    rounds,
    training,
    transports,
    ucx,
)  # fmt: skip
from hpccoll.tools.doctor.exchange import Exchange
from hpccoll.tools.doctor.port import Port, connect

CHECKS = (
    build,
    transports,
    mpi,
    ucx,
    launcher,
    names,
    addresses,
    reach,
    memory,
    limits,
    clocks,
    placement,
    distances,
    load,
    rails,
    gpus,
    order,
    network,
    inside,
)
"""The checks, from the lowest layer up; the report keeps this order."""
LINK_PATIENCE = 8.0
"""Seconds of silence on a TCP link; fewer than an exchange in a folder waits for a rank."""


def look() -> RankReport:
    """Collect the facts of this process without MPI and without other ranks; the launcher gives the rank."""
    env = inherited.environment()
    facts = {
        build.NAME: build.collect(),
        transports.NAME: transports.collect(env),
        launcher.NAME: launcher.collect(env),
        names.NAME: names.collect(),
        addresses.NAME: addresses.collect(env),
        memory.NAME: memory.collect(),
        limits.NAME: limits.collect(),
        placement.NAME: placement.collect_more(env),
        distances.NAME: distances.collect(),
        rails.NAME: rails.collect(),
        gpus.NAME: gpus.collect(env),
        order.NAME: order.collect(env),
    }
    node = f"{facts[names.NAME]['network']} {memory.device()}"
    return RankReport(facts[launcher.NAME]["rank"], socket.gethostname(), node, facts)


def examine(
    exchange: Exchange, mine: RankReport, options: Facts, stage: Callable[[str], None], comm: Any = None
) -> Facts | None:
    """Examine the ranks; all ranks call it together.

    :param mine: the report of this rank
    :param options: "measure": whether to measure; "interfaces": names of those to try, empty: all; "required",
        "training": see command.read_options
    :param stage: called with the name of each stage before it begins
    :param comm: the mpi4py communicator of the exchange, where there is one
    :returns: the report on the first rank, None on the others
    """
    mine.facts[ucx.NAME] = ucx.collect()
    stage("exchange of what each rank sees")
    reports = [RankReport(**other) for other in exchange.allgather(asdict(mine)) if other]
    if options["measure"]:
        stage("watching the cores of the ranks")
        _watch(exchange, mine, reports)
    survey = Survey(reports, exchange.size)
    if options["measure"]:
        stage("measuring the distances of the cores")
        survey = replace(survey, distances=distances.measure(exchange, survey))
    with reach.listen(survey, exchange.rank, options["interfaces"]) or contextlib.nullcontext() as port:
        stage("trying the addresses of the other hosts")
        tried, opened = reach.probe(exchange, survey, port, options["interfaces"])
        survey = replace(survey, reached=tried)
        if options["measure"]:

            def connect_to(mine: int, other: int) -> links.Link | None:
                if comm is not None:
                    return links.MpiLink(comm, survey.leaders[other].rank)
                return _tcp(survey, opened, port, mine, other)

            survey = replace(survey, links=measure.between(exchange, survey, connect_to, stage))
        if len(survey.leaders) > 1:
            survey = replace(survey, strangers=reach.strangers(exchange, survey, port))
    if options["measure"] and comm is not None and not any(report.facts[build.NAME]["knobs"] for report in reports):
        survey = replace(survey, inside=_collectives(comm, survey, stage))
    return summarize(survey, options) if exchange.rank == reports[0].rank else None


def _watch(exchange: Exchange, mine: RankReport, reports: list[RankReport]) -> None:
    """Add to the reports what else runs on the cores of each rank; all ranks call it together."""
    seen = exchange.allgather(load.watch(placement.cpus_of(mine)))
    by_rank = dict(enumerate(seen))
    for report in reports:
        if facts := by_rank.get(report.rank):
            report.facts[load.NAME] = facts


def _tcp(survey: Survey, opened: list[Facts], port: Port | None, mine: int, other: int) -> links.Link | None:
    """Connect the lower node to the higher one, by an address that worked before; None if none did."""
    assert port is not None
    lower, higher = min(mine, other), max(mine, other)
    tried = next((t for t in survey.reached if t["nodes"] == [lower, higher] and t["outcome"] == "ok"), None)
    if tried is None:
        return None
    if mine == higher:
        connection = port.connection_from(survey.leaders[lower].rank, LINK_PATIENCE)
    else:
        try:
            token, rank = opened[higher]["token"], survey.leaders[lower].rank
            connection = connect(tried["address"], tried["port"], token, rank, keep=True).connection
        except OSError:
            connection = None
    return links.TcpLink(connection, LINK_PATIENCE) if connection else None


def _collectives(comm: Any, survey: Survey, stage: Callable[[str], None]) -> list[Facts]:
    """Measure an allreduce inside each node that has several ranks, all nodes at once, then one over all ranks."""
    from mpi4py import MPI

    found = []
    if max(map(len, survey.nodes.values())) > 1:
        stage("measuring inside the nodes")
        near = comm.Split_type(MPI.COMM_TYPE_SHARED)
        mine = measure.collectives(near) if near.Get_size() > 1 else None
        host = socket.gethostname() if near.Get_rank() == 0 else None
        near.Free()
        found = [{"node": h, **facts} for h, facts in comm.allgather((host, mine)) if h and facts]
    if len(survey.nodes) > 1:
        stage("measuring all ranks together")
        rate = min((rounds.bandwidth(link) for link in rounds.best(survey.links).values()), default=1e9)
        nbytes = max(1 << 20, min(measure.LARGE, int(rate / 4) // (1 << 20) * (1 << 20)))
        found.append({"node": "all", **measure.collectives(comm, nbytes)})
    if nodes := config.read().nodes:
        stage(f"measuring all ranks as HPCCOLL_NODES={nodes}")
        found.append({"node": "all", "as": nodes, **measure.collectives(comm, nodes=nodes)})
    return found


# ---- the report ------------------------------------------------------------------------------------------


def summarize(survey: Survey, options: Facts) -> Facts:
    """Judge the survey by all checks.

    :param options: see `examine`
    :returns: the report, as values that JSON can hold; its parts are those of `hpccoll doctor --json`
    """
    found: list[Finding] = [finding for check in CHECKS for finding in check.judge(survey)]
    found += addresses.judge_named(survey, options["interfaces"])
    if options["measure"]:
        found += network.judge_required(survey, options["required"])
    return {
        "hpccoll": _core.VERSION,
        "ranks": len(survey.reports),
        "of": survey.size,
        "nodes": [{"host": reports[0].host, "ranks": [c.rank for c in reports]} for reports in survey.nodes.values()],
        "ordered by": survey.order.said,
        "system": system(survey.reports[0]),
        "findings": [asdict(finding) for finding in grouped(found)],
        "placement": table(survey),
        "distances": survey.distances,
        "links": [rounded(link) for link in rounds.best(survey.links).values()],
        "inside": survey.inside,
        "sent": sum(link.get("sent", 0) for link in survey.links),
        "training": judge_training(survey, options["training"]),
        "errors": sum(finding.severity == ERROR for finding in found),
    }


def rounded(link: Facts) -> Facts:
    """Round the bandwidths of a link to whole bytes per second."""
    return link | {"bandwidth": [round(rate) for rate in link["bandwidth"]]}


def system(report: RankReport) -> Facts:
    """Describe the software of the first rank, for the head of the report."""
    built, found = report.facts[build.NAME], report.facts.get(mpi.NAME, {})
    return {
        **built["versions"],
        "Python": built["Python"],
        "kernels": built["kernels"],
        "launcher": report.facts[launcher.NAME]["launcher"] or "none",
        "MPI": found.get("library", mpi.UNUSED if mpi.UNUSED in found else "not up"),
        "UCX": ucx.describe(report.facts.get(ucx.NAME, {})),
        "thread level": found.get("thread level", "unknown"),
    }


def table(survey: Survey) -> list[Facts]:
    """List the placement of each rank."""
    rows = []
    for reports in survey.nodes.values():
        rail = rails.assign(reports)
        for report in reports:
            where, seen = report.facts[placement.NAME], report.facts[gpus.NAME]
            rows.append(
                {
                    "rank": report.rank,
                    "host": report.host,
                    "cpus": where["cpus"],
                    "cores": where["cores"],
                    "numa": where["numa"],
                    "threads": where["threads"],
                    "gpus": [gpu["pci"] for gpu in seen["visible"]],
                    "gpus on node": len(seen["present"]),
                    "rail": rail.get(report.rank, ""),
                }
            )
    return rows


def judge_training(survey: Survey, wanted: Facts | None) -> Facts | None:
    """Calculate the efficiency of a training on the measured network.

    :param wanted: the options of the training; None: the user did not ask
    """
    if wanted is None:
        return None
    nodes = wanted["nodes"] or len(survey.nodes)
    needed = training.Training(wanted["name"], wanted["bytes"], wanted["compute"], nodes, wanted["overlap"])
    measured = list(rounds.best(survey.links).values())
    speeds = [i["bytes"] / i["large"] for i in survey.inside if i["node"] != "all" and "error" not in i]
    one_a_node = max(survey.size, len(survey.reports)) == len(survey.nodes)
    if (nodes > 1 and not measured) or not (speeds or one_a_node):
        what = "No link between nodes" if speeds or one_a_node else "No reduction inside a node"
        why = f"{what} was measured, so there is no saying how {needed.name} would do on {nodes} nodes."
        return {"wanted": wanted, "sentence": why}
    net = training.Network(
        min(map(rounds.bandwidth, measured), default=math.inf),
        max((link["latency"] for link in measured), default=0.0),
        min(speeds, default=math.inf),
    )
    return {
        "wanted": wanted,
        "efficiency": training.efficiency(needed, net),
        "with": training.remedies(needed, net),
        "sentence": training.sentence(needed, net),
    }
