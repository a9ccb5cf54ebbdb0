# SPDX-License-Identifier: Apache-2.0
"""Reports of invented ranks of a healthy cluster; a test changes the facts that it checks."""

from typing import Any

from hpccoll.checks.finding import Finding
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.tools.doctor import examine


def report(rank: int = 0, node: int = 0, **changes: dict[str, Any]) -> RankReport:
    """Make the report of a rank on host h<node+1>, bound to 4 of 64 cores, with `changes` of the facts of checks."""
    facts: dict[str, dict[str, Any]] = {
        "build": {
            "versions": {"hpccoll": "1", "numpy": "2"}, "Python": "3.11", "kernels": "avx2",
            "knobs": "",
        },
        "mpi": {
            "library": "Open MPI v5.0.11", "thread level": "MULTIPLE", "ours": {},
            "risk": None,
        },
        "ucx": {"library": "UCX 1.20.1 (/lib/libucp.so.0)", "lacks": ""},
        "transports": {"btl": "", "pml": "", "ranks": 1, "local": 1},
        "launcher": {"launcher": "srun", "rank": rank, "place": None, "if alone": None},
        "names": {"host": f"h{node + 1}", "network": f"net{node}", "in /etc/hosts": [f"10.0.0.{node + 1}"]},
        "addresses": {
            "interfaces": [interface("lo", "127.0.0.1", 8), interface("eth0", f"10.0.0.{node + 1}")],
            "others": [], "own name": {"name": "", "addresses": [], "error": ""}, "chosen": {},
        },
        "memory": {"free": 1 << 34, "total": 1 << 34},
        "limits": {"locked memory": None, "open files": 65536, "stack": 8 << 20, "rdma": False},
        "placement": {
            "cpus": f"{4 * (rank % 16)}-{4 * (rank % 16) + 3}", "online": "0-63", "threads": 4, "cores": 4,
            "numa": [(rank % 16) // 8], "numa nodes": 2, "quota": None,
        },
        "rails": {"devices": []},
        "node order": {"address": [0, f"h{node + 1}"], "file": ""},
        "gpus": {"present": [], "visible": [], "why none": "no driver", "hidden by": {}},
    }  # fmt: skip
    for name, change in changes.items():
        facts[name] = facts[name] | change
    return RankReport(rank, f"h{node + 1}", f"node{node}", facts)


def interface(name: str, address: str, prefix: int = 24, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "address": address, "prefix": prefix, "mtu": 1500, "up": True, "bridge": False, "device": True,
        "speed": None, **changes,
    }  # fmt: skip


def link(
    one: int, other: int, mbits: float, latency: float = 10e-6, back: float | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "nodes": [one, other], "hosts": [f"h{one + 1}", f"h{other + 1}"], "latency": latency, "skew": 0.0,
        "bandwidth": [mbits * 1e6 / 8, (back or mbits) * 1e6 / 8], "sent": 1, **more,
    }  # fmt: skip


def found(reports: list[RankReport], **survey: Any) -> list[Finding]:
    """Apply all checks."""
    whole = Survey(reports, **{"size": len(reports), **survey})
    return [finding for check in examine.CHECKS for finding in check.judge(whole)]


def only(reports: list[RankReport], **survey: Any) -> Finding:
    """Return the only finding; if there are others, fail and show all."""
    findings = found(reports, **survey)
    assert len(findings) == 1, findings
    return findings[0]


def says(finding: Finding, severity: str, *facts: str) -> None:
    assert finding.severity == severity, finding
    whole = finding.line()
    assert all(fact in whole for fact in facts), (facts, whole)
