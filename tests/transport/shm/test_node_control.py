# SPDX-License-Identifier: Apache-2.0
"""Doorbells, liveness and segments: what ranks of a node have before they have a data plane."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    "tests/transport/shm/node_control_contract.c",
    "ext/transport/shm/segment.c",
    "ext/transport/shm/control_segment.c",
    "ext/transport/shm/cores.c",
    "ext/transport/shm/cells.c",
    "ext/transport/shm/byte_ring.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
)


@pytest.fixture(scope="module")
def contract(build_c: Callable[..., Path]) -> Path:
    return build_c(*SOURCES)


@pytest.mark.parametrize("mode", ["threads", "processes"])
@pytest.mark.parametrize(("size", "turns"), [(2, 10000), (5, 2000), (300, 4)])
def test_no_ring_is_lost(run_c: Callable[..., str], contract: Path, mode: str, size: int, turns: int) -> None:
    run_c(contract, "ping", mode, size, turns)


def test_a_sleep_ends_in_time(run_c: Callable[..., str], contract: Path) -> None:
    run_c(contract, "alone")


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_who_leaves_is_not_lost(run_c: Callable[..., str], contract: Path, mode: str) -> None:
    run_c(contract, "leave", mode)


@pytest.mark.parametrize("size", [2, 5])
def test_who_is_killed_is_named(run_c: Callable[..., str], contract: Path, size: int) -> None:
    run_c(contract, "kill", size)


def names_in_shm(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"hpccoll-test-{pid}-")]


def test_nothing_is_left_after_kill(contract: Path) -> None:
    with subprocess.Popen([contract, "stay", "3"], stdout=subprocess.PIPE, text=True, start_new_session=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "up\n"
        os.killpg(job.pid, signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL
    assert names_in_shm(job.pid) == []


def test_segments(run_c: Callable[..., str], contract: Path) -> None:
    assert run_c(contract, "segment", f"/hpccoll-test-{os.getpid()}-x", 100_000) == ""
    assert "a name begins with /hpccoll-" in run_c(contract, "segment", "/other", 100_000)


def test_segments_of_killed_creators_are_removed(run_c: Callable[..., str], contract: Path) -> None:
    """Only those: not that of a creator that lives, nor one that is young, nor another program's file."""
    held, young, other = (
        Path("/dev/shm", f"{kind}-{os.getpid()}") for kind in ("hpccoll-test-held", "hpccoll-test-young", "test")
    )
    long_ago = (time.time() - 300,) * 2

    def after_another_start() -> list[bool]:
        run_c(contract, "segment", f"/hpccoll-test-{os.getpid()}-y", 4096)
        return [file.exists() for file in (held, young, other)]

    try:
        with subprocess.Popen([contract, "hold", f"/{held.name}"], stdout=subprocess.PIPE, text=True) as creator:
            assert creator.stdout is not None and creator.stdout.readline() == "up\n"
            young.touch()
            other.touch()
            for file in (held, other):
                os.utime(file, long_ago)
            assert after_another_start() == [True, True, True]
            creator.kill()
        assert after_another_start() == [False, True, True]
    finally:
        for file in (held, young, other):
            file.unlink(missing_ok=True)


def test_a_limit_of_files_is_no_full_dev_shm(contract: Path) -> None:
    """As Python does, the process ignores the signal that tells of the limit."""
    script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" segment /hpccoll-test 100000"
    done = subprocess.run(["bash", "-c", script, contract], capture_output=True, text=True, timeout=60, check=False)
    assert "needs 100000 bytes but a file of this process may have only 2048 bytes; raise the limit" in done.stdout


def test_a_small_dev_shm_is_a_sentence(contract: Path, needs: Callable[..., None]) -> None:
    """In a mount namespace of its own, where /dev/shm has 64 KiB."""
    script = 'mount -t tmpfs -o size=64k none /dev/shm && "$0" segment /hpccoll-test 100000 && ls /dev/shm'
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        needs("root")
    done = subprocess.run(
        [*unshare, "sh", "-c", script, contract], capture_output=True, text=True, timeout=60, check=True
    )
    assert "needs 100000 bytes but /dev/shm has only 65536 bytes left" in done.stdout
    assert "--shm-size" in done.stdout
    assert done.stdout.count("\n") == 1, "the name was left behind"
