# SPDX-License-Identifier: Apache-2.0
"""The programs that elastic.py runs: a training of three ranks with hpccoll, torchrun and Gloo, and torchft."""

import itertools
import json
import os
import platform
import random
import resource
import signal
import statistics
import time
from pathlib import Path

ELEMENTS = 6_500_000
"""Elements of the state, float32: 26 MB."""
KILL_AT, STEPS, RANKS = 20, 60, 3
MOST_STEPS = 3000
"""Steps after which a run ends that waits for a new rank."""
PAUSE = 0.02
"""Seconds of a step's computation."""
STEADY_STEPS, STEADY_ROUNDS = 2, 400
"""Steps of a block, and the number of blocks of each kind."""
LIMIT = 120.0
"""Seconds of a run, after which it counts as hung."""
PORT = 29710


class Log:
    """The events of a run: lines of JSON, written by all processes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, who: str, what: str) -> None:
        with open(self.path, "a") as file:  # short lines: each is one write
            file.write(json.dumps([time.time(), who, what]) + "\n")

    def events(self) -> list[tuple[float, str, str]]:
        return [json.loads(line) for line in Path(self.path).read_text().splitlines()]

    def recovery(self) -> float | None:
        """Return the seconds until the last survivor had finished a step; None: not all have."""
        events = self.events()
        killed = next((at for at, _, what in events if what == "kill"), None)
        if killed is None:
            return None
        first: dict[str, float] = {}
        for at, who, what in events:
            if at > killed and what == "recovered":
                first.setdefault(who, at - killed)
        return max(first.values()) if len(first) >= RANKS - 1 else None

    def join_pause(self) -> float | None:
        """Return the seconds between the steps of an old rank before and after a join; None: no rank has joined."""
        longest = 0.0
        for who in {who for _, who, what in self.events() if what == "recovered"}:
            mine = [(at, what) for at, who_did, what in self.events() if who_did == who]
            for (before, was), (after, now) in itertools.pairwise(mine):
                if now == "joined" and was == "recovered":
                    longest = max(longest, after - before)
        return longest or None


def me() -> str:
    return f"{platform.node()}:{os.getpid()}"


def train_hpccoll(log: Log, victim: int, deed: str) -> None:
    """Let rank `victim` fail in step KILL_AT, or write a mark there; train until there are as many ranks as before."""
    import numpy as np

    import hpccoll
    from hpccoll import elastic

    state = elastic.ArrayState(weights=np.zeros(ELEMENTS, np.float32), step=0)
    generation = 0
    gradient, total = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)

    def strike() -> None:
        if deed == "mark" and hpccoll.rank() == 0:
            log.add(me(), "mark")
        elif deed in ("SIGKILL", "SIGSTOP") and hpccoll.rank() == victim:
            log.add(me(), "kill")
            os.kill(os.getpid(), getattr(signal, deed))

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        nonlocal generation
        generation += 1
        last = MOST_STEPS
        while state.step < last:
            if state.step == KILL_AT and generation == 1 and hpccoll.size() == RANKS:
                strike()
            hpccoll.allreduce(gradient, hpccoll.AVERAGE, name="gradient", out=total)
            state.weights += total
            state.step += 1
            if generation == 2 and hpccoll.size() < RANKS:
                log.add(me(), "recovered")
            elif generation > 2 and last == MOST_STEPS:
                log.add(me(), "joined")
            if hpccoll.size() == RANKS and state.step > STEPS:
                last = state.step
            state.commit()
            time.sleep(PAUSE)

    train(state)


def steady_hpccoll(log: Log, _victim: int, _deed: str) -> None:
    """Run short blocks of steps: plain, with a commit, with the same copy by NumPy; their order changes."""
    import numpy as np

    import hpccoll
    from hpccoll import elastic

    state = elastic.ArrayState(weights=np.zeros(ELEMENTS, np.float32), step=0)
    gradient, total = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)
    by_hand = state.weights.copy()
    counted = ("messages_up", "messages_down", "net_sent_messages", "entries")
    after_step = {"plain": lambda: None, "commit": state.commit, "copy": lambda: np.copyto(by_hand, state.weights)}

    def block(kind: str) -> None:
        before, faults = hpccoll.world().stats(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(STEADY_STEPS):
            began = time.perf_counter()
            hpccoll.allreduce(gradient, hpccoll.AVERAGE, name="gradient", out=total)
            time.sleep(PAUSE)
            copied = time.perf_counter()
            after_step[kind]()
            ended = time.perf_counter()
            times[kind].append(ended - began)
            copies[kind].append(ended - copied)
        after = hpccoll.world().stats()
        blocks[kind].append(statistics.fmean(times[kind][-STEADY_STEPS:]))
        messages[kind].append(sum(after[key] - before[key] for key in counted))
        page_faults[kind].append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)

    @elastic.run
    def train(_state: elastic.ArrayState) -> None:
        for number in range(STEADY_ROUNDS):
            for kind in random.Random(number).sample(sorted(after_step), len(after_step)):  # the same on all ranks
                block(kind)

    times, blocks, copies, messages, page_faults = ({kind: [] for kind in after_step} for _ in range(5))
    train(state)
    if hpccoll.rank() == 0:
        found = {
            "step": {kind: statistics.median(those) for kind, those in times.items()},
            "beside": sorted(a - b for a, b in zip(blocks["commit"], blocks["copy"], strict=True)),
            "copy": {kind: statistics.median(those) for kind, those in copies.items()},
            "messages": {kind: sorted(set(those[1:])) for kind, those in messages.items()},
            "page faults": {kind: statistics.median(those) for kind, those in page_faults.items()},
        }
        log.add(me(), "steady " + json.dumps(found))


def train_torchrun(log: Log, victim: int, _deed: str) -> None:
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


def train_torchft(log: Log, victim: int, _deed: str) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    me = int(os.environ["REPLICA"])
    port = PORT + 10 + me
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    store = dist.TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False)  # noqa: F841 - it must stay alive
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


def serve_torchft(_log: Log, _victim: int, _deed: str) -> None:
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind=f"[::]:{PORT}", min_replicas=1, join_timeout_ms=100, quorum_tick_ms=50,
                              heartbeat_timeout_ms=5000)  # fmt: skip
    time.sleep(LIMIT)
    del server


ROLES = {
    "hpccoll": train_hpccoll,
    "steady": steady_hpccoll,
    "torchrun": train_torchrun,
    "torchft": train_torchft,
    "lighthouse": serve_torchft,
}
