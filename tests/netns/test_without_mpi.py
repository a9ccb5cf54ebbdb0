# SPDX-License-Identifier: Apache-2.0
"""Jobs over hosts without MPI: ranks started over ssh, or by torchrun; data over UCX (cluster.sh; needs root)."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from namespaces import PROGRAMS, cluster, hosts_up, python

from hpccoll.tools.bench import files

pytestmark = pytest.mark.timeout(300)
CLUSTER = Path(__file__).with_name("cluster.sh")
FOLDER = Path(tempfile.gettempdir(), "hpccoll-cluster")


@pytest.fixture(scope="module", autouse=True)
def hosts(uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None]) -> Iterator[None]:
    needs(*PROGRAMS)
    with hosts_up(2, uncounted):
        yield


@pytest.fixture(scope="module")
def no_mpi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH that makes mpi4py one that cannot be imported."""
    folder = tmp_path_factory.mktemp("no_mpi")
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')\n")
    return str(folder)


def path(folder: str) -> str:
    return ":".join([folder, str(Path(__file__).parents[2])])


def job(
    no_mpi: str, hosts: str, *program: str, config: Path = FOLDER / "ssh" / "config", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """A program, as the text of Python or as a file and its arguments, on two hosts."""
    options = f"--launcher-options=-F {config}"
    command = ["-P", "-m", "hpccoll", "run", "--launcher", "ssh", options, "-H", hosts, "--timeout", 100]
    words = program if len(program) > 1 else ["-c", *program]
    return python("h1", *command, sys.executable, "-P", *words, PYTHONPATH=path(no_mpi), **variables)


SUMS = """
import contextlib, sys, os, platform, numpy, hpccoll
hpccoll.init()
p, r = hpccoll.size(), hpccoll.rank()
for n in (1, 1000, 2_000_000):
    x = numpy.arange(n, dtype=numpy.float32) % 1000 + r
    assert (hpccoll.allreduce(x) == p * (x - r) + p * (p - 1) // 2).all()
assert (hpccoll.allgather(numpy.full(r, r)) == numpy.repeat(numpy.arange(p), numpy.arange(p))).all()
assert "mpi4py" not in sys.modules
secret = os.environ["HPCCOLL_SECRET"]
seen = []
for pid in {*filter(str.isdecimal, os.listdir("/proc"))} - {str(os.getpid())}:
    with contextlib.suppress(OSError):  # a process may end meanwhile
        seen.append(open(f"/proc/{pid}/cmdline").read())
assert secret and not any(secret in words for words in seen)
sys.stdout.write(f"rank {r} {platform.node()} {hpccoll.local_size()}\\n")  # at once: two ranks share a connection
hpccoll.shutdown()
"""


def test_ranks_over_ssh(no_mpi: str) -> None:
    """The secret is in no argument, on either host; UCX takes the interface that leads to the other host."""
    done = job(no_mpi, "h1:2,h2:1", SUMS)
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"rank (\d) (h\d) (\d)", done.stdout)) == [
        ("0", "h1", "2"),
        ("1", "h1", "2"),
        ("2", "h2", "1"),
    ], done.stdout
    assert re.search(r"between nodes UCX 1\.\S+ \(\S+\) on tcp/eth0 \(chosen by HPCCOLL_NET=auto", done.stdout)
    assert "authenticated by HPCCOLL_SECRET" in done.stdout


def test_a_host_whose_name_only_ssh_knows(no_mpi: str, tmp_path: Path) -> None:
    """Its address is in ssh's configuration alone: its ranks reach the store all the same."""
    alias = f"Host hidden\n  HostName 10.78.0.12\n  User root\n  IdentityFile {FOLDER}/ssh/id\n"
    own = tmp_path / "config"
    own.write_text(f"{alias}  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n")
    done = job(no_mpi, "h1:1,hidden:1", SUMS, config=own)
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"rank (\d) (h\d)", done.stdout)) == [("0", "h1"), ("1", "h2")], done.stdout


def test_clocks_of_two_hosts_are_synchronised(no_mpi: str, tmp_path: Path) -> None:
    """Round trips over the wire bound the error; namespaces share one clock, so that the drift is error alone."""
    file = tmp_path / "a.h5"
    words = (
        "bench",
        "allreduce",
        "--sizes",
        "8,64K",
        "--synchronise",
        "clocks",
        "--oversubscribed",
        "--seconds",
        "0.05",
    )
    done = job(no_mpi, "h1:1,h2:1", "-m", "hpccoll", *words, "--least", "6", "--most", "12", "--out", str(file))
    assert done.returncode == 0, done.stdout
    cases = files.read(file).cases.values()
    assert len(cases) == 6  # two sizes, out of place, in place and beside memcpy
    for case in cases:
        assert case.facts["clock error"] > 0 and case.facts["clock drift"] <= 2 * case.facts["clock error"], case.facts


KILLED = """
import os, signal, numpy, hpccoll
hpccoll.init()
hpccoll.allreduce(numpy.ones(10))
if hpccoll.rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
hpccoll.allreduce(numpy.ones(1000), name="after")
"""


def test_a_killed_rank_is_named_and_the_job_ends(no_mpi: str) -> None:
    """Its connection or its launcher tells the other host, whichever is first, long before its silence would."""
    done = job(no_mpi, "h1:2,h2:1", KILLED, HPCCOLL_PEER_TIMEOUT="80")
    assert done.returncode not in (0, 124), done.stdout
    heard = r"(its connection ended \(UCX: |its process is gone, its launcher says)"
    assert re.search(rf"PeerLostError: rank 2 \(host h2, pid \d+\) was lost: .*{heard}", done.stdout)
    assert re.search(r"hpccoll run: rank 2 \(host h2, pid \d+\) was killed by SIGKILL", done.stdout)


CUT = """
import time, numpy, hpccoll
hpccoll.init()
hpccoll.allreduce(numpy.ones(10))
print("cut now", flush=True)
while True:
    hpccoll.allreduce(numpy.ones(1000))
"""


@pytest.mark.slow
def test_a_cut_link_is_found_by_silence(no_mpi: str) -> None:
    """UCX does not notice it within minutes; the heartbeat does within its limit."""
    with subprocess.Popen(["sh", "-c", f"sleep 12; {Path(__file__).with_name('cluster.sh')} linkdown h2"]) as cutter:
        done = job(no_mpi, "h1:1,h2:1", CUT, HPCCOLL_PEER_TIMEOUT="4")
        cutter.wait()
    cluster("linkup", "h2")
    assert done.returncode not in (0, 124), done.stdout
    assert re.search(r"rank 1 \(host h2, pid \d+\) was lost: no sign of life for 4 s", done.stdout), done.stdout


def test_an_interface_that_is_not_there_is_one_error(no_mpi: str) -> None:
    done = job(no_mpi, "h1:1,h2:1", SUMS, HPCCOLL_INTERFACE="eth7")
    assert done.returncode not in (0, 124)
    assert (
        "rank 0: HPCCOLL_INTERFACE=eth7 is no interface of host h1 that is up; there are lo (127.0.0.1), eth0 ("
        in done.stdout
    )


def test_interfaces_without_a_route_are_named(no_mpi: str) -> None:
    """The loopback is up on both hosts, and leads from neither to the other."""
    done = job(no_mpi, "h1:1,h2:1", SUMS, HPCCOLL_INTERFACE="lo")
    assert done.returncode not in (0, 124)
    where = r"for a connection to rank [01] over tcp/lo \(is the interface right\? see HPCCOLL_INTERFACE\)"
    assert re.search(where, done.stdout), done.stdout


def test_an_interface_that_is_down_is_said_to_be_so(no_mpi: str) -> None:
    """It has an address, as another one has; the first rank without an interface names its host."""
    address = ("ip", "address", "add", "198.51.100.2/24", "dev", "down0")
    cluster("exec", "h2", "ip", "link", "add", "down0", "type", "veth", "peer", "name", "down1")
    try:
        cluster("exec", "h2", *address)
        setting = "import os, platform\nif platform.node() == 'h2': os.environ['HPCCOLL_INTERFACE'] = 'down0'\n"
        done = job(no_mpi, "h1:1,h2:1", setting + SUMS)
    finally:
        cluster("exec", "h2", "ip", "link", "del", "down0")
    assert done.returncode not in (0, 124)
    assert "rank 1: HPCCOLL_INTERFACE=down0 is no interface of host h2 that is up; there are " in done.stdout
    assert "down0 (198.51.100.2, down)" in done.stdout, done.stdout


VERIFIED = ("--epochs", "3", "--verify")
"""It trains again in one process, and compares the weights."""


@pytest.mark.slow
def test_an_example_trains_over_two_hosts(no_mpi: str) -> None:
    pytest.importorskip("sklearn")
    folder = Path(__file__).parents[2] / "examples" / "digits"
    done = job(f"{folder}:{no_mpi}", "h1:1,h2:1", str(folder / "train.py"), *VERIFIED, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout
    assert "on tcp/eth0" in done.stdout, done.stdout


DDP = """
import sys, torch, torch.distributed as dist, hpccoll.torch.distributed
dist.init_process_group("hpccoll")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 100))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    torch.manual_seed(10 * step + dist.get_rank())
    model(torch.randn(8, 1000)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
seen = [None] * dist.get_world_size()
dist.all_gather_object(seen, float(next(model.parameters()).sum()))
assert len(seen) == 4 and len(set(seen)) == 1 and "mpi4py" not in sys.modules
print("fine", dist.get_rank(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ddp_under_torchrun(no_mpi: str, tmp_path: Path) -> None:
    """Two hosts of two ranks: they meet in torchrun's store, and the gradients cross over UCX."""
    pytest.importorskip("torch")
    script = tmp_path / "ddp.py"
    script.write_text(DDP)

    def torchrun(host: str) -> "subprocess.Popen[str]":
        words = ["--nnodes", "2", "--node-rank", str(int(host[1]) - 1), "--nproc-per-node", "2"]
        words += ["--master-addr", "10.78.0.11", "--master-port", "29511", str(script)]
        command = [str(CLUSTER), "exec", host, "env", f"PYTHONPATH={path(no_mpi)}", "OMP_NUM_THREADS=1"]
        command += ["GLOO_SOCKET_IFNAME=eth0", sys.executable, "-m", "torch.distributed.run", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    running = [torchrun("h1"), torchrun("h2")]
    try:
        outputs = [one.communicate(timeout=200)[0] for one in running]
    finally:
        for one in running:
            one.kill()
    assert [one.returncode for one in running] == [0, 0], outputs
    assert sum(output.count("fine") for output in outputs) == 4, outputs
    assert "on tcp/eth0" in "".join(outputs), outputs
