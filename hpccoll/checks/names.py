# SPDX-License-Identifier: Apache-2.0
"""Checks the name of this host in /etc/hosts: with Debian's 127.0.1.1 a host gives other hosts an unusable address."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import listed

NAME = "names"


def collect(hosts: Path = Path("/etc/hosts")) -> Facts:
    """Read the name of this host and its addresses in /etc/hosts, without a question over the network."""
    host = socket.gethostname()
    try:
        lines = [line.partition("#")[0].split() for line in hosts.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    return {
        "host": host,
        "network": network(),
        "in /etc/hosts": [words[0] for words in lines if host in words[1:]],
    }


def network() -> str:
    """Name the network namespace of the running kernel: equal for processes that see the same interfaces."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def trapped(facts: Facts) -> list[str]:
    """List the loopback addresses to which a host resolves its name."""
    return [address for address in facts["in /etc/hosts"] if address.startswith("127.")]


def judge(survey: Survey) -> list[Finding]:
    """Find hosts whose name has a loopback address, in a job on several hosts."""
    several = len({report.facts[NAME]["network"] for report in survey.leaders}) > 1
    return finding({report.host: trapped(report.facts[NAME]) for report in survey.leaders}) if several else []


def finding(addresses: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Find the trapped hosts of a job on several hosts.

    :param addresses: the result of `trapped` on each host
    """
    last = {host: found[-1] for host, found in addresses.items() if found}
    if not last:
        return []
    return [
        Finding(
            NAME,
            WARNING,
            f"{listed(f'/etc/hosts of {host} gives {host} the address {a}' for host, a in last.items())}",
            "a rank that publishes the address of its own name (Gloo, c10d, some MPIs and job servers) sends the "
            "other hosts to themselves: the start hangs or is refused",
            "Give the name its real address in /etc/hosts, or name the interface (GLOO_SOCKET_IFNAME, "
            "OMPI_MCA_btl_tcp_if_include=10.0.0.0/8)",
        )
    ]
