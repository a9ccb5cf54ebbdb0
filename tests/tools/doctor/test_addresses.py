# SPDX-License-Identifier: Apache-2.0
"""Faults of names, addresses and paths, planted in the reports of a healthy cluster: each is found and named."""

from typing import Any

import pytest
from reports import found, interface, only, report, says

from hpccoll.checks.finding import ERROR, WARNING
from hpccoll.checks.survey import Survey
from hpccoll.tools.doctor import addresses

PAIR = [report(0, 0), report(1, 1)]

# ---- names and addresses ------------------------------------------------------------------------------


def test_the_loopback_name_trap() -> None:
    trapped = report(1, 1, names={"in /etc/hosts": ["127.0.1.1"]})
    says(only([report(0), trapped]), WARNING, "/etc/hosts of h2 gives h2 the address 127.0.1.1")


def test_a_host_on_its_own_may_call_itself_localhost() -> None:
    assert found([report(r, 0, names={"in /etc/hosts": ["127.0.0.1"]}) for r in range(2)]) == []


def with_interfaces(rank: int, *more: Any, **changes: Any) -> Any:
    one = report(rank, rank, **changes)
    one.facts["addresses"]["interfaces"] += more
    return one


def test_decoys_are_addresses_that_several_hosts_have() -> None:
    docker = interface("docker0", "172.17.0.1", 16)
    says(
        only([with_interfaces(r, docker) for r in range(3)]),
        WARNING,
        "docker0 has the address 172.17.0.1 on h1, h2, h3",
    )


def test_a_decoy_that_is_down_is_none() -> None:
    docker = interface("docker0", "172.17.0.1", 16, up=False)
    assert found([with_interfaces(r, docker) for r in range(2)]) == []


def test_differing_interface_names() -> None:
    other = report(1, 1, addresses={"interfaces": [interface("ens9", "10.0.0.2")]})
    says(only([report(0), other]), WARNING, "eth0 on h1, ens9 on h2", "NCCL_SOCKET_IFNAME=ens9,eth0")


def test_interfaces_that_alone_are_to_be_tried() -> None:
    other = report(1, 1, addresses={"interfaces": [interface("ens9", "10.0.0.2"), interface("ib0", "", up=False)]})
    survey = Survey([report(0), other], 2)
    for named, hosts in (([], []), (["eth0", "ens9"], []), (["eth0"], ["h2 (ens9)"]), (["lo", "ib0"], ["h1", "h2"])):
        said = [finding.seen for finding in addresses.judge_named(survey, named)]
        assert len(said) == bool(hosts)
        assert all(host in text for host in hosts for text in said)


def test_differing_mtus() -> None:
    other = report(1, 1, addresses={"interfaces": [interface("eth0", "10.0.0.2", mtu=9000)]})
    says(only([report(0), other]), WARNING, "10.0.0.0/24", "1500 on h1 (eth0)", "9000 on h2 (eth0)")


def test_two_hosts_of_one_name() -> None:
    one, other = report(0, 0), report(1, 1)
    same = type(other)(1, "h1", other.node, other.facts)
    says(only([one, same]), WARNING, "several are called h1")


def test_a_name_that_leads_nowhere() -> None:
    lost = report(1, 1, addresses={"own name": {"name": "h2", "addresses": [], "error": "Name not known"}})
    says(only([report(0), lost]), WARNING, "h2: its own name cannot be resolved (Name not known)")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("lo", "loopback"),
        ("eth7", "no such interface"),
        ("192.168.0.0/16", "no such interface"),
        ("docker0", "several hosts"),
    ],
)
def test_a_wrong_choice_of_interface(value: str, why: str) -> None:
    docker = interface("docker0", "172.17.0.1", 16)
    told = {"chosen": {"OMPI_MCA_btl_tcp_if_include": value}}
    findings = [f for f in found([with_interfaces(r, docker) for r in range(2)]) if f.severity == ERROR]
    assert findings == []
    reports = [
        with_interfaces(r, docker, addresses=told | {"interfaces": report(r, r).facts["addresses"]["interfaces"]})
        for r in range(2)
    ]
    findings = [f for f in found(reports) if f.severity == ERROR]
    assert len(findings) == 1
    says(findings[0], ERROR, f"OMPI_MCA_btl_tcp_if_include={value} on h1", why, "10.0.0.0/24 (eth0 on h1)")


@pytest.mark.parametrize("value", ["eth0", "=eth0", "eth", "10.0.0.0/8", "lo,eth0", "^docker0,lo", "all", "mlx5_0:1"])
def test_right_choices_of_interface(value: str) -> None:
    told = {"chosen": {"NCCL_SOCKET_IFNAME": value}, "others": ["mlx5_0"]}
    assert found([report(r, r, addresses=told) for r in range(2)]) == []


# ---- reach ----------------------------------------------------------------------------------------------


def tried(outcome: str, address: str = "10.0.0.2", here: int = 0, there: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "from": f"h{here + 1}", "to": f"h{there + 1}", "nodes": [here, there], "address": address, "port": 1,
        "through": "eth0", "outcome": outcome, "error": "why", **more,
    }  # fmt: skip


def test_an_address_that_answers_is_enough_but_dead_ones_are_named() -> None:
    assert found(PAIR, reached=[tried("ok"), tried("own", "172.17.0.1")]) == []
    finding = only(PAIR, reached=[tried("silent", "192.168.7.2"), tried("ok")])
    says(finding, WARNING, "192.168.7.2:1 why, while 10.0.0.2 answers (through eth0)")


@pytest.mark.parametrize(
    ("outcome", "more", "remedy"),
    [
        ("no route", {}, "ip route get 10.0.0.2"),
        ("silent", {"neighbour": "answers"}, "a firewall drops TCP"),
        ("silent", {"neighbour": "silent"}, "Cable, switch"),
        ("refused", {}, "rejects the connection"),
        ("foreign", {}, "an address that is its own"),
    ],
)
def test_no_way_at_all(outcome: str, more: dict[str, str], remedy: str) -> None:
    says(
        only(PAIR, reached=[tried(outcome, **more)]),
        ERROR,
        "h1 cannot connect to h2 by any of its addresses",
        remedy,
    )


def test_a_missing_route_back_is_no_firewall() -> None:
    both = [tried("silent", neighbour="answers"), tried("no route", "10.0.0.1", 1, 0)]
    there, back = found(PAIR, reached=both)
    says(there, ERROR, "h2 has no route back to h1")
    says(back, ERROR, "h2 cannot connect to h1", "ip route get")


def test_large_messages_that_vanish() -> None:
    says(only(PAIR, reached=[tried("large lost")]), ERROR, "h1 to h2", "256 KiB do not", "MTU")


def test_the_table_of_a_decoy_address_is_not_a_common_network() -> None:
    docker = interface("docker0", "172.17.0.1", 16)
    survey = Survey([with_interfaces(r, docker) for r in range(2)])
    assert list(addresses.common_networks(survey)) == ["10.0.0.0/24"]
