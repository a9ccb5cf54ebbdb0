# SPDX-License-Identifier: Apache-2.0
"""The measured network: slow nodes, slow links, and devices that are not used."""

import re
from collections.abc import Mapping

from hpccoll.checks import names
from hpccoll.checks.finding import ERROR, WARNING, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import listed
from hpccoll.tools.doctor import rails, rounds

NAME = "network"
UNUSED = 0.5
"""A network that reaches less than this share of the declared rate is not on that device, or the device is faulty."""
ONE_SIDED = 0.6
ONE_MACHINE = (
    "These hosts share a machine (one boot id), so there is no cable between them: look for load on it (`top`), and "
    "for limits of the containers or namespaces (`tc -s qdisc`, `docker inspect`)"
)
INSIDE = 1.5
"""A node whose own allreduce takes this many times the others' is slow."""


def judge(survey: Survey) -> list[Finding]:
    """Find failed measurements, and links and nodes that differ from the others."""
    return [
        *_failed(survey),
        *_broken(survey),
        *_slow(survey),
        *_one_sided(survey),
        *_below_rate(survey),
        *_slow_inside(survey),
    ]


def rate(bytes_per_second: float) -> str:
    """Write a rate in bits, as is usual for networks: 94.5 Mbit/s."""
    bits = _three_digits(8 * bytes_per_second)
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits >= scale:
            return f"{bits / scale:.3g} {unit}"
    return f"{bits / 1e3:.3g} kbit/s"


def duration(seconds: float) -> str:
    """Write a duration with a fitting unit: 4.85 ms."""
    seconds = _three_digits(seconds)
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _three_digits(value: float) -> float:
    """Round to three digits, so that 999.9 us are written as 1 ms and not as 1e+03 us."""
    return float(f"{value:.3g}")


def _failed(survey: Survey) -> list[Finding]:
    failed = [link for link in survey.links if "error" in link]
    if not failed:
        return []
    pairs = listed(f"{link['hosts'][0]} - {link['hosts'][1]} ({link['error']})" for link in failed)
    return [
        Finding(
            NAME,
            ERROR,
            f"not measured: {pairs}",
            "there is no connection",
            "See the errors among the addresses",
        )
    ]


def _broken(survey: Survey) -> list[Finding]:
    """Find measurements in which hpccoll itself failed."""
    matters, remedy = (
        "hpccoll.init() fails in the same way in a job like this",
        "As it says, and see the findings above",
    )
    return [
        Finding(NAME, ERROR, f"allreduce on {i['node']} ({i['ranks']} ranks): {i['error']}", matters, remedy)
        for i in survey.inside
        if "error" in i
    ]


def _same_machine(survey: Survey, nodes: set[int]) -> bool:
    """Return whether nodes are containers or namespaces of one running kernel, so that no cable is between them."""
    return len({survey.leaders[node].facts[names.NAME]["network"].split()[0] for node in nodes}) == 1


def _slow(survey: Survey) -> list[Finding]:
    measured, hosts, found = rounds.best(survey.links), [report.host for report in survey.leaders], []
    nodes = rounds.slow_nodes(survey.links)
    slow = rounds.slow_pairs(survey.links)
    good = rounds.reference([rounds.bandwidth(link) for link in measured.values()], 0.75) if measured else 0.0
    for node in nodes:
        links = [link for pair, link in measured.items() if node in pair]
        others = listed(hosts[n] for link in links for n in link["nodes"] if n != node)
        seen = (
            f"slow node {hosts[node]}: {rate(max(map(rounds.bandwidth, links)))} at best, "
            f"{duration(min(link['latency'] for link in links))}, with {others}; others reach {rate(good)}"
        )
        together = _same_machine(survey, {node, *(n for link in links for n in link["nodes"])})
        remedy = f"Leave it out (`--exclude={hosts[node]}`) and have its cable and port checked (ethtool, ibstat)"
        remedy = ONE_MACHINE if together else remedy
        found.append(Finding(NAME, WARNING, seen, "every collective operation waits for the slowest node", remedy))
    for pair in (p for p in slow if not set(p) & set(nodes)):
        link = measured[pair]
        seen = (
            f"slow link {hosts[pair[0]]} - {hosts[pair[1]]}: {rate(rounds.bandwidth(link))}, "
            f"{duration(link['latency'])}, measured again alone; others reach {rate(good)}, and both nodes are well"
        )
        remedy = "The path between the two: switch, up-link, routing. Place the job elsewhere if it stays so"
        remedy = ONE_MACHINE if _same_machine(survey, set(pair)) else remedy
        found.append(Finding(NAME, WARNING, seen, "a ring or tree that crosses it goes at its pace", remedy))
    return found


def _one_sided(survey: Survey) -> list[Finding]:
    found = []
    for pair, link in rounds.best(survey.links).items():
        there, back = link["bandwidth"]
        if min(there, back) < ONE_SIDED * max(there, back):
            sender, receiver = link["hosts"] if there < back else link["hosts"][::-1]
            seen = f"{sender} to {receiver}: {rate(min(there, back))}, back {rate(max(there, back))}"
            remedy = (
                f"Shaping or a fault in one direction: `tc -s qdisc`, `ethtool -S` on {sender}; the port of {receiver}"
            )
            remedy = ONE_MACHINE if _same_machine(survey, set(pair)) else remedy
            found.append(Finding(NAME, WARNING, seen, "allreduce uses both directions at once", remedy))
    return found


def _below_rate(survey: Survey) -> list[Finding]:
    """Find nodes that reach much less than the rate that their device declares."""
    best: dict[int, float] = {}
    for pair, link in rounds.best(survey.links).items():
        for node in pair:
            best[node] = max(best.get(node, 0.0), rounds.bandwidth(link))
    found = []
    for node, reached in best.items():
        report = survey.leaders[node]
        device = next((d for d in rails.best(report) if d["rate"]), None)
        if device and 8 * reached < UNUSED * device["rate"]:
            found.append(
                Finding(
                    NAME,
                    WARNING,
                    f"{report.host}: {rate(reached)} measured; {device['name']} declares {rate(device['rate'] / 8)}",
                    "the device is not used, or one process cannot fill it",
                    "Is MPI on it (UCX_LOG_LEVEL=info, FI_PROVIDER)? Over TCP several ranks per node fill it "
                    "(HPCCOLL_RAILS); a mere cloud limit cannot be helped",
                )
            )
    return found


def _slow_inside(survey: Survey) -> list[Finding]:
    nodes = [i for i in survey.inside if i["node"] != "all" and "error" not in i]
    if len(nodes) < 3:
        return []
    usual = rounds.reference([i["large"] for i in nodes], 0.5)
    slow = [i for i in nodes if i["large"] > INSIDE * usual]
    if not slow:
        return []
    shown = listed(f"{i['node']} ({duration(i['large'])})" for i in slow)
    seen = f"inside {shown} an allreduce of 16 MiB takes longer than on the other nodes ({duration(usual)})"
    remedy = "Other jobs on the node, a throttled processor, ranks on one socket: `top`, `lscpu`, `numactl -H` there"
    return [Finding(NAME, WARNING, seen, "every collective operation waits for the slowest node", remedy)]


# ---- requirements ---------------------------------------------------------------------------------------

UNITS = {
    "bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def requirement(text: str) -> tuple[str, float]:
    """Read a requirement: `bandwidth=10Gbit` or `latency=20us`.

    :returns: the name, and the value in bytes/s or seconds
    :raises ValueError: the text is no requirement
    """
    name, _, value = text.partition("=")
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]+)(?:/s)?", value)
    units = {"bandwidth": UNITS, "latency": SECONDS}.get(name)
    if not found or units is None or found[2].lower() not in units:
        raise ValueError(f"{text!r} is not bandwidth=NUMBER[kMG]bit or [kMG]B, or latency=NUMBER ns, us, ms or s")
    return name, float(found[1]) * units[found[2].lower()]


def judge_required(survey: Survey, required: Mapping[str, float]) -> list[Finding]:
    """Find links that are worse than required.

    :param required: bandwidth in bytes/s, latency in seconds
    """
    measured = rounds.best(survey.links)
    found = []
    remedy = "Ask for other nodes, or lower what is required"
    if required and not measured:
        matters = "--require cannot be answered"
        found.append(Finding(NAME, ERROR, "no link between nodes was measured", matters, "Run it on two nodes or more"))
    for link in measured.values():
        where = " - ".join(link["hosts"])
        if rounds.bandwidth(link) < required.get("bandwidth", 0.0):
            seen = f"{where}: {rate(rounds.bandwidth(link))}, less than {rate(required['bandwidth'])}"
            found.append(Finding(NAME, ERROR, seen, "--require bandwidth", remedy))
        if link["latency"] > required.get("latency", float("inf")):
            seen = f"{where}: {duration(link['latency'])}, more than {duration(required['latency'])}"
            found.append(Finding(NAME, ERROR, seen, "--require latency", remedy))
    return found
