# SPDX-License-Identifier: Apache-2.0
"""`hpccoll horovodrun`: each flag of Horovod 0.28 becomes one of `hpccoll run`, changes nothing, or is refused."""

import argparse
import subprocess
import sys

import pytest

from hpccoll.tools.horovodrun import FLAGS, add_flags, translate
from hpccoll.tools.launch.job import LaunchError

OF_HOROVOD = """
-np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces --network-interface
--output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb --cycle-time-ms
--cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --autotune --no-autotune --autotune-log-file --autotune-warmup-samples
--autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc
--max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename
--timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp --binding-args
--num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp
-prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts -hostfile
--hostfile --host-discovery-script --gloo --mpi --jsrun
"""
"""The flags in horovod/runner/launch.py of Horovod 0.28.1, but for -h and -v."""


def translated(words: list[str]) -> tuple[list[str], list[str]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return translate(parser.parse_args(words))


def test_every_flag_of_horovod_is_known() -> None:
    assert {name for flag in FLAGS for name in flag.names.split()} == set(OF_HOROVOD.split())


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("-np 4", "-np=4"),
        ("--num-proc 4 -H h1:2,h2:2", "-np=4 -H=h1:2,h2:2"),
        ("--hostfile hosts --output-filename out", "--hostfile=hosts --output=out"),
        ("--mpi-args=--tag-output", "--launcher-options=--tag-output"),
        ("--fusion-threshold-mb 1", "-x=HPCCOLL_FUSION_THRESHOLD=1048576"),
        ("--cycle-time-ms 2.5", "-x=HPCCOLL_RAISE_WINDOW=0.0025"),
        ("--no-stall-check", "-x=HPCCOLL_STALL_WARNING=0.0 -x=HPCCOLL_STALL_LIMIT=0.0"),
        ("--stall-check-warning-time-seconds 5", "-x=HPCCOLL_STALL_WARNING=5.0"),
        ("--log-level ERROR --timeline-filename t.json", "-x=HPCCOLL_VERBOSE=0 -x=HPCCOLL_TIMELINE=t.json"),
        ("--start-timeout 7 --cache-capacity 64", "-x=HPCCOLL_CACHE_CAPACITY=64 -x=HPCCOLL_START_TIMEOUT=7.0"),
    ],
)  # fmt: skip
def test_flags_become_options(given: str, becomes: str) -> None:
    words, notes = translated([*given.split(), "python", "train.py", "--np", "3"])
    assert words == ["run", *becomes.split(), "python", "train.py", "--np", "3"]
    assert not notes


def test_interfaces_and_ssh_options_reach_every_launcher() -> None:
    words, _ = translated("--network-interfaces eth0,eth1 -p 222 -i key python".split())
    for variable in ("OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include", "NCCL_SOCKET_IFNAME"):
        assert f"-x={variable}=eth0,eth1" in words
    for variable in ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args", "HYDRA_LAUNCHER_EXTRA_ARGS"):
        assert f"-x={variable}=-p 222 -i key" in words


def test_a_flag_without_effect_says_so() -> None:
    words, notes = translated("-np 2 --no-autotune --gloo python".split())
    assert words == ["run", "-np=2", "python"]
    assert [note.split(":")[0] for note in notes] == ["--gloo", "--no-autotune"]


@pytest.mark.parametrize("flag", ["--config-file c.yml", "--jsrun"])
def test_what_cannot_be_done_is_refused(flag: str) -> None:
    with pytest.raises(LaunchError, match=r"^horovodrun --[a-z-]+: .{20}"):
        translated([*f"-np 2 {flag}".split(), "python"])


@pytest.mark.timeout(120)
def test_a_job() -> None:
    program = "import hpccoll; w = hpccoll.init(); print(f'<{w.size} {w.base.settings.fusion_threshold}>', flush=True)"
    flags = "horovodrun -np 2 --verbose --fusion-threshold-mb 3".split()
    command = [sys.executable, "-m", "hpccoll", *flags, "python", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"<2 {3 << 20}>") == 2
    assert "this is `hpccoll run -np=2 -x=HPCCOLL_FUSION_THRESHOLD=3145728 python -c" in done.stderr
