# SPDX-License-Identifier: Apache-2.0
"""How close is an allreduce between hosts to the limit of the wire? How fast are small calls, conjugate gradients?

    python benchmarks/hosts.py --hosts 2 4 --rate 1gbit
    python benchmarks/hosts.py --hosts 2 --nets mpi ucx
    python benchmarks/hosts.py --question cg --hosts 2
    python benchmarks/hosts.py --rate 100mbit --delay 200us

Hosts are network namespaces with links of a given rate (tests/netns/cluster.sh, which needs root); each has two
ranks. The floor is 2 (N - 1) / N of the bytes at the rate that iperf3 measures in the same run. With several nets
hpccoll is measured over each of them in turn. Links with a delay are those of tests/netns/wire.c.
"""

import argparse
import contextlib
import dataclasses
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from run import ROOT, Place, Result, arguments, ask_all, facts, merge, refuse_none, save, table

CLUSTER = ROOT / "tests" / "netns" / "cluster.sh"
ON_HOSTS = {  # every MPI uses TCP on the hosts' one link, and shared memory inside a host
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self,sm",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "HYDRA_IFACE": "eth0",
    "I_MPI_HYDRA_IFACE": "eth0",
    "I_MPI_FABRICS": "shm:ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "GLOO_SOCKET_IFNAME": "eth0",
    # The hosts share this machine's cores. A library sees one host and does not know that it has too few cores for all:
    # a rank that spins delays the others by a time slice, 4 ms, in a sum that takes 0.5 ms.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "HPCCOLL_WAIT": "yield",
}

QUESTIONS = {  # program: libraries asked, options
    "allreduce": (("hpccoll", "mpi"), ["--smallest", str(64 << 10), "--seconds", "2", "--most", "20"]),
    "small": (("hpccoll", "mpi"), ["--seconds", "0.3"]),
    "cg": (("hpccoll", "mpi"), ["--seconds", "0.3"]),
}


def cluster(*words: str) -> str:
    done = subprocess.run([CLUSTER, *words], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@contextlib.contextmanager
def hosts_up(hosts: int, rate: str, delay: str, burst: str = "") -> Iterator[None]:
    """Start hosts with links of a rate; with a `delay` such as "200us" they have that as well, and no `burst`."""
    cluster("up", str(hosts), *((rate, delay) if delay else ()))
    try:
        if not delay:
            cluster("shape", rate, *([burst] if burst else []))
        yield
    finally:
        cluster("down")


def place(hosts: int, ranks: int = 2) -> Place:
    """Return the place of so many ranks on each host, started from the first host."""
    exports = [word for line in cluster("env").splitlines() for word in shlex.split(line) if "=" in word]
    variables = {**ON_HOSTS, **dict(word.split("=", 1) for word in exports)}
    names = ",".join(f"h{i + 1}:{ranks}" for i in range(hosts))
    return Place(ranks * hosts, (str(CLUSTER), "exec", "h1"), names, tuple(variables.items()))


def bytes_per_second() -> float:
    """Measure the rate of TCP between two hosts."""
    command = [CLUSTER, "exec", "h2", "iperf3", "-s", "-1", "--forceflush"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            next(line for line in server.stdout if "listening" in line)  # an earlier client is refused
            report = json.loads(cluster("exec", "h1", "iperf3", "-c", "h2", "-t", "3", "-J"))
            server.communicate(timeout=10)
        finally:
            server.kill()
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8


def with_floor(cases: list[Result], hosts: int, rate: float) -> list[Result]:
    """Add the floor to the figures of each result that moves enough bytes to be bound by the wire."""
    for result in cases:
        on_wire = result["bytes"] / (2 if "FP16" in result["variant"] else 1)
        floor = 2 * (hosts - 1) / hosts * on_wire / rate
        if not floor:
            continue
        result["figures"] = {"floor us": floor * 1e6, "of the floor": floor / result["median"]}
    return cases


def ask_nets(question: str, libraries: Sequence[str], where: Place, options: argparse.Namespace) -> list[Result]:
    """Measure, in each round, hpccoll over each net and the other libraries once.

    :raises SystemExit: nothing was measured
    """
    answers: list[Result] = []
    for _ in range(options.rounds):
        for net in options.nets:
            others = options.libraries or libraries if net == options.nets[0] else ["hpccoll"]
            once = argparse.Namespace(**{**vars(options), "rounds": 1, "libraries": others})
            place = dataclasses.replace(where, variables=(*where.variables, ("HPCCOLL_NET", net)))
            print(f"{net}: {' '.join(others)}", file=sys.stderr, flush=True)
            for result in ask_all(question, others, place, once):
                if result["library"] == "hpccoll" and len(options.nets) > 1:
                    result["variant"] += f" {net}"
                answers.append(result)
    return refuse_none(question, merge(answers))


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rate", default="1gbit", help="of each link, as tc has it")
    parser.add_argument("--delay", default="", help="of each link: 200us, 1ms")
    parser.add_argument("--nets", nargs="+", default=["mpi"], help="HPCCOLL_NET of hpccoll: mpi, ucx")
    parser.add_argument("--question", choices=QUESTIONS, default="allreduce")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes of the largest array of `allreduce`")
    options = parser.parse_args()
    if min(options.hosts) < 2:
        parser.error(f"--hosts {min(options.hosts)}: the link between two hosts is measured first, so give 2 or more")
    libraries, options.passed_on = QUESTIONS[options.question]
    if options.question == "allreduce":
        options.passed_on = [*options.passed_on, "--largest", str(options.largest)]
    options.out = Path(options.out).resolve()
    with hosts_up(max(options.hosts), options.rate, options.delay):
        for hosts in options.hosts:
            where = place(hosts)
            rate = bytes_per_second()
            about = facts(options.question, where) | {
                "hosts": hosts,
                "link": f"{options.rate} {options.delay}".strip(),
                "iperf3 bytes/s": rate,
            }
            cases = with_floor(ask_nets(options.question, libraries, where, options), hosts, rate)
            print(f"\n{hosts} hosts, iperf3 {rate * 8 / 1e6:.0f} Mbit/s\n\n{table(cases)}", flush=True)
            save(f"{options.question}-{hosts}-hosts", cases, options.out, about)


if __name__ == "__main__":
    main()
