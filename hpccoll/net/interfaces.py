# SPDX-License-Identifier: Apache-2.0
"""The network interfaces of this machine. ext/transport/net/ucx_interfaces.c chooses those that lead to the others."""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpccoll.checks.kernel_files import read_text

__all__ = ["interface", "interfaces", "names_without_address", "network_of"]

NET, INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B


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
