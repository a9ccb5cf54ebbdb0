# SPDX-License-Identifier: Apache-2.0
"""Does the model, fitted on 1 and 2 hosts, predict 4 and 8?

    python benchmarks/predicted.py --rate 100mbit
    python benchmarks/predicted.py --rate 1gbit --hosts 1 2 4
    python benchmarks/predicted.py --rate 100mbit --delay 1ms --hosts 1 2 3 4 6

Hosts are network namespaces with links of a given rate (tests/netns/cluster.sh, which needs root); each has two ranks.
All numbers of hosts are measured in turn, --launches times. The fitted hosts also act as two nodes each, because on
two nodes no message comes together with another. Clocks tell the start: ranks leave a barrier up to a delay apart. The
last table has the predictions for the numbers of hosts that were not fitted, and their errors. The exit status is 3 if
an error exceeds --within.

The links must be the limit, not this machine. The ranks share its cores, so they have a higher priority than other
programs, a control group with a large share, and time slices of 0.1 ms instead of some ms. The queue of a link is long
enough to lose nothing: real hardware makes a sender wait where `tc` drops packets of its own host.
"""

import argparse
import contextlib
import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hosts import ROOT, hosts_up, place

SLICE, NICE, SCHED_SETATTR = 100_000, -20, 314
"""Nanoseconds that a rank runs at a time, its priority, and the number of Linux's call on x86-64."""
SHARES = (("/sys/fs/cgroup/cpu", "cpu.shares", 262_144), ("/sys/fs/cgroup", "cpu.weight", 10_000))
"""Where control groups of processors are, version 1 and 2; the setting of a group's share, and its largest value."""
EMULATED, SMALL = 2, "8,1K"
"""Nodes that each of the fitted hosts also acts as, for the cost of messages that come together; sizes measured so."""
QUEUE = "1s"
BURST = "4kb"
"""With a larger burst, the first 256 KiB pass faster than the rate."""


def run_first() -> None:
    """Run this process and its children before others, in short slices (older kernels than 6.12 ignore the slice)."""
    size = struct.calcsize("IIQiIQQQ")
    attributes = struct.pack("IIQiIQQQ", size, os.SCHED_OTHER, 0, NICE, 0, SLICE, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine != "x86_64" or libc.syscall(SCHED_SETATTR, 0, attributes, 0):
        print("predicted.py: time slices stay as they are: other programs disturb small messages", file=sys.stderr)


@contextlib.contextmanager
def group_first() -> Iterator[None]:
    """Put this process and its children into a control group with a large share of the processors.

    Otherwise Linux may group processes by session (autogroup). Each host's sshd begins sessions, so ranks of different
    hosts would be in different groups: priorities would not count between groups, and a rank that yields would give its
    core to the ranks of its own host only.
    """
    found = [(Path(root), name, value) for root, name, value in SHARES if Path(root, "cpu.stat").exists()]
    if not found:
        print("predicted.py: no control group for processors: other programs disturb small messages", file=sys.stderr)
        yield
        return
    root, name, value = found[0]
    group = root / f"hpccoll-predicted-{os.getpid()}"
    group.mkdir()
    try:
        (group / name).write_text(str(value))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # a process of a host has not ended yet
            group.rmdir()


def measure(hosts: int, launch: int, sizes: str, seconds: float, out: Path, emulated: int = 1) -> Path:
    """Measure barriers and allreduces on `hosts` hosts.

    :param emulated: nodes of two ranks that each host acts as
    """
    where, file = place(hosts, 2 * emulated), out / f"predicted-{hosts}-hosts-{emulated}-{launch}.h5"
    variables = [f"{name}={value}" for name, value in dict(where.variables).items()]
    variables += ["HPCCOLL_WAIT=yield"]  # no rank sees that the hosts share cores, and auto would spin
    variables += [f"HPCCOLL_NODES={emulated}"] if emulated > 1 else []
    hpccoll = [sys.executable, "-P", "-m", "hpccoll"]
    bench = [
        "bench",
        "barrier",
        "allreduce",
        "--named",
        "--synchronise",
        "clocks",
        "--place",
        "in",
        "--sizes",
        sizes,
        "--seconds",
        str(seconds),
        "--least",
        "7",
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [*where.prefix, "env", *variables, f"PYTHONPATH={ROOT}", f"PATH={path}"]
    command += [*hpccoll, "run", "-H", where.hosts, "--timeout", "300", "--", *hpccoll, *bench]
    subprocess.run([*command, "--most", "20", "--oversubscribed", "--out", str(file)], check=True, timeout=400)
    return file


def model(*words: object) -> int:
    """Run `hpccoll model`; return its exit status."""
    command = [sys.executable, "-P", "-m", "hpccoll", "model", *map(str, words)]
    return subprocess.run(command, check=False, timeout=300).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--launches", type=int, default=6, help="of each number of hosts")
    parser.add_argument("--rate", default="100mbit", help="of each link, as tc has it")
    parser.add_argument("--delay", default="", help="of each link: 200us, 1ms (tests/netns/wire.c)")
    parser.add_argument("--sizes", default="8,64K,256K,1M,4M")
    parser.add_argument("--from-size", default="256K", help="the wire limits from this size on")
    parser.add_argument("--fitted", type=int, default=2, help="fit to so many hosts at most")
    parser.add_argument("--within", type=float, default=0.1, help="allowed error")
    parser.add_argument("--seconds", type=float, default=3, help="per case")
    parser.add_argument("--out", type=Path, default=Path("predicted"), help="folder for the files")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    run_first()
    os.environ["LATENCY"] = QUEUE
    with group_first(), hosts_up(max(options.hosts), options.rate, options.delay, BURST):
        measured = []
        for launch in range(options.launches):
            for hosts in options.hosts:
                file = measure(hosts, launch, options.sizes, options.seconds, out)
                measured.append((hosts, file))
            file = measure(options.fitted, launch, SMALL, options.seconds, out, EMULATED)
            measured.append((options.fitted, file))
    small = [file for hosts, file in measured if hosts <= options.fitted]
    more = [word for hosts, file in measured if hosts > options.fitted for word in ("--against", file)]
    status = model("fit", *small, "--out", out / "model.json")
    what = ("--from-size", options.from_size, "--within", options.within)
    return status or model("predict", out / "model.json", *more, *what)


if __name__ == "__main__":
    sys.exit(main())
