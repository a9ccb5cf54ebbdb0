# SPDX-License-Identifier: Apache-2.0
"""Which interfaces a net over UCX uses: those that lead to all other machines, and no decoys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Choose = Callable[..., tuple[str, ...]]


@pytest.fixture
def choose(build_c: Callable[..., Path], run_c: Callable[..., str], tmp_path: Path) -> Choose:
    """`choose(machines, *numbers, wanted="")`: the interfaces that the machines of these numbers use."""
    program = build_c("tests/transport/net/interfaces.c", "ext/transport/net/ucx_interfaces.c")

    def run(machines: list[list[dict[str, Any]]], *numbers: int, wanted: str = "") -> tuple[str, ...]:
        there = [(number, device) for number, devices in enumerate(machines) for device in devices]
        lines = (f"{n} {d['name']} {d['address']} {d['prefix']} {int(d['up'])}\n" for n, d in there)
        (tmp_path / "interfaces").write_text("".join(lines))
        return tuple(run_c(program, tmp_path / "interfaces", wanted, *numbers).splitlines())

    return run


def device(name: str, address: str, *, up: bool = True) -> dict[str, Any]:
    ip, _, prefix = address.partition("/")
    return {"name": name, "address": ip, "prefix": int(prefix), "up": up}


LOOPBACK = device("lo", "127.0.0.1/8")
DOCKER = device("docker0", "172.17.0.1/16")


@pytest.fixture
def two(choose: Choose) -> Choose:
    """What each of two machines uses, which also have a loopback."""
    return lambda left, right: choose([[LOOPBACK, *left], [LOOPBACK, *right]], 0, 1)


def test_networks_that_all_machines_share(two: Choose) -> None:
    """Their interfaces may have other names; a network of some machines is left out."""
    left = [device("eth0", "10.0.0.1/24"), device("ib0", "10.9.0.1/16"), device("eth1", "192.168.1.1/24")]
    right = [device("ens3", "10.0.0.2/24"), device("ib0", "10.9.0.2/16")]
    assert two(left, right) == ("eth0,ib0", "ens3,ib0")


def test_addresses_that_several_machines_have_are_decoys(two: Choose) -> None:
    assert two([DOCKER, device("eth0", "10.0.0.1/24")], [device("eth0", "10.0.0.2/24"), DOCKER]) == ("eth0", "eth0")


def test_an_interface_that_is_down_is_not_chosen(two: Choose) -> None:
    left = [device("eth0", "10.0.0.1/24"), device("ib0", "10.9.0.1/16", up=False)]
    assert two(left, [device("eth0", "10.0.0.2/24"), device("ib0", "10.9.0.2/16")]) == ("eth0", "eth0")


def test_a_network_is_its_address_and_its_prefix(two: Choose) -> None:
    """10.0.1.1/16 and 10.0.2.1/16 are neighbours, 10.1.1.1/24 and 10.1.2.1/24 are not."""
    left = [device("a", "10.0.1.1/16"), device("b", "10.1.1.1/24")]
    assert two(left, [device("a", "10.0.2.1/16"), device("b", "10.1.2.1/24")]) == ("a", "a")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("ib0", "ib0"), ("10.9.0.0/16", "ib0"), ("10.9.7.7/16,lo", "lo,ib0"), (" eth0 , ib0 ", "eth0,ib0"),
     ("eth", ""), ("10.9.0.0/33", ""), ("10.9.0.0/x", ""), ("10.9.0.1", "ib0"), ("10.9.0.2", ""),
     ("10.9.0.0/-1", ""), ("10.9.0.0/", ""), ("0.0.0.0/0", "lo,eth0,ib0")],
)  # fmt: skip
def test_the_user_names_interfaces_or_networks(choose: Choose, wanted: str, names: str) -> None:
    machines = [[LOOPBACK, device("eth0", "10.0.0.1/24"), device("ib0", "10.9.0.1/16")]]
    assert choose(machines, 0, wanted=wanted) == (names,)


def test_one_machine_uses_all_that_are_up(choose: Choose) -> None:
    """UCX connects a rank to itself over an address that is no loopback."""
    machines = [[LOOPBACK, device("eth0", "10.0.0.1/24"), device("eth1", "10.0.1.1/24", up=False)]]
    assert choose(machines, 0) == ("lo,eth0",)


def test_without_a_common_network_the_routes_decide(two: Choose) -> None:
    """A route of the real kernel: to another address of 127.0.0.0/8 there is only the loopback, which is left out."""
    assert two([device("eth7", "203.0.113.1/30")], [device("eth7", "127.0.9.9/8")]) == ("", "")


def test_a_name_is_there_once(two: Choose) -> None:
    """An interface may have several addresses."""
    left = [device("eth0", "10.0.0.1/24"), device("eth0", "10.2.0.1/24")]
    assert two(left, [device("eth0", "10.0.0.2/24"), device("eth0", "10.2.0.2/24")]) == ("eth0", "eth0")


def test_many_machines(choose: Choose) -> None:
    """4,608 of them, each with its docker0, an adapter, and a management network that one machine lacks."""
    machines = []
    for n in range(4608):
        own = [LOOPBACK, DOCKER, device("ib0", f"10.{n >> 8}.{n & 255}.1/8")]
        machines.append([*own, device("eth0", f"192.168.{n >> 8}.{n & 255}/16")] if n != 1000 else own)
    assert choose(machines, 17) == ("ib0",)
