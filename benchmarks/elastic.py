# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of losses and joins in an elastic job against limits, beside torchft and torchrun with Gloo.

    python benchmarks/elastic.py --runs 10                                 # on this machine
    python benchmarks/elastic.py --runs 10 --peers torchrun torchft
    python benchmarks/elastic.py --runs 10 --cases hosts-kill hosts-crash hosts-cut hosts-stop    # needs root

Three ranks train with 26 MB of state (float32), a step every 20 ms. In each run a fault hits one rank, in the next run
another one. The result of a run is the longest time of a survivor from the fault to its next finished step; a run in
which a survivor finishes no step counts as hung. In the cases `hosts-...` each rank has its own host (network
namespaces, tests/netns/cluster.sh). The runs of all cases and peers alternate. torchft and torch are used if they can
be imported. The exit status is 1 if a result exceeds its limit.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elastic_roles import LIMIT, PORT, RANKS, ROLES, STEADY_STEPS, Log

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = ROOT / "tests" / "netns" / "cluster.sh"
SSH = Path(tempfile.gettempdir(), "hpccoll-cluster", "ssh", "config")
PEER_TIMEOUT = 5.0
"""HPCCOLL_PEER_TIMEOUT of an elastic job by default."""


@dataclass(frozen=True)
class Case:
    """A fault of a rank, and the time limit for the others."""

    deed: str
    median: float
    """Seconds."""
    worst: float
    hosts: bool = False
    by_driver: tuple[str, ...] = ()
    """The command of cluster.sh that causes a host's fault."""


CASES = {
    "kill": Case("SIGKILL", 0.5, 2.0),
    "stop": Case("SIGSTOP", PEER_TIMEOUT + 1, PEER_TIMEOUT + 1),
    "hosts-kill": Case("SIGKILL", 1.0, 3.0, hosts=True),
    "hosts-crash": Case("mark", 1.0, 3.0, hosts=True, by_driver=("crash",)),
    "hosts-cut": Case("mark", PEER_TIMEOUT + 1, PEER_TIMEOUT + 1, hosts=True, by_driver=("linkdown",)),
    "hosts-stop": Case("SIGSTOP", PEER_TIMEOUT + 1, PEER_TIMEOUT + 1, hosts=True),
}
JOIN = 1.0 + 26e6 / 1e9
"""Seconds by which a join may delay the others: one, and the time to send the state to the new rank."""
STEADIES = ("steady", "steady-alone")
"""For two ranks, and for one rank, which has a core for itself and waits for no other rank."""
STEADY = 0.01
"""Share of a plain step by which a step with a commit may be longer than one after which NumPy copies the state. A copy
costs more than its own time: the ranks copy at once, the slowest counts, and the next operation finds cold caches."""


@dataclass
class Found:
    """The runs of one case."""

    times: list[float | None] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Stopped processes that were still there afterwards."""


def cluster(*words: object) -> str:
    command = [str(CLUSTER), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@contextlib.contextmanager
def hosts_up() -> Iterator[None]:
    """Provide three hosts, new for each run, because a run may crash one. Wait for tests that use the hosts."""
    with Path(tempfile.gettempdir(), "hpccoll-cluster.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        cluster("down")
        cluster("up", RANKS)
        try:
            yield
        finally:
            cluster("down")


def on_hosts(command: list[str]) -> list[str]:
    """Return a command that runs the given one on the first host."""
    exports = [word for line in cluster("env").splitlines() for word in shlex.split(line) if "=" in word]
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    return [str(CLUSTER), "exec", "h1", "env", *exports, path, f"PYTHONPATH={ROOT}", *command]


def commands(kind: str, role: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """Return the commands of a run, with their variables; the run ends with the last ones."""
    python = [sys.executable, "-P"]
    program = [sys.executable]  # its folder is on the path
    if kind.startswith("steady"):
        ranks = "1" if kind == "steady-alone" else "2"
        return [([*python, "-m", "hpccoll", "run", "-np", ranks, "--min-np", ranks, *program, *role], {})]
    if kind in CASES:
        where = ["-np", str(RANKS), "--min-np", str(RANKS - 1)]
        if CASES[kind].hosts:
            names = ",".join(f"h{n + 1}:1" for n in range(RANKS))
            where = [f"--launcher-options=-F {SSH}", "-H", names, *where]
        command = [*python, "-m", "hpccoll", "run", *where, *program, *role]
        return [(on_hosts(command) if CASES[kind].hosts else command, {})]
    if kind == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3",
                    "--nproc-per-node", str(RANKS), "--monitor-interval", "0.1"]  # fmt: skip
        return [([*launcher, *role], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})]  # shared, it has stale addresses
    where_it_is = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{PORT}"}
    serve = [*program, role[0], "--role", "lighthouse", *role[3:]]
    return [(serve, {}), *(([*program, *role], {**where_it_is, "REPLICA": str(n)}) for n in range(RANKS))]


def measure(kind: str, victim: int, found: Found) -> None:
    """Make one run."""
    case = CASES.get(kind)
    with contextlib.ExitStack() as stack:
        if case and case.hosts:
            stack.enter_context(hosts_up())
        log = Log(f"{stack.enter_context(tempfile.TemporaryDirectory())}/log")
        Path(log.path).touch()
        part = kind if kind in ROLES else "hpccoll"
        deed = case.deed if case else ""
        role = [__file__, "--role", part, "--events-file", log.path, "--victim", str(victim), "--deed", deed]
        variables = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_VERBOSE": "0", "OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(argv, env={**variables, **more}, start_new_session=True, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
            for argv, more in commands(kind, role)
        ]  # fmt: skip
        watch(case, victim, log, started[-1])
        found.times.append(log.recovery())
        if pause := log.join_pause():
            found.joins.append(pause)
        if case and case.deed == "SIGSTOP":
            found.left += still_there(log, on_a_host=case.hosts)
        for process in started:
            end(process, signal.SIGKILL if kind == "torchft" else signal.SIGTERM)


def watch(case: Case | None, victim: int, log: Log, process: "subprocess.Popen[bytes]") -> None:
    """Cause the fault if this program has to, and wait until the run has all its results."""
    limit, struck = time.monotonic() + LIMIT, False
    while time.monotonic() < limit and process.poll() is None:
        if case and case.by_driver and not struck and any(what == "mark" for _, _, what in log.events()):
            struck = True
            log.add("driver", "kill")
            cluster(*case.by_driver, f"h{victim + 1 if victim else RANKS}")  # the launcher is on h1
        if log.recovery() is not None and (not case or case.by_driver or log.join_pause() is not None):
            return
        time.sleep(0.05 if case and case.by_driver and not struck else 0.2)


def end(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
        process.wait(15)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        process.kill()


def still_there(log: Log, *, on_a_host: bool) -> list[str]:
    """Return the stopped process, if it was not killed."""
    left = []
    for who in [who for _, who, what in log.events() if what == "kill"]:
        host, _, pid = who.rpartition(":")
        look = ["kill", "-0", pid]
        command = [str(CLUSTER), "exec", host, *look] if on_a_host else look
        if subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0:
            left.append(who)
    return left


def report(kind: str, found: Found) -> bool:
    """Print the results of a case; return whether they are within the limits."""
    ended = sorted(t for t in found.times if t is not None)
    line = f"{kind}: {len(ended)} of {len(found.times)} runs recovered"
    kept = len(ended) == len(found.times) and not found.left
    if ended:
        median = statistics.median(ended)
        line += f"; median {median:.3f} s, worst {ended[-1]:.3f} s"
        if case := CASES.get(kind):
            kept = kept and median <= case.median and ended[-1] <= case.worst
            line += f" (limits {case.median:g} s and {case.worst:g} s: {'kept' if kept else 'NOT KEPT'})"
    if found.left:
        line += f"; stopped and still there: {', '.join(found.left)}"
    if found.joins:
        line += f"; a join held the others up for {statistics.median(found.joins):.3f} s, {max(found.joins):.3f} s"
        line += f" at most (limit {JOIN:g} s)"
        kept = kept and max(found.joins) <= JOIN
    print(line)
    return kept or kind not in CASES


def steady(kind: str) -> bool:
    """Measure the cost of commits while no rank is lost or joins; return whether it is within the limits.

    A step varies by more than the limit, so the steps of a round are compared with each other: the result is the median
    of the rounds' differences, with its 95 % interval (order statistics).
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Log(f"{folder}/log")
        Path(log.path).touch()
        role = [__file__, "--role", "steady", "--events-file", log.path, "--victim", "0", "--deed", ""]
        ((argv, _),) = commands(kind, role)
        variables = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_VERBOSE": "0", "OMP_NUM_THREADS": "1"}
        subprocess.run(argv, env=variables, check=True, timeout=LIMIT)
        ((_, _, text),) = log.events()
    found = json.loads(text.removeprefix("steady "))
    step, copy, messages, faults = (found[key] for key in ("step", "copy", "messages", "page faults"))
    beside, same = [more / step["plain"] for more in found["beside"]], messages["commit"] == messages["plain"]
    share, away = statistics.median(beside), round(0.98 * len(beside) ** 0.5)
    low, high = (beside[len(beside) // 2 + sign * away] for sign in (-1, 1))
    print(
        f"{kind}: a step takes {step['plain'] * 1e3:.2f} ms, with the copy alone {step['copy'] * 1e3:.2f} ms (the copy "
        f"itself {copy['copy'] * 1e3:.2f} ms), with a commit {step['commit'] * 1e3:.2f} ms (the commit itself "
        f"{copy['commit'] * 1e3:.2f} ms): {share:+.1%} of a step beside the copy ({low:+.1%} to {high:+.1%}; limit "
        f"{STEADY:.0%}); messages of {STEADY_STEPS} steps {messages['plain']}, with them {messages['commit']}; page "
        f"faults {faults['plain']:g}, with the copy {faults['copy']:g}, with commits {faults['commit']:g}"
    )
    return bool(share <= STEADY and same)


def installed(peers: list[str]) -> list[str]:
    """Return the peers that can be imported, and name the others: their runs would count as hung."""
    modules = {"torchrun": "torch", "torchft": "torchft"}
    there = [peer for peer in peers if importlib.util.find_spec(modules[peer])]
    for peer in peers:
        if peer not in there:
            print(f"{peer} left out: {sys.executable} has no {modules[peer]}", file=sys.stderr, flush=True)
    return there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--peers", nargs="*", default=[], choices=("torchrun", "torchft"))
    parser.add_argument("--cases", nargs="*", default=["kill", "stop", "steady"], choices=(*CASES, *STEADIES))
    parser.add_argument("--role", choices=tuple(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--events-file", help=argparse.SUPPRESS)
    parser.add_argument("--victim", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--deed", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role:
        ROLES[chosen.role](Log(chosen.events_file), chosen.victim, chosen.deed)
        return
    all_found = {kind: Found() for kind in (*chosen.cases, *installed(chosen.peers)) if kind not in STEADIES}
    for run in range(chosen.runs):
        for kind, found in all_found.items():
            measure(kind, run % RANKS, found)
            last = found.times[-1]
            print(f"run {run}: {kind}: {'hung' if last is None else f'{last:.3f} s'}", flush=True)
    kept = [report(kind, found) for kind, found in all_found.items()]
    kept += [steady(kind) for kind in chosen.cases if kind in STEADIES]
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
