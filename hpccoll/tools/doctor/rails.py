# SPDX-License-Identifier: Apache-2.0
"""Rails: the network devices of a node, and the device that is nearest to each rank."""

import itertools
import re
from pathlib import Path

from hpccoll.checks import placement
from hpccoll.checks.finding import WARNING, Facts, Finding
from hpccoll.checks.kernel_files import read_text
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import some_ranks
from hpccoll.tools.doctor import gpus

NAME = "rails"
SYS = Path("/sys/class")
ROOT = len(Path("/sys/devices").parts)
"""Number of folders that the paths of all devices share."""


def collect(root: Path = SYS) -> Facts:
    """Collect ports of hardware devices: name, declared rate (bit/s), PCI address, NUMA node, and whether it is up."""
    return {"devices": sorted([*_infiniband(root), *_ethernet(root)], key=lambda d: str(d["name"]))}


def _infiniband(root: Path) -> list[Facts]:
    found = []
    for port in sorted((root / "infiniband").glob("*/ports/*")):
        rate = re.match(r"([\d.]+) Gb/sec", read_text(port / "rate"))
        device = port.parent.parent
        found.append(
            _device(f"{device.name}:{port.name}", device / "device")
            | {
                "kind": "rdma",
                "up": "ACTIVE" in read_text(port / "state"),
                "rate": float(rate[1]) * 1e9 if rate else None,
            }
        )
    return found


def _ethernet(root: Path) -> list[Facts]:
    found = []
    for net in sorted((root / "net").glob("*")):
        if (net / "device").exists() and not (net / "device" / "infiniband").exists():
            speed = read_text(net / "speed")
            rate = float(speed) * 1e6 if speed.isdecimal() else None
            found.append(
                _device(net.name, net / "device")
                | {"kind": "ethernet", "up": read_text(net / "operstate") == "up", "rate": rate}
            )
    return found


def _device(name: str, device: Path) -> Facts:
    numa = read_text(device / "numa_node")
    where = {"pci": device.resolve().name, "path": str(device.resolve())}
    return {"name": name, **where, "numa": int(numa) if numa.isdecimal() else None}


def best(report: RankReport) -> list[Facts]:
    """Return the rails of a rank's node: its fastest kind of device that is up."""
    usable = [d for d in report.facts[NAME]["devices"] if d["up"]]
    rdma = [d for d in usable if d["kind"] == "rdma"]
    fastest = max((d["rate"] or 0 for d in rdma or usable), default=0)
    return [d for d in rdma or usable if (d["rate"] or 0) == fastest]


def assign(reports: list[RankReport]) -> dict[int, str]:
    """Assign a rail to each rank of a node: among those near the rank, the one with the fewest ranks."""
    rails = best(reports[0])
    load = {rail["name"]: 0 for rail in rails}
    chosen = {}
    for report in reports:
        names = [rail["name"] for rail in near(report, rails)]
        if names:
            chosen[report.rank] = min(names, key=lambda name: load[name])
            load[chosen[report.rank]] += 1
    return chosen


def near(report: RankReport, rails: list[Facts]) -> list[Facts]:
    """Find the rails below the same PCI bridges as the rank's one GPU, else those of its one NUMA node, else all."""
    seen, domains = report.facts[gpus.NAME]["visible"], report.facts[placement.NAME].get("numa", [])
    if len(seen) == 1:
        depths = [_common(rail["path"], seen[0]["path"]) for rail in rails]
        if max(depths, default=0) > ROOT:
            return [rail for rail, depth in zip(rails, depths, strict=True) if depth == max(depths)]
    on_socket = [rail for rail in rails if [rail["numa"]] == domains]
    return on_socket or rails


def _common(first: str, second: str) -> int:
    """Count the folders that two paths of sysfs share: more of them mean fewer bridges between the devices."""
    pairs = zip(Path(first).parts, Path(second).parts, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def judge(survey: Survey) -> list[Finding]:
    """Find rails without a rank near them, and nodes with fewer rails than the others."""
    found = []
    counts = {report.host: len(best(report)) for report in survey.leaders}
    most = max(counts.values(), default=0)
    fewer = {host: n for host, n in counts.items() if n < most}
    if fewer:
        shown = ", ".join(f"{host} has {n}" for host, n in list(fewer.items())[:8])
        found.append(
            Finding(
                NAME,
                WARNING,
                f"{shown} of the {most} network devices that other nodes have up",
                "the slowest node sets the pace of all",
                "Look at `ibstat`, `ip link` there; leave the node out (`--exclude`) until it is repaired",
            )
        )
    for reports in survey.nodes.values():
        found += _idle_rails(reports)
    return found


def _idle_rails(reports: list[RankReport]) -> list[Finding]:
    rails, bound = best(reports[0]), [c.facts[placement.NAME].get("numa", []) for c in reports]
    if len(rails) < 2 or any(len(domains) != 1 for domains in bound):
        return []
    covered = {domains[0] for domains in bound}
    idle = [r["name"] for r in rails if r["numa"] is not None and r["numa"] not in covered]
    if not idle or len(reports) < len(rails):
        return []
    return [
        Finding(
            NAME,
            WARNING,
            f"{reports[0].host}: no rank is bound near {', '.join(idle)} ({some_ranks(r.rank for r in reports)} are on "
            f"NUMA nodes {sorted(covered)})",
            "traffic of that device crosses the socket link, or the device stays idle",
            "Spread the ranks over the sockets: `srun --distribution=block:cyclic`, `mpirun --map-by numa`",
        )
    ]
