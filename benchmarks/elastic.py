# SPDX-License-Identifier: Apache-2.0
"""Time from kill -9 of a rank to the survivors' next finished step, beside torchft and torchrun with Gloo.

    python benchmarks/elastic.py --runs 10                    # hpccoll alone
    python benchmarks/elastic.py --runs 10 --peers torchrun torchft

Three ranks on this machine train with 26 MB of state (float32), a step every 20 ms. In each run one rank kills itself,
another one each time. The figure of a run is the last of the survivors' times; a run without one counts as hung. The
runs of hpccoll and its peers alternate. torchft and torch are used where they can be imported.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ELEMENTS = 6_500_000
KILL_AT, STEPS, RANKS = 20, 60, 3
LIMIT = 120.0
"""Seconds of a run, after which it counts as hung."""
PORT = 29710


class Log:
    """What happened in a run: lines of JSON, written by all processes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, who: str, what: str) -> None:
        with open(self.path, "a") as file:  # short lines: each is one write
            file.write(json.dumps([time.time(), who, what]) + "\n")

    def recovery(self) -> float | None:
        """Seconds until the last survivor had finished a step; None: not all have."""
        events = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        killed = next((at for at, _, what in events if what == "kill"), None)
        if killed is None:
            return None
        dead = next(who for _, who, what in events if what == "kill")
        first: dict[str, float] = {}
        for at, who, what in events:
            if at > killed and what == "recovered" and who != dead:
                first.setdefault(who, at - killed)
        return max(first.values()) if len(first) >= RANKS - 1 else None


# ---- the programs that run ------------------------------------------------------------------------


def train_hpccoll(log: Log, victim: int) -> None:
    import numpy as np

    import hpccoll
    from hpccoll import elastic

    state = elastic.ArrayState(weights=np.zeros(ELEMENTS, np.float32), step=0)
    generation = 0
    gradient, total = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        nonlocal generation
        generation += 1
        while state.step < STEPS:
            if state.step == KILL_AT and hpccoll.rank() == victim and hpccoll.size() == RANKS and generation == 1:
                log.add(str(os.getpid()), "kill")
                os.kill(os.getpid(), signal.SIGKILL)
            hpccoll.allreduce(gradient, hpccoll.AVERAGE, name="gradient", out=total)
            state.weights += total
            state.step += 1
            if generation == 2:
                log.add(str(os.getpid()), "recovered")
            state.commit()
            time.sleep(0.02)

    train(state)


def train_torchrun(log: Log, victim: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    restart, rank = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), dist.get_rank()
    weights = torch.zeros(ELEMENTS)
    dist.broadcast(weights, 0)
    for step in range(STEPS):
        if step == KILL_AT and rank == victim and not restart:
            log.add("victim", "kill")
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = torch.ones(ELEMENTS)
        dist.all_reduce(gradient)
        weights += gradient / dist.get_world_size()
        if restart:
            log.add(str(rank), "recovered")
        time.sleep(0.02)
    dist.destroy_process_group()


def train_torchft(log: Log, victim: int) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    me = int(os.environ["REPLICA"])
    port = PORT + 10 + me
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    store = dist.TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False)  # noqa: F841 - it serves
    model = torch.nn.Linear(2548, 2550)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)), min_replica_size=1, rank=0, world_size=1,
        load_state_dict=lambda s: (model.load_state_dict(s["m"]), optimizer.load_state_dict(s["o"])),
        state_dict=lambda: {"m": model.state_dict(), "o": optimizer.state_dict()},
        replica_id=f"r{me}", timeout=timedelta(seconds=20), store_addr="127.0.0.1", store_port=port,
    )  # fmt: skip
    parallel, wrapped, killed = DistributedDataParallel(manager, model), Optimizer(manager, optimizer), False
    while manager.current_step() < STEPS:
        if manager.current_step() == KILL_AT and me == victim:
            log.add(f"r{me}", "kill")
            os.kill(os.getpid(), signal.SIGKILL)
        wrapped.zero_grad()
        parallel(torch.randn(8, 2548)).sum().backward()
        wrapped.step()
        killed = killed or (manager.current_step() > KILL_AT and manager.num_participants() == RANKS - 1)
        if killed:
            log.add(f"r{me}", "recovered")
        time.sleep(0.02)
    manager.shutdown()


def serve_torchft(_log: Log, _victim: int) -> None:
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind=f"[::]:{PORT}", min_replicas=1, join_timeout_ms=100, quorum_tick_ms=50,
                              heartbeat_timeout_ms=5000)  # fmt: skip
    time.sleep(LIMIT)
    del server


# ---- runs -------------------------------------------------------------------------------------------


def commands(kind: str, role: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """The commands of a run, with variables; the last ones end it."""
    python = [sys.executable, "-P"]
    if kind == "hpccoll":
        return [([*python, "-m", "hpccoll", "run", "-np", str(RANKS), "--min-np", "2", *python, *role], {})]
    if kind == "torchrun":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3",
                    "--nproc-per-node", str(RANKS), "--monitor-interval", "0.1"]  # fmt: skip
        return [([*launcher, *role], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})]  # shared, it holds stale addresses
    where = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{PORT}"}
    serve = [*python, role[0], "--role", "lighthouse", *role[3:]]
    return [(serve, {}), *(([*python, *role], {**where, "REPLICA": str(n)}) for n in range(RANKS))]


def measure(kind: str, victim: int) -> float | None:
    """One run."""
    with tempfile.TemporaryDirectory() as folder:
        log = Log(f"{folder}/log")
        Path(log.path).touch()
        role = [__file__, "--role", kind, "--events-file", log.path, "--victim", str(victim)]
        variables = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_VERBOSE": "0", "OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(argv, env={**variables, **more}, start_new_session=True, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
            for argv, more in commands(kind, role)
        ]  # fmt: skip
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit and log.recovery() is None and started[-1].poll() is None:
            time.sleep(0.2)
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGTERM if kind != "torchft" else signal.SIGKILL)
                process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                process.kill()
        return log.recovery()


ROLES = {
    "hpccoll": train_hpccoll,
    "torchrun": train_torchrun,
    "torchft": train_torchft,
    "lighthouse": serve_torchft,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--peers", nargs="*", default=[], choices=("torchrun", "torchft"))
    parser.add_argument("--role", choices=tuple(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--events-file", help=argparse.SUPPRESS)
    parser.add_argument("--victim", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role:
        ROLES[chosen.role](Log(chosen.events_file), chosen.victim)
        return
    times: dict[str, list[float | None]] = {kind: [] for kind in ("hpccoll", *chosen.peers)}
    for run in range(chosen.runs):
        for kind, found in times.items():
            found.append(measure(kind, run % RANKS))
            print(f"run {run}: {kind}: {'hung' if found[-1] is None else f'{found[-1]:.3f} s'}", flush=True)
    for kind, found in times.items():
        ended = sorted(t for t in found if t is not None)
        median = f"median {statistics.median(ended):.3f} s, worst {ended[-1]:.3f} s" if ended else "none recovered"
        print(f"{kind}: {len(ended)} of {len(found)} runs recovered; {median}")


if __name__ == "__main__":
    main()
