# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine, without system services: munged, slurmctld, and a slurmd per node.

The nodes have the shape of the site generic-gpu (64 CPUs and 4 GPUs that are only configured), and separate host names
and /dev/shm folders. Otherwise Open MPI would find the segments of the "other" node, and a World would see one node.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
NODES = ("h1", "h2", "h3", "h4")
PROGRAMS = ("root", "slurmctld", "slurmd", "srun", "munged")
NOT_THE_BRIDGE = {
    "OMPI_MCA_btl_tcp_if_exclude": "127.0.0.0/8,10.78.0.0/24",
    "PRTE_MCA_prte_if_exclude": "10.78.0.0/24",
}
"""The bridge of another worker's hosts (tests/netns), which is not always there: no job may use its address."""
PLUGIN = "usr/lib/*-linux-gnu/pmix2/lib/libpmix.so"

CONFIGURATION = """
ClusterName=hpccoll
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job starts when its old credential has expired, which takes 120 s by default; so does a step's that a busy
# machine is too slow to launch
AuthInfo=socket={folder}/munge.sock,cred_expire=12
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TopologyPlugin=topology/tree
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=1,bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=60
MessageTimeout=30
KillWait=3
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
# nodes of other shapes, only to see whether a script could be scheduled: Slurm believes that it can switch them on
SuspendTime=86400
SuspendProgram=/bin/true
ResumeProgram=/bin/true
NodeName=f[1-64] CPUs=56 Sockets=1 CoresPerSocket=56 ThreadsPerCore=1 Gres=gpu:8 State=CLOUD
NodeName=p[1-64] CPUs=128 Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 Gres=gpu:4 Feature=gpu State=CLOUD
PartitionName=frontier Nodes=f[1-64] State=UP
PartitionName=perlmutter Nodes=p[1-64] State=UP
"""
SWITCHES = """
SwitchName=leaf1 Nodes=h[1-2]
SwitchName=leaf2 Nodes=h[3-4]
SwitchName=leaf3 Nodes=f[1-64],p[1-64]
SwitchName=core Switches=leaf[1-3]
"""
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=64 Boards=1 SocketsPerBoard=2 "
    "CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:4 State=UNKNOWN"
)
ON_NODE = """
hostname {name} && mount -t tmpfs tmpfs /dev/shm && mount --bind {folder}/hosts /etc/hosts &&
{{ mountpoint -q /sys/fs/cgroup || mount -t tmpfs cgroup /sys/fs/cgroup; }} &&
exec slurmd -N {name} -f {folder}/slurm.conf
"""


def missing() -> str:
    """Say which of the plugins that no PATH shows are not there; "" if all are."""
    return "" if list(Path("/").glob(PLUGIN)) else f"no /{PLUGIN}: apt-get install libpmix-dev slurm-wlm-basic-plugins"


def free_ports(count: int) -> list[int]:
    """Find ports that no process uses, outside of the range from which Linux chooses ports by itself."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports, found = [*range(10000, first), *range(last + 1, 65536)], []
    random.shuffle(ports)
    while len(found) < count:
        with contextlib.suppress(OSError), socket.create_server(("", port := ports.pop())):
            found.append(port)
    return found


def kill_node(pid_file: Path) -> None:
    """Kill a slurmd and everything else in its namespace."""
    if not pid_file.exists():
        return
    namespace = namespace_of(pid_file.read_text().strip())
    if namespace not in (None, namespace_of("self")):  # a stale file must not kill this machine's processes
        while left := [p for p in Path("/proc").glob("[0-9]*") if namespace_of(p.name) == namespace]:
            for process in left:  # and again: what was being forked meanwhile
                kill(int(process.name), signal.SIGKILL)
            time.sleep(0.01)
    pid_file.unlink()


def namespace_of(pid: str) -> str | None:
    """Read the UTS namespace of a process, as each node has its own; None if the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/uts")
    except OSError:
        return None


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end(folder: Path) -> None:
    """End exactly the daemons that were started from this folder, and the processes that they have started."""
    for name in NODES:
        kill_node(folder / f"{name}.pid")
    pids = [int(file.read_text()) for name in ("slurmctld", "munge") if (file := folder / f"{name}.pid").exists()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            kill(pid, number)
        deadline = time.monotonic() + 2
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)


class Cluster:
    """Slurm's daemons, with all their files in `folder`, and the commands of users: sbatch, srun, scontrol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(1 + len(NODES))
        self.environment = os.environ | NOT_THE_BRIDGE | {"SLURM_CONF": str(folder / "slurm.conf")}

    # ---- daemons ---------------------------------------------------------------------------------

    def up(self) -> None:
        """Start everything and wait until all nodes are idle."""
        self.guard = subprocess.Popen(
            [sys.executable, __file__, self.folder], stdin=subprocess.PIPE, start_new_session=True
        )
        self.configure()
        munge = {
            "key-file": "key",
            "socket": "sock",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        self.run("munged", "--force", *(f"--{option}={self.folder}/munge.{end}" for option, end in munge.items()))
        self.run("slurmctld", "-c", "-f", self.folder / "slurm.conf")
        for name in NODES:
            self.start_node(name)
        self.wait_for("idle", *NODES)

    def configure(self) -> None:
        """Write the daemons' configuration."""
        nodes = "\n".join(NODE.format(name=name, port=port) for name, port in zip(NODES, self.ports[1:], strict=True))
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(
            host=host, folder=self.folder, nodes=nodes, port=self.ports[0], names=",".join(NODES)
        )
        names = "".join(f"\n127.0.0.1 {name}" for name in NODES)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "topology.conf").write_text(SWITCHES)
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-3]\n")
        for i in range(4):
            (self.folder / f"gpu{i}").touch()
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
        (self.folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}{names}\n")
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.folder.chmod(0o755)

    def set(self, **options: object) -> None:
        """Change lines of slurm.conf, and have the running daemons read it."""
        file = self.folder / "slurm.conf"
        text = file.read_text()
        for name, value in options.items():
            text, changed = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
            assert changed == 1, name
        file.write_text(text)
        self.run("scontrol", "reconfigure")

    def start_node(self, name: str) -> None:
        """Start a slurmd in separate namespaces."""
        script = ON_NODE.format(name=name, folder=self.folder)
        self.run("unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script)

    def crash_node(self, name: str) -> None:
        """Kill slurmd, its step daemons and the ranks at once, as a power failure would."""
        kill_node(self.folder / f"{name}.pid")

    def states(self) -> dict[str, str]:
        """Read the state of each node, as `idle`, `alloc` or `down`."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False)[1].splitlines()
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def wait_for(self, state: str, *names: str, timeout: float = 120) -> None:
        """Wait until these nodes are in a state."""
        deadline = time.monotonic() + timeout
        while any(self.states().get(name, "").rstrip("*") != state for name in names):
            if time.monotonic() > deadline:
                log = "".join((self.folder / f"{name}.log").read_text()[-1000:] for name in names)
                raise TimeoutError(f"not {state} after {timeout:g} s: {self.states()}\n{log}")
            time.sleep(0.1)

    def down(self) -> None:
        """End everything; the guard does so as well if this process is killed."""
        assert self.guard.stdin
        self.guard.stdin.close()
        self.guard.wait(120)

    # ---- jobs ------------------------------------------------------------------------------------

    def run(self, *command: object, check: bool = True, timeout: float = 140) -> tuple[int, str]:
        """Execute a command of Slurm in the project's root; return its status and its output."""
        words = [str(word) for word in command]
        with tempfile.TemporaryFile("w+") as printed:  # a daemon would hold a pipe open
            done = subprocess.run(
                words, cwd=ROOT, env=self.environment, stdout=printed, stderr=subprocess.STDOUT, timeout=timeout,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            printed.seek(0)
            output = printed.read()
        assert done.returncode == 0 or not check, f"{words}: {output}"
        return done.returncode, output

    def submit(self, *words: object) -> str:
        """Run `sbatch WORDS` and return the job's number; `output(number)` is the job's output."""
        return self.run("sbatch", "--parsable", "--output", self.folder / "job-%j.out", *words)[1].split()[-1]

    def jobs(self, number: str) -> list[dict[str, str]]:
        """Read what scontrol shows of a job, as {"JobState": "RUNNING", ...}; for an array, of each task."""
        lines = self.run("scontrol", "-o", "show", "job", number)[1].splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def wait(self, number: str, *states: str, timeout: float = 200) -> list[dict[str, str]]:
        """Wait until a job, or each task of an array, is in one of these states (default: has ended); see `jobs`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            jobs = self.jobs(number)
            if all(job["JobState"] in (states or ENDED) for job in jobs):
                return jobs
            time.sleep(0.1)
        raise TimeoutError(f"job {number} is {jobs}\n{self.output(number)}")

    def output(self, number: str) -> str:
        """Read what a job has printed so far."""
        file = self.folder / f"job-{number}.out"
        return file.read_text() if file.exists() else ""


if __name__ == "__main__":  # the guard: when the tests end in any way, their end of the pipe closes
    sys.stdin.read()
    end(Path(sys.argv[1]))
