# SPDX-License-Identifier: Apache-2.0
"""Faults planted on hosts with a network of their own are found and named; the figures are iperf3's (needs root)."""

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from namespaces import PROGRAMS, cluster, hosts_up, python

OF_THIS_MACHINE = {"load", "inside"}
"""The checks that see whatever else this machine does meanwhile."""
RATE = 100
"""Mbit/s of the shaped links."""
FIREWALL = """
table ip planted {
 chain input {
  type filter hook input priority 0; policy accept;
  ip saddr 10.78.0.12 tcp dport 1024-65535 ct state new drop
 }
}
"""
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS, "iperf3")
    with hosts_up(3, uncounted):
        yield


def on(host: str, command: str) -> str:
    return cluster("exec", host, "sh", "-c", command).stdout


@contextlib.contextmanager
def planted(faults: dict[str, tuple[str, str]]) -> Iterator[None]:
    """On each host a command that plants a fault, and one that takes it away."""
    try:
        for host, (plant, _) in faults.items():
            on(host, plant)
        yield
    finally:
        for host, (_, mend) in faults.items():
            on(host, mend)


def everywhere(plant: str, mend: str) -> dict[str, tuple[str, str]]:
    return {f"h{i}": (plant, mend) for i in (1, 2, 3)}


def over_ssh(*words: str, hosts: str = "h1,h2,h3", **variables: str) -> tuple[int, dict[str, Any]]:
    """`hpccoll doctor -H` on h1: no MPI, no launcher."""
    agent = cluster("env").stdout.split("OMPI_MCA_plm_rsh_agent=")[1].split()[0]
    done = python("h1", "-m", "hpccoll", "doctor", "-H", hosts, "--ssh", agent, "--json", *words, **variables)
    return done.returncode, report_in(done.stdout)


def report_in(output: str) -> dict[str, Any]:
    """Read the JSON that begins a line; ssh and launchers may print around it."""
    report: dict[str, Any] = json.JSONDecoder().raw_decode(output, f"\n{output}".index("\n{"))[0]
    return report


def in_job(*words: str, ranks: str = "h1:2,h2:1,h3:1", **variables: str) -> tuple[int, dict[str, Any]]:
    """`hpccoll run -H ... hpccoll doctor` on h1; mpirun reaches the others over ssh."""
    launch = ["-m", "hpccoll", "run", "-H", ranks, "--timeout", "120"]
    told = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    done = python("h1", *launch, *told, "hpccoll", "doctor", "--json", *words)
    return done.returncode, report_in(done.stdout)


def finding(report: dict[str, Any], check: str, *facts: str) -> dict[str, Any]:
    """Return the finding of this check that has these facts; otherwise fail and show all findings."""
    for one in report["findings"]:
        if one["check"] == check and all(fact in one["seen"] + one["remedy"] for fact in facts):
            return dict(one)
    pytest.fail(f"no finding of {check} with {facts}: {json.dumps(report['findings'], indent=1)}")


def iperf(client: str, server: str) -> float:
    """Measure Mbit/s from one host to the other with iperf3."""
    address = f"10.78.0.1{server[1:]}"
    for _ in range(5):
        on(server, "timeout 30 iperf3 -s -1 -D")
        output = cluster("exec", client, "timeout", 25, "iperf3", "-c", address, "-t", 1, "-J", check=False).stdout
        if "sum_received" in output:
            return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 1e6
    pytest.fail(output)


def mbits(report: dict[str, Any]) -> dict[str, list[float]]:
    return {"-".join(link["hosts"]): [8e-6 * rate for rate in link["bandwidth"]] for link in report["links"]}


# ---- without MPI --------------------------------------------------------------------------------------


@contextlib.contextmanager
def shaped(**rates: int) -> Iterator[None]:
    """Links limited to RATE, or those of some hosts to another number of Mbit/s."""
    cluster("shape", f"{RATE}mbit")
    for host, rate in rates.items():
        cluster("shape", f"{rate}mbit", "256kb", host)
    try:
        yield
    finally:
        cluster("unshape")


def as_iperf(
    examine: Callable[[], tuple[int, dict[str, Any]]], well: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Examine shaped hosts until a report is as it should be and all figures are within 10 % of iperf3's.

    The best of each counts, because load only takes away; and it makes links look slow and hosts unwell.
    """
    best: dict[str, list[float]] = {}
    expected = 0.0
    with shaped():
        for _ in range(5):
            _, report = examine()
            expected = max(expected, iperf("h1", "h2"))
            for link, rates in mbits(report).items():
                best[link] = [max(pair) for pair in zip(rates, best.get(link, rates), strict=True)]
            figures = [rate for pair in best.values() for rate in pair]
            if best and well(report) and figures == pytest.approx([expected] * len(figures), rel=0.1):
                return report
    pytest.fail(f"{best}, and iperf3 says {expected}; {report['findings']}")


def test_healthy_hosts_have_no_findings_and_iperfs_figures() -> None:
    report = as_iperf(over_ssh, lambda report: {f["check"] for f in report["findings"]} <= OF_THIS_MACHINE)
    assert sorted(mbits(report)) == ["h1-h2", "h1-h3", "h2-h3"]


def test_a_host_that_ssh_does_not_reach() -> None:
    status, report = over_ssh("--no-measuring", hosts="h1,h2,h9")
    assert status == 1
    assert finding(report, "ssh", "h9: ")["severity"] == "error"
    assert [node["host"] for node in report["nodes"]] == ["h1", "h2"]


DECOY = everywhere(
    "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
    "ip link del docker0",
)


@pytest.mark.slow
def test_decoys_and_who_is_told_to_use_them() -> None:
    with planted(DECOY):
        status, report = over_ssh("--no-measuring")
        assert status == 0
        finding(report, "addresses", "docker0 has the address 172.17.0.1 on h1, h2, h3")
        status, report = over_ssh("--no-measuring", NCCL_SOCKET_IFNAME="docker0")
    assert status == 1
    assert finding(report, "addresses", "NCCL_SOCKET_IFNAME=docker0 on h1", "10.78.0.0/24")["severity"] == "error"


def test_a_second_network_that_leads_nowhere() -> None:
    """A network adapter with an address of another subnet on one host, which the others cannot reach."""
    second = {
        "h3": (
            "ip link add back0 type bridge; ip addr add 192.168.77.3/24 dev back0; ip link set back0 up",
            "ip link del back0",
        )
    }
    with planted(second):
        status, report = over_ssh("--no-measuring")
    assert status == 0
    finding(report, "reach", "192.168.77.3", "while 10.78.0.13 answers (through eth0)")


def test_a_name_a_network_adapter_and_an_mtu_that_are_not_like_the_others() -> None:
    odd = {
        "h2": (
            "sed 's/^10.78.0.12 h2/127.0.1.1 h2/' /etc/hosts > /dev/shm/hosts; mount --bind /dev/shm/hosts /etc/hosts",
            "umount /etc/hosts",
        ),
        "h3": (
            "ip link set eth0 down; ip link set eth0 name ens9; ip link set ens9 mtu 1400 up",
            "ip link set ens9 down; ip link set ens9 name eth0; ip link set eth0 mtu 1500 up",
        ),
    }
    with planted(odd):
        status, report = over_ssh("--no-measuring")
    assert status == 0
    finding(report, "names", "/etc/hosts of h2 gives h2 the address 127.0.1.1")
    finding(report, "addresses", "the network 10.78.0.0/24 is behind", "ens9 on h3")
    finding(report, "addresses", "the MTU on 10.78.0.0/24 differs", "1400 on h3 (ens9)")


@pytest.mark.slow
def test_a_blackholed_route() -> None:
    with planted({"h2": ("ip route add blackhole 10.78.0.13/32", "ip route del blackhole 10.78.0.13/32")}):
        status, report = over_ssh("--no-measuring")
    assert status == 1
    finding(report, "reach", "h2 cannot connect to h3", "ip route get 10.78.0.13")
    finding(report, "reach", "h3 cannot connect to h2", "h2 has no route back to h3")


def test_a_firewall(tmp_path: Path, needs: Callable[..., None]) -> None:
    needs("nft")
    rules = tmp_path / "rules"
    rules.write_text(FIREWALL)
    with planted({"h3": (f"nft -f {rules}", "nft delete table ip planted")}):
        status, report = over_ssh("--no-measuring")
    assert status == 1
    finding(report, "reach", "h2 cannot connect to h3", "a firewall drops TCP")


@pytest.mark.slow
def test_large_packets_that_vanish(needs: Callable[..., None]) -> None:
    """Two hosts have an MTU of 9000 bytes, and the path between them carries 1500."""
    needs("ethtool")
    big = "ip link set eth0 mtu 9000; ethtool -K eth0 tso off gso off"
    small = "ip link set eth0 mtu 1500; ethtool -K eth0 tso on gso on"
    with planted(dict.fromkeys(("h2", "h3"), (big, small))):
        status, report = over_ssh("--no-measuring")
    assert status == 1
    finding(report, "reach", "h2 to h3", "a few bytes arrive, 256 KiB do not", "MTU")


@pytest.mark.slow
def test_a_slow_node() -> None:
    with shaped(h3=20):
        status, report = over_ssh("--require", "bandwidth=50Mbit")
    assert status == 1
    finding(report, "network", "slow node h3", "at best")
    finding(report, "network", "h1 - h3", "less than 50 Mbit/s")
    assert not [f for f in report["findings"] if "h1 - h2" in f["seen"]]


# ---- through MPI ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_is_measured_through_mpi() -> None:
    report = as_iperf(
        lambda: in_job("--model", "resnet-50", "--require", "bandwidth=10Mbit,latency=1s"),
        lambda report: report["errors"] == 0,
    )
    assert report["ranks"] == 4
    assert "The network will not do: resnet-50 on 3 nodes" in report["training"]["sentence"]
    assert [inside["node"] for inside in report["inside"]] == ["h1", "all"]


@pytest.mark.slow
def test_mpi_that_hangs_on_a_decoy_is_reported() -> None:
    """Open MPI connects to the other host's docker0, which is its own, and waits for ever."""
    with planted(DECOY):
        status, report = in_job("--patience", "8", ranks="h1:1,h2:1")
    assert status == 1
    finding(report, "mpi", "has not returned after", "docker0")
    finding(report, "addresses", "docker0 has the address 172.17.0.1")


@pytest.mark.slow
def test_a_hang_in_mpi_init_on_hosts_that_share_a_folder(build_c: Callable[..., Path], tmp_path: Path) -> None:
    library = str(build_c("tests/tools/doctor/hang.c", flags=("-shared",), name="hang.so"))
    with planted({"h2": ("ip route add blackhole 10.78.0.13/32", "ip route del blackhole 10.78.0.13/32")}):
        status, report = in_job("--patience", "4", "--meet", str(tmp_path), LD_PRELOAD=library)
    assert status == 1
    finding(report, "mpi", "MPI_Init_thread has not returned after", "on ranks 0-3 (h1, h2, h3)")
    finding(report, "reach", "h2 cannot connect to h3")
    assert "h1-h2" in mbits(report)
