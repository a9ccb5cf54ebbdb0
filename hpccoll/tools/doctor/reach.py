# SPDX-License-Identifier: Apache-2.0
"""Tries which addresses of each node its partners can connect to: each node listens on a port.

Both sides prove that they belong to the job (port.py), because a packet to 172.17.0.1 ends at the sender's own
docker0, and another program may own a port. After the handshake a large message must arrive as well: where MTUs on the
path do not fit, small messages arrive and large ones are lost.
"""

import contextlib
import errno
import socket
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hpccoll.channel import PATIENCE, ChannelError
from hpccoll.checks import names
from hpccoll.checks.finding import ERROR, NOTE, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import listed
from hpccoll.tools.doctor import addresses
from hpccoll.tools.doctor.exchange import Exchange
from hpccoll.tools.doctor.port import LARGE, Port, connect

NAME = "reach"
ALL_PAIRS = 9
"""In a job of up to this many nodes each node tries all others; in a larger job it tries nodes 1, 2, 4, ... ahead."""


def partners(mine: int, nodes: int) -> list[int]:
    """Return the nodes that node `mine` tries."""
    if nodes <= ALL_PAIRS:
        return [node for node in range(nodes) if node != mine]
    return sorted({(mine + (1 << k)) % nodes for k in range((nodes - 1).bit_length())} - {mine})


def candidates(report: RankReport, interfaces: Collection[str]) -> list[str]:
    """Return the addresses of a rank's node to try: those of the named interfaces, or of all if none is named."""
    return [i["address"] for i in addresses.usable(report) if not interfaces or i["name"] in interfaces]


def listen(survey: Survey, rank: int, interfaces: Collection[str] = ()) -> Port | None:
    """Listen, if this rank leads its node and there are others.

    :param interfaces: names of interfaces; empty: all
    :returns: at the addresses that the others will try; None: this rank does not listen
    """
    leader = next((leader for leader in survey.leaders if leader.rank == rank), None)
    if leader is None or len(survey.leaders) < 2:
        return None
    return Port(candidates(leader, interfaces))


def strangers(exchange: Exchange, survey: Survey, port: Port | None) -> list[tuple[str, dict[str, int]]]:
    """Exchange the refused connections, which were not of this job; all ranks call it together."""
    counted = exchange.allgather(dict(port.refused) if port else None)
    hosts = {report.rank: report.host for report in survey.reports}
    return [(hosts[rank], counts) for rank, counts in enumerate(counted) if counts]


def probe(
    exchange: Exchange, survey: Survey, port: Port | None, interfaces: Collection[str] = ()
) -> tuple[list[Facts], list[Facts]]:
    """Try the addresses of the partners; all ranks call it together.

    :param port: on the leader of each node
    :param interfaces: as for `listen`
    :returns: each try, and the ports and the token of each node; the same on all ranks
    """
    opened = [d for d in exchange.allgather({"ports": port.ports, "token": port.token} if port else None) if d]
    mine = next((i for i, report in enumerate(survey.leaders) if report.rank == exchange.rank), -1)
    attempts: list[Facts] = []
    if port:
        wanted = [
            (node, address)
            for node in partners(mine, len(survey.leaders))
            for address in candidates(survey.leaders[node], interfaces)
        ]
        with ThreadPoolExecutor(max(1, min(32, len(wanted)))) as pool:
            attempts = list(pool.map(lambda w: _try(survey, mine, w[0], w[1], opened[w[0]]), wanted))
    return [attempt for node in exchange.allgather(attempts) for attempt in node or []], opened


def _try(survey: Survey, mine: int, node: int, address: str, at: Facts) -> Facts:
    source, target = survey.leaders[mine], survey.leaders[node]
    facts = {
        "from": source.host,
        "to": target.host,
        "nodes": [mine, node],
        "address": address,
        "port": at["ports"].get(address, 0),
    }
    one_network = source.facts[names.NAME]["network"] == target.facts[names.NAME]["network"]
    if address in [i["address"] for i in addresses.usable(source)] and not one_network:
        return facts | {"outcome": "own", "error": f"{source.host} has this address itself"}
    began = time.monotonic()
    try:
        facts["through"] = route(source, address)
        channel = connect(address, facts["port"], at["token"], source.rank, keep=False)
    except (OSError, ValueError) as error:
        return facts | outcome_of(error) | {"neighbour": neighbour(address)}
    facts["seconds"] = time.monotonic() - began
    with channel.connection:
        try:
            channel.send(bytes(LARGE))
            channel.receive()
        except (OSError, ChannelError) as error:
            return facts | {"outcome": "large lost", "error": str(error)}
    return facts | {"outcome": "ok"}


def outcome_of(error: Exception) -> Facts:
    """Classify an error of connect().

    :returns: "outcome" and "error"
    """
    if isinstance(error, PermissionError) and error.errno is None:
        return {"outcome": "foreign", "error": str(error)}
    if isinstance(error, TimeoutError):
        return {"outcome": "silent", "error": f"no answer in {PATIENCE:g} s"}
    number = getattr(error, "errno", None)
    if number == errno.ECONNREFUSED:
        return {"outcome": "refused", "error": "connection refused"}
    if number in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES, errno.EPERM):
        return {"outcome": "no route", "error": str(error)}
    return {"outcome": "failed", "error": str(error) or type(error).__name__}


def route(report: RankReport, address: str) -> str:
    """Find the interface that the kernel would send through, without sending a packet.

    :raises OSError: there is no route
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        probe_socket.connect((address, 9))
        source: str = probe_socket.getsockname()[0]
    return next((str(i["name"]) for i in addresses.usable(report) if i["address"] == source), source)


def neighbour(address: str, table: Path = Path("/proc/net/arp")) -> str:
    """Look up a host in the kernel's ARP table.

    :returns: "answers" if its MAC address is known, "silent" if it did not answer, "" if it was not asked
    """
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            words = line.split()
            if words[0] == address:
                return "answers" if int(words[2], 16) & 2 else "silent"
    return ""


# ---- judging --------------------------------------------------------------------------------------------


def judge(survey: Survey) -> list[Finding]:
    """Find pairs of nodes that cannot connect, lost large messages, and addresses that do not answer."""
    pairs: dict[tuple[str, str], list[Facts]] = {}
    for attempt in survey.reached:
        pairs.setdefault((attempt["from"], attempt["to"]), []).append(attempt)
    found = _strangers(survey)
    for (source, target), attempts in pairs.items():
        outcomes = {attempt["outcome"] for attempt in attempts}
        if "large lost" in outcomes and "ok" not in outcomes:
            found.append(_large_lost(source, target, attempts))
        elif "ok" not in outcomes:
            back = {attempt["outcome"] for attempt in pairs.get((target, source), [])}
            found.append(_unreachable(source, target, attempts, no_route_back="no route" in back))
        else:
            found += _dead_ends(source, target, attempts)
    return found


def _strangers(survey: Survey) -> list[Finding]:
    """Find connections of processes that are not of this job."""
    return [
        Finding(
            NAME,
            NOTE,
            f"{host}: {sum(counts.values())} connections to the port of this test were not of this job and were "
            f"closed, from {listed(sorted(counts))}",
            "somebody looks at the ports of this host, or another job's test has its address",
            "A port scanner of the site does so; if nobody there knows the addresses, tell who runs the cluster",
        )
        for host, counts in survey.strangers
    ]


def _shown(attempts: Iterable[Facts]) -> str:
    return listed(f"{t['address']}:{t['port']} {t['error']}" for t in attempts if t["outcome"] != "ok")


def _unreachable(source: str, target: str, attempts: list[Facts], no_route_back: bool) -> Finding:
    outcomes: dict[str, Facts] = {attempt["outcome"]: attempt for attempt in attempts}
    seen = f"{source} cannot connect to {target} by any of its addresses ({_shown(attempts)})"
    if "no route" in outcomes:
        address = outcomes["no route"]["address"]
        remedy = f"Look at `ip route get {address}` on {source}: a blackhole, an unreachable or a missing route"
    elif "silent" in outcomes and no_route_back:
        remedy = f"{target} has no route back to {source}: mend that first"
    elif "silent" in outcomes and any(attempt.get("neighbour") == "answers" for attempt in attempts):
        remedy = (
            f"The network adapter of {target} answers (ARP), its ports do not: a firewall drops TCP (`nft list "
            "ruleset`, `iptables -S` there). Open the ephemeral ports (`sysctl net.ipv4.ip_local_port_range`) between "
            "the nodes"
        )
    elif "silent" in outcomes:
        remedy = f"Cable, switch, VLAN, firewall or a route on the path: `ping`, `ip route get`, `ip neigh` on {source}"
    elif "refused" in outcomes:
        remedy = f"Something rejects the connection (a firewall that answers, a proxy): `nft list ruleset` on {target}"
    else:
        remedy = f"Give {target} an address that is its own and that {source} can route to"
    return Finding(
        NAME,
        ERROR,
        seen,
        "MPI over TCP, Gloo, c10d and every launcher's daemons need such connections",
        remedy,
    )


def _large_lost(source: str, target: str, attempts: list[Facts]) -> Finding:
    attempt: dict[str, Any] = next(t for t in attempts if t["outcome"] == "large lost")
    path = f"{source} to {target} ({attempt['address']} through {attempt['through']})"
    return Finding(
        NAME,
        ERROR,
        f"{path}: a few bytes arrive, {LARGE >> 10} KiB do not",
        "small messages arrive and large ones are lost: a job starts and hangs at the first large tensor",
        "The MTU of an interface is larger than the path allows: compare `ip link show` on both hosts and the switch, "
        f"try `ping -M do -s 1472 {attempt['address']}`, and set one MTU everywhere (`ip link set dev ... mtu 1500`)",
    )


def _dead_ends(source: str, target: str, attempts: list[Facts]) -> list[Finding]:
    """Find addresses that do not answer although others do; addresses.py checks addresses that several hosts have."""
    dead = [attempt for attempt in attempts if attempt["outcome"] not in ("ok", "own")]
    good = next(attempt for attempt in attempts if attempt["outcome"] == "ok")
    if not dead:
        return []
    return [
        Finding(
            NAME,
            WARNING,
            f"{source} to {target}: {_shown(dead)}, while {good['address']} answers (through {good['through']})",
            "a library that picks such an address hangs or dies (Open MPI, Gloo and NCCL choose by name or order)",
            "Name the network that works: OMPI_MCA_btl_tcp_if_include, PRTE_MCA_prte_if_include (10.0.0.0/8), "
            "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME (an interface), or take the other interface down",
        )
    ]
