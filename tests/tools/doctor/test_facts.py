# SPDX-License-Identifier: Apache-2.0
"""What is read from the kernel and the environment; from recorded files where this machine has no such device."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.checks import cgroups, names, placement
from hpccoll.net import interfaces
from hpccoll.tools.doctor import addresses, child_monitor, identity, limits, load, rails, reach


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def device(root: Path, name: str, numa: int) -> Path:
    """A PCI device below a bridge."""
    folder = root / "devices" / "pci0000:40" / "0000:40:01.1" / name
    write(folder / "numa_node", f"{numa}\n")
    return folder


def test_an_infiniband_port_and_a_network_adapter(tmp_path: Path) -> None:
    port = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    write(port / "state", "4: ACTIVE\n")
    write(port / "rate", "200 Gb/sec (4X HDR)\n")
    (port.parents[1] / "device").symlink_to(device(tmp_path, "0000:41:00.0", 1))
    adapter = tmp_path / "class" / "net" / "ens9"
    write(adapter / "operstate", "up\n")
    write(adapter / "speed", "25000\n")
    (adapter / "device").symlink_to(device(tmp_path, "0000:42:00.0", -1))
    write(tmp_path / "class" / "net" / "docker0" / "operstate", "up\n")
    ethernet, infiniband = rails.collect(tmp_path / "class")["devices"]
    assert (infiniband["name"], infiniband["rate"], infiniband["up"]) == ("mlx5_0:1", 2e11, True)
    assert (infiniband["pci"], infiniband["numa"], infiniband["kind"]) == ("0000:41:00.0", 1, "rdma")
    assert (ethernet["name"], ethernet["rate"], ethernet["numa"]) == ("ens9", 2.5e10, None)


def test_the_quota_of_a_container_in_both_versions(tmp_path: Path) -> None:
    none = tmp_path / "no file"
    write(tmp_path / "two" / "cpu.max", "150000 100000\n")
    assert cgroups.quota(tmp_path / "two", none) == 1.5
    write(tmp_path / "none" / "cpu.max", "max 100000\n")
    assert cgroups.quota(tmp_path / "none", none) is None
    write(tmp_path / "one" / "cpu" / "cpu.cfs_quota_us", "400000\n")
    write(tmp_path / "one" / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert cgroups.quota(tmp_path / "one", none) == 4
    write(tmp_path / "free" / "cpu" / "cpu.cfs_quota_us", "-1\n")
    assert cgroups.quota(tmp_path / "free", none) is None


def test_limits_of_groups_above_count_and_stops_are_added_up(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/slice/job\n")
    write(tmp_path / "slice" / "cpu.max", "200000 100000\n")
    write(tmp_path / "slice" / "job" / "cpu.max", "max 100000\n")
    write(tmp_path / "slice" / "cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n")
    assert cgroups.quota(tmp_path, tmp_path / "own") == 2
    assert cgroups.throttled(tmp_path, tmp_path / "own") == 1.5
    write(tmp_path / "old", "4:cpu,cpuacct:/job\n1:name=systemd:/job\n")
    write(tmp_path / "cpu" / "job" / "cpu.stat", "throttled_time 250000000\n")
    assert cgroups.throttled(tmp_path, tmp_path / "old") == 0.25


def test_the_binding_of_this_process_is_what_it_was_bound_to() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        facts = placement.collect({"OMP_NUM_THREADS": "3,2"})
    finally:
        os.sched_setaffinity(0, allowed)
    assert facts["cpus"] == str(min(allowed))
    assert facts["threads"] == 3


def test_the_name_of_this_host_in_a_hosts_file(tmp_path: Path) -> None:
    host = socket.gethostname()
    file = write(tmp_path / "hosts", f"# 10.0.0.9 {host}\n127.0.1.1\t{host}.site {host} # Debian\n10.0.0.1 other\n")
    assert names.collect(file)["in /etc/hosts"] == ["127.0.1.1"]
    assert names.collect(tmp_path / "none")["in /etc/hosts"] == []


def test_loopback_is_an_interface_like_the_kernel_shows_it() -> None:
    lo = interfaces.interface("lo")
    assert (lo["address"], lo["prefix"], lo["device"], lo["up"]) == ("127.0.0.1", 8, False, True)
    assert interfaces.network_of(lo) == "127.0.0.0/8"


def test_an_unknown_name_is_not_waited_for() -> None:
    assert addresses.resolve("localhost")["addresses"] == ["127.0.0.1"]
    assert addresses.resolve("no-such-host.invalid")["error"]


def test_neighbours(tmp_path: Path) -> None:
    head = "IP address       HW type     Flags       HW address            Mask     Device\n"
    row = "10.0.0.{}         0x1         {}         aa:bb:cc:dd:ee:ff     *        eth0\n"
    table = write(tmp_path / "arp", head + row.format(2, "0x2") + row.format(3, "0x0"))
    assert [reach.neighbour(f"10.0.0.{i}", table) for i in (2, 3, 4)] == ["answers", "silent", ""]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError(), "silent"),
        (OSError(errno.ECONNREFUSED, "refused"), "refused"),
        (OSError(errno.EINVAL, "blackhole"), "no route"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), "no route"),
        (PermissionError(errno.EACCES, "prohibited"), "no route"),
        (PermissionError("not of this job"), "foreign"),
        (ConnectionError("closed"), "failed"),
    ],
)
def test_an_error_of_connect_is_classified(error: OSError, outcome: str) -> None:
    assert reach.outcome_of(error)["outcome"] == outcome


def test_limits_are_those_of_this_process() -> None:
    facts = limits.collect()
    assert facts["open files"] is None or facts["open files"] > 0


def test_sockets_that_are_still_connecting() -> None:
    """A backlog of none, filled: the next connection waits for an answer that does not come."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = []
        try:
            for _ in range(3):
                one = socket.socket()
                waiting.append(one)
                one.setblocking(False)
                assert one.connect_ex(server.getsockname()) == errno.EINPROGRESS
            assert f"127.0.0.1:{server.getsockname()[1]}" in child_monitor.connecting(os.getpid())
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, identity.Identity("", 0, 1, "")),
        (
            {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"},
            identity.Identity("srun", 3, 8, "77-0"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-h1-9@1"},
            identity.Identity("mpirun of Open MPI", 1, 2, "prterun-h1-9@1"),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "77"},
            identity.Identity("", 0, 1, ""),
        ),
    ],
)
def test_the_identity_that_the_launcher_gives(env: dict[str, str], expected: identity.Identity) -> None:
    assert identity.read(env) == expected


def test_processes_on_the_cores_of_a_rank_are_seen() -> None:
    """As it was found: 3 busy loops on a rank's core were nothing wrong."""
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}}); print(flush=True)\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for one in loops:
            assert one.stdout is not None
            one.stdout.readline()
        seen = load.watch({cpu}, 2.0)
    finally:
        for one in loops:
            one.kill()
            one.communicate()
    assert seen["busy"] > 0.5
    assert seen["at a time"] >= 2
    assert sum(any(f"(pid {one.pid})" in name for name in seen["processes"]) for one in loops) >= 2, seen
    assert seen["steal"] >= 0 and seen["stopped"] >= 0 and seen["average"] > 0
