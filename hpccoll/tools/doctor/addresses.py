# SPDX-License-Identifier: Apache-2.0
"""Names and network interfaces: what a host calls itself, by which addresses, and which of them are decoys."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpccoll.checks import names
from hpccoll.checks.finding import ERROR, WARNING, Facts, Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import listed

NAME = "addresses"
NET, INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
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
    "UCX_NET_DEVICES": True,
}
"""Variables that name an interface; False: a host name or an address."""


def collect(env: Mapping[str, str]) -> Facts:
    """Interfaces with an IPv4 address, what the host's own name resolves to, and who was told which interface."""
    host = socket.gethostname()
    return {
        "interfaces": [interface(name) for _, name in socket.if_nameindex() if _address(name, SIOCGIFADDR)],
        "others": [name for _, name in socket.if_nameindex() if not _address(name, SIOCGIFADDR)]
        + sorted(device.name for device in INFINIBAND.glob("*")),
        "own name": resolve(host),
        "told": {name: env[name] for name in CHOOSERS if env.get(name)},
    }


def interface(name: str) -> Facts:
    """Address, prefix, MTU, declared speed (bit/s), and whether hardware is behind it."""
    here = NET / name
    speed = _read(here / "speed")
    mask = _address(name, SIOCGIFNETMASK)
    return {
        "name": name,
        "address": _address(name, SIOCGIFADDR),
        "prefix": ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen,
        "mtu": int(_read(here / "mtu") or 0),
        "up": _read(here / "operstate") in ("up", "unknown"),
        "bridge": (here / "bridge").is_dir(),
        "device": (here / "device").exists(),
        "speed": int(speed) * 1_000_000 if speed.lstrip("-").isdecimal() and int(speed) > 0 else None,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _address(name: str, request: int) -> str:
    """The IPv4 address or mask of an interface (netdevice(7)), or nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, request, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def resolve(host: str) -> Facts:
    """The IPv4 addresses of a name and the seconds it took; a resolver that does not answer is not waited for."""
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
    """Interfaces that are up and not loopback."""
    return [
        i
        for i in report.facts[NAME]["interfaces"]
        if i["up"] and not ipaddress.ip_address(i["address"]).is_loopback
    ]


def network_of(interface_facts: Facts) -> str:
    """The network of an interface's address, as 10.0.0.0/24."""
    return str(
        ipaddress.ip_network(f"{interface_facts['address']}/{interface_facts['prefix']}", strict=False)
    )


# ---- judging --------------------------------------------------------------------------------------------


def judge(survey: Survey) -> list[Finding]:
    """What concerns several hosts; one host talks to itself through shared memory."""
    found = [*told_wrong(survey)]
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
    """Two nodes of one name."""
    hosts = [report.host for report in survey.leaders]
    double = sorted({host for host in hosts if hosts.count(host) > 1})
    if double:
        yield Finding(
            NAME,
            WARNING,
            f"{len(hosts)} nodes, but several are called {listed(double)}",
            "what counts nodes by name takes them for one (local ranks, Gloo, NCCL in containers)",
            "Give each container or host a name of its own (docker run --hostname, NCCL_HOSTID)",
        )


def unresolved(survey: Survey) -> Iterator[Finding]:
    """A host whose own name leads nowhere."""
    for report in survey.leaders:
        own = report.facts[NAME]["own name"]
        if own["error"]:
            yield Finding(
                NAME,
                WARNING,
                f"{report.host}: its own name cannot be resolved ({own['error']})",
                "launchers, Gloo and c10d ask for it at the start",
                "Enter the host in DNS or in /etc/hosts of all nodes",
            )


def shared_addresses(survey: Survey) -> dict[str, list[tuple[str, str]]]:
    """Addresses that several nodes have: (host, interface) of each."""
    owners: dict[str, list[tuple[str, str]]] = {}
    for report in survey.leaders:
        for one in usable(report):
            owners.setdefault(one["address"], []).append((report.host, one["name"]))
    return {address: who for address, who in owners.items() if len(who) > 1}


def decoys(survey: Survey) -> Iterator[Finding]:
    """docker0, virbr0: the same private address on every node."""
    for address, who in shared_addresses(survey).items():
        interfaces = sorted({name for _, name in who})
        yield Finding(
            NAME,
            WARNING,
            f"{listed(interfaces)} has the address {address} on {listed(host for host, _ in who)}",
            "a host that is told to connect to it connects to itself: Open MPI and NCCL that pick it hang at the start",
            f"Take it down where it is not needed (`ip link set {interfaces[0]} down`), or leave it out: "
            f"OMPI_MCA_btl_tcp_if_exclude=lo,{interfaces[0]}, NCCL_SOCKET_IFNAME=^{interfaces[0]}",
        )


def common_networks(survey: Survey) -> dict[str, list[tuple[str, Facts]]]:
    """Networks on which every node has an address, decoys left out: (host, interface) of each."""
    shared = shared_addresses(survey)
    found: dict[str, list[tuple[str, Facts]]] = {}
    for report in survey.leaders:
        for one in usable(report):
            if one["address"] not in shared:
                found.setdefault(network_of(one), []).append((report.host, one))
    return {net: who for net, who in found.items() if len({host for host, _ in who}) == len(survey.leaders)}


def differing(survey: Survey) -> Iterator[Finding]:
    """The common network is behind interfaces of different names."""
    for net, who in common_networks(survey).items():
        named = {host: one["name"] for host, one in who}
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
    """One network, several MTUs."""
    for net, who in common_networks(survey).items():
        sizes = {f"{host} ({one['name']})": one["mtu"] for host, one in who}
        if len(set(sizes.values())) > 1:
            yield Finding(
                NAME,
                WARNING,
                f"the MTU on {net} differs: {listed(f'{mtu} on {where}' for where, mtu in sizes.items())}",
                "between such hosts small packets pass and large ones may vanish: jobs start and then hang",
                "Set one MTU on all hosts and switches of the network (`ip link set dev ... mtu ...`)",
            )


def told_wrong(survey: Survey) -> Iterator[Finding]:
    """A variable names an interface that is not there, or one that leads to nobody else."""
    several = len({report.facts[names.NAME]["network"] for report in survey.leaders}) > 1
    shared = shared_addresses(survey) if several else {}
    for variable, is_interface in CHOOSERS.items():
        wrong: dict[str, str] = {}
        for report in survey.leaders if is_interface else ():
            value = report.facts[NAME]["told"].get(variable, "")
            why = _wrong(value, report, shared) if value else ""
            if why and (several or "no such" in why):
                wrong[report.host] = f"{variable}={value} on {report.host}: {why}"
        if wrong:
            good = listed(
                f"{net} ({who[0][1]['name']} on {who[0][0]})" for net, who in common_networks(survey).items()
            )
            yield Finding(
                NAME,
                ERROR,
                listed(wrong.values()),
                "the job uses this interface and no other: the start hangs or is refused",
                f"Unset it, or name a network that all hosts share: {good or 'here there is none'}",
            )


def _wrong(value: str, report: RankReport, shared: Mapping[str, object]) -> str:
    """Why none of the interfaces or networks in a comma-separated list will do; "" if one will."""
    if value.startswith("^") or value == "all":
        return ""  # a list of what to leave out, or no choice
    interfaces = report.facts[NAME]["interfaces"]
    why = ""
    for word in value.removeprefix("=").split(","):
        word = word.partition(":")[0]
        matching = [i for i in interfaces if _matches(word, i)]
        if not matching and word in report.facts[NAME]["others"]:
            return ""  # without IPv4, such as an InfiniBand device
        if not matching:
            why = why or f"no such interface or network ({listed(i['name'] for i in interfaces)})"
        elif all(ipaddress.ip_address(i["address"]).is_loopback for i in matching):
            why = "a loopback interface reaches this host only"
        elif all(not i["up"] for i in matching):
            why = "this interface is down"
        elif all(i["address"] in shared for i in matching):
            why = f"its address {matching[0]['address']} is on several hosts, each reaches itself only"
        else:
            return ""
    return why


def _matches(word: str, one: Facts) -> bool:
    if "/" not in word:
        return str(one["name"]).startswith(word)
    try:
        return ipaddress.ip_address(one["address"]) in ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False
