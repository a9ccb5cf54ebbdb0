# SPDX-License-Identifier: Apache-2.0
"""Names and network interfaces: each host's name and addresses, and which of the addresses are decoys."""

import ipaddress
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.checks import names
from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.net import interfaces
from hpccoll.text import listed

NAME = "addresses"
RESOLVE_SECONDS = 5.0
CHOOSERS = {
    "OMPI_MCA_btl_tcp_if_include": True,
    "OMPI_MCA_oob_tcp_if_include": True,
    "PRTE_MCA_prte_if_include": True,
    "HYDRA_IFACE": True,
    "MPICH_INTERFACE_HOSTNAME": False,
    "NCCL_SOCKET_IFNAME": True,
    "GLOO_SOCKET_IFNAME": True,
    "TP_SOCKET_IFNAME": True,
    "FI_TCP_IFACE": True,
    "FI_SOCKETS_IFACE": True,
    "UCX_NET_DEVICES": True,
}
"""Variables that choose an interface; False: the value is a host name or an address, not an interface."""


def collect(env: Mapping[str, str]) -> Facts:
    """Collect interfaces with an IPv4 address, the addresses of the host's own name, and the choosing variables."""
    host = socket.gethostname()
    return {
        "interfaces": interfaces.interfaces(),
        "others": interfaces.names_without_address(),
        "own name": resolve(host),
        "chosen": {name: env[name] for name in CHOOSERS if env.get(name)},
    }


def resolve(host: str) -> Facts:
    """Look up the IPv4 addresses of a name, for at most RESOLVE_SECONDS."""
    found: Facts = {"name": host, "addresses": [], "error": f"no answer in {RESOLVE_SECONDS:g} s"}

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            found["error"] = str(error)
        else:
            found.update({"addresses": list(dict.fromkeys(str(a[4][0]) for a in answers)), "error": ""})

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(RESOLVE_SECONDS)
    return dict(found)


def usable(report: RankReport) -> list[Facts]:
    """Return the interfaces of a rank's node that are up and not loopback."""
    return [
        i for i in report.facts[NAME]["interfaces"] if i["up"] and not ipaddress.ip_address(i["address"]).is_loopback
    ]


# ---- judging --------------------------------------------------------------------------------------------


def judge(survey: Survey) -> list[Finding]:
    """Apply the rules below; most of them only to several hosts, as one host uses shared memory."""
    found = [*wrong_choices(survey)]
    if len({report.facts[names.NAME]["network"] for report in survey.leaders}) > 1:
        found += [
            *same_names(survey),
            *unresolved(survey),
            *decoys(survey),
            *differing(survey),
            *mtus(survey),
        ]
    return found


def same_names(survey: Survey) -> Iterator[Finding]:
    """Find nodes with the same name."""
    hosts = [report.host for report in survey.leaders]
    double = sorted({host for host in hosts if hosts.count(host) > 1})
    if double:
        yield Finding(
            NAME,
            WARNING,
            f"{len(hosts)} nodes, but several are called {listed(double)}",
            "libraries that count nodes by name take them for one (local ranks, Gloo, NCCL in containers)",
            "Give each container or host a name of its own (docker run --hostname, NCCL_HOSTID)",
        )


def unresolved(survey: Survey) -> Iterator[Finding]:
    """Find hosts whose own name has no address."""
    for report in survey.leaders:
        name = report.facts[NAME]["own name"]
        if name["error"]:
            yield Finding(
                NAME,
                WARNING,
                f"{report.host}: its own name cannot be resolved ({name['error']})",
                "launchers, Gloo and c10d ask for it at the start",
                "Enter the host in DNS or in /etc/hosts of all nodes",
            )


def shared_addresses(survey: Survey) -> dict[str, list[tuple[str, str]]]:
    """Find addresses that several nodes have.

    :returns: host and interface of each node, by address
    """
    owners: dict[str, list[tuple[str, str]]] = {}
    for report in survey.leaders:
        for device in usable(report):
            owners.setdefault(device["address"], []).append((report.host, device["name"]))
    return {address: ports for address, ports in owners.items() if len(ports) > 1}


def decoys(survey: Survey) -> Iterator[Finding]:
    """Find decoys, such as docker0 and virbr0: interfaces with the same private address on every node."""
    for address, ports in shared_addresses(survey).items():
        devices = sorted({name for _, name in ports})
        yield Finding(
            NAME,
            WARNING,
            f"{listed(devices)} has the address {address} on {listed(host for host, _ in ports)}",
            "a host that connects to it reaches itself: Open MPI and NCCL hang at the start if they pick it",
            f"Take it down where it is not needed (`ip link set {devices[0]} down`), or leave it out: "
            f"OMPI_MCA_btl_tcp_if_exclude=lo,{devices[0]}, NCCL_SOCKET_IFNAME=^{devices[0]}",
        )


def common_networks(survey: Survey) -> dict[str, list[tuple[str, Facts]]]:
    """Find networks on which every node has an address; decoys are left out.

    :returns: host and interface of each node, by network
    """
    shared = shared_addresses(survey)
    found: dict[str, list[tuple[str, Facts]]] = {}
    for report in survey.leaders:
        for device in usable(report):
            if device["address"] not in shared:
                found.setdefault(interfaces.network_of(device), []).append((report.host, device))
    return {net: ports for net, ports in found.items() if len({host for host, _ in ports}) == len(survey.leaders)}


def differing(survey: Survey) -> Iterator[Finding]:
    """Find common networks whose interfaces have different names on different hosts."""
    for net, ports in common_networks(survey).items():
        named = {host: device["name"] for host, device in ports}
        if len(set(named.values())) > 1:
            yield Finding(
                NAME,
                WARNING,
                f"the network {net} is behind {listed(f'{name} on {host}' for host, name in named.items())}",
                "a variable that names one interface for all hosts (NCCL_SOCKET_IFNAME) is wrong on some",
                f"Choose by network: OMPI_MCA_btl_tcp_if_include={net}; or list the names (NCCL_SOCKET_IFNAME="
                f"{','.join(sorted(set(named.values())))})",
            )


def mtus(survey: Survey) -> Iterator[Finding]:
    """Find networks with several MTUs."""
    for net, ports in common_networks(survey).items():
        sizes = {f"{host} ({device['name']})": device["mtu"] for host, device in ports}
        if len(set(sizes.values())) > 1:
            yield Finding(
                NAME,
                WARNING,
                f"the MTU on {net} differs: {listed(f'{mtu} on {where}' for where, mtu in sizes.items())}",
                "between such hosts small packets arrive and large ones may be lost: jobs start and then hang",
                "Set one MTU on all hosts and switches of the network (`ip link set dev ... mtu ...`)",
            )


def wrong_choices(survey: Survey) -> Iterator[Finding]:
    """Find variables that choose an interface that does not exist or does not lead to the other hosts."""
    several = len({report.facts[names.NAME]["network"] for report in survey.leaders}) > 1
    shared = shared_addresses(survey) if several else {}
    for variable, is_interface in CHOOSERS.items():
        wrong: dict[str, str] = {}
        for report in survey.leaders if is_interface else ():
            value = report.facts[NAME]["chosen"].get(variable, "")
            why = _wrong(value, report, shared) if value else ""
            if why and (several or "no such" in why):
                wrong[report.host] = f"{variable}={value} on {report.host}: {why}"
        if wrong:
            good = listed(
                f"{net} ({ports[0][1]['name']} on {ports[0][0]})" for net, ports in common_networks(survey).items()
            )
            yield Finding(
                NAME,
                ERROR,
                listed(wrong.values()),
                "the job uses this interface and no other: the start hangs or is refused",
                f"Unset it, or name a network that all hosts share: {good or 'here there is none'}",
            )


def judge_named(survey: Survey, named: Sequence[str]) -> Iterator[Finding]:
    """Find hosts that have none of the interfaces which alone are to be tried.

    :param named: their names; empty: all are tried
    """
    without = {
        leader.host: f"{leader.host} ({listed(i['name'] for i in usable(leader)) or 'none'})"
        for leader in survey.leaders
        if named and not any(i["name"] in named for i in usable(leader))
    }
    if without:
        yield Finding(
            NAME,
            ERROR,
            f"--interfaces {','.join(named)}: no such interface is up on {listed(without.values())}",
            "no address of these hosts was tried",
            "Name interfaces that are up there (`ip -br address`); names may differ from host to host: eth0,ens3",
        )


def _wrong(value: str, report: RankReport, shared: Mapping[str, object]) -> str:
    """Explain why no interface or network in a comma-separated list can be used; "" if one can."""
    if value.startswith("^") or value == "all":
        return ""  # a list of interfaces to exclude, or no choice
    devices = report.facts[NAME]["interfaces"]
    why = ""
    for word in value.removeprefix("=").split(","):
        word = word.partition(":")[0]
        matching = [i for i in devices if _matches(word, i)]
        if not matching and word in report.facts[NAME]["others"]:
            return ""  # an interface without IPv4, such as an InfiniBand device
        if not matching:
            why = why or f"no such interface or network ({listed(i['name'] for i in devices)})"
        elif all(ipaddress.ip_address(i["address"]).is_loopback for i in matching):
            why = "a loopback interface reaches this host only"
        elif all(not i["up"] for i in matching):
            why = "this interface is down"
        elif all(i["address"] in shared for i in matching):
            why = f"its address {matching[0]['address']} is on several hosts, each reaches itself only"
        else:
            return ""
    return why


def _matches(word: str, device: Facts) -> bool:
    if "/" not in word:
        return str(device["name"]).startswith(word)
    try:
        return ipaddress.ip_address(device["address"]) in ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False
