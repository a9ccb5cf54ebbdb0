# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine: two nodes of four processors each, with a host name and a /dev/shm of their own.

Without those Open MPI would find the segments of the "other" node, and a World would see one node.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NODES = ("h1", "h2")
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare")
PLUGIN = "/usr/lib/*-linux-gnu/pmix2/lib/libpmix.so"
INSTALL = "apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev"

CONFIGURATION = """
ClusterName=hpccoll
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16917
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000 State=UNKNOWN"
)
ON_NODE = """
hostname {name} && mount -t tmpfs tmpfs /dev/shm && mount --bind {folder}/hosts /etc/hosts &&
{{ mountpoint -q /sys/fs/cgroup || mount -t tmpfs cgroup /sys/fs/cgroup; }} &&
exec slurmd -N {name} -f {folder}/slurm.conf
"""


def missing() -> str:
    """Why there can be no Slurm here, or nothing."""
    if os.geteuid() != 0:
        return "nodes with names of their own need root"
    if absent := [p for p in PROGRAMS if not shutil.which(p)]:
        return f"no {', '.join(absent)}: {INSTALL}"
    return "" if list(Path("/").glob(PLUGIN[1:])) else f"no {PLUGIN}: {INSTALL}"


def configure(folder: Path) -> None:
    nodes = "\n".join(NODE.format(name=name, port=17100 + i) for i, name in enumerate(NODES))
    text = CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=folder, nodes=nodes)
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
    (folder / "hosts").write_text(
        Path("/etc/hosts").read_text() + "".join(f"\n127.0.0.1 {n}" for n in NODES) + "\n"
    )
    for name in ("state", *NODES):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)


def start(folder: Path) -> None:
    paths = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = ["munged", "--force", *(f"--{option}={folder}/munge.{end}" for option, end in paths.items())]
    subprocess.run(munge, check=True, timeout=30)
    subprocess.run(["slurmctld", "-c", "-f", str(folder / "slurm.conf")], check=True, timeout=30)
    for name in NODES:
        script = ON_NODE.format(name=name, folder=folder)
        command = ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script]
        subprocess.run(command, check=True, timeout=30)
    deadline = time.monotonic() + 60
    while True:
        states = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%t"], capture_output=True, text=True, timeout=30
        ).stdout
        if states.split() == ["idle"] * len(NODES):
            return
        if time.monotonic() > deadline:
            pytest.fail(f"the nodes are {states.split()}\n{(folder / 'h1.log').read_text()}")
        time.sleep(0.1)


def stop(folder: Path) -> None:
    """End exactly the daemons that were started here."""
    pids = [
        int(f.read_text())
        for f in (*folder.glob("h*.pid"), *folder.glob("slurmctld.pid"), *folder.glob("munge.pid"))
    ]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, number)
        deadline = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running Slurm; SLURM_CONF points to it."""
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    folder.parent.chmod(0o755)
    configure(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            start(folder)
            yield folder
        finally:
            stop(folder)
