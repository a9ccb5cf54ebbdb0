# SPDX-License-Identifier: Apache-2.0
"""Which network interfaces of this machine lead to the other machines of a job.

A communication library often chooses a wrong interface by default: docker0, which has the same address on every host
(a decoy), the loopback, or a network that only some hosts share.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpccoll.checks.kernel_files import read_text

__all__ = ["choose", "infiniband", "interface", "interfaces", "names_without_address", "network_of"]

NET, INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
DISCARD = 9
"""The port for route look-ups; no packet is sent to it."""


def interfaces() -> list[dict[str, Any]]:
    """Read the interfaces that have an IPv4 address."""
    return [interface(name) for _, name in socket.if_nameindex() if _address(name, SIOCGIFADDR)]


def names_without_address() -> list[str]:
    """List the interfaces without an IPv4 address, and the InfiniBand devices."""
    without = [name for _, name in socket.if_nameindex() if not _address(name, SIOCGIFADDR)]
    return without + sorted(device.name for device in INFINIBAND.glob("*"))


def interface(name: str) -> dict[str, Any]:
    """Read address, prefix, MTU and declared speed (bit/s) of an interface, and whether it has a hardware device."""
    folder = NET / name
    speed = read_text(folder / "speed")
    mask = _address(name, SIOCGIFNETMASK)
    return {
        "name": name,
        "address": _address(name, SIOCGIFADDR),
        "prefix": ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen,
        "mtu": int(read_text(folder / "mtu") or 0),
        "up": read_text(folder / "operstate") in ("up", "unknown"),
        "bridge": (folder / "bridge").is_dir(),
        "device": (folder / "device").exists(),
        "speed": int(speed) * 1_000_000 if speed.lstrip("-").isdecimal() and int(speed) > 0 else None,
    }


def _address(name: str, request: int) -> str:
    """Read the IPv4 address or mask of an interface (netdevice(7)); "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, request, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def network_of(device: Mapping[str, Any]) -> str:
    """The network of an interface's address, as 10.0.0.0/24."""
    return str(ipaddress.ip_network(f"{device['address']}/{device['prefix']}", strict=False))


def infiniband() -> list[str]:
    """List the ports of InfiniBand and RoCE adapters that are up, as UCX names them: mlx5_0:1."""
    ports = sorted(INFINIBAND.glob("*/ports/*"))
    return [f"{port.parent.parent.name}:{port.name}" for port in ports if "ACTIVE" in read_text(port / "state")]


def choose(machines: Sequence[Sequence[Mapping[str, Any]]], mine: int, wanted: str = "") -> list[str]:
    """Choose the interfaces of a machine.

    :param machines: the interfaces of each machine (see `interfaces`), the same list on all of them
    :param mine: the number of this machine in the list
    :param wanted: names or networks (`eth0,10.1.0.0/16`); empty: networks that all machines share, else the routes to
        the other machines; all where there is one machine
    :returns: names; empty if there is none
    """
    own = [device for device in machines[mine] if device["up"]]
    if wanted:
        return [device["name"] for device in own if any(_matches(word, device) for word in wanted.split(","))]
    if len(machines) == 1:
        return [device["name"] for device in own]  # UCX 1.20 connects to itself over an address that is no loopback
    usable = _without_decoys(machines)
    networks = [{network_of(device) for device in devices} for devices in usable]
    common = set.intersection(*networks)
    if chosen := [device["name"] for device in usable[mine] if network_of(device) in common]:
        return chosen
    return _towards([device["address"] for n, devices in enumerate(usable) if n != mine for device in devices], own)


def _without_decoys(machines: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[Mapping[str, Any]]]:
    """The interfaces of each machine that are up, without loopbacks and addresses that another machine has, too."""
    usable = [[device for device in devices if device["up"] and not _is_loopback(device)] for devices in machines]
    owners = [device["address"] for devices in usable for device in devices]
    return [[device for device in devices if owners.count(device["address"]) == 1] for devices in usable]


def _towards(addresses: Sequence[str], own: Sequence[Mapping[str, Any]]) -> list[str]:
    """The interfaces of this machine's routes to some addresses."""
    sources = set()
    for address in addresses:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((address, DISCARD))  # a datagram socket: chooses a route, sends nothing
            except OSError:
                continue
            sources.add(probe.getsockname()[0])
    return [device["name"] for device in own if device["address"] in sources and not _is_loopback(device)]


def _is_loopback(device: Mapping[str, Any]) -> bool:
    return ipaddress.ip_address(device["address"]).is_loopback


def _matches(word: str, device: Mapping[str, Any]) -> bool:
    if "/" not in word:
        return str(device["name"]) == word.strip()
    try:
        return ipaddress.ip_address(device["address"]) in ipaddress.ip_network(word.strip(), strict=False)
    except ValueError:
        return False
