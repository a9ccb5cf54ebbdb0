# SPDX-License-Identifier: Apache-2.0
"""Measures the parts of the time from the loss of a rank to the survivors' next finished step.

    python benchmarks/elastic_parts.py --runs 20
    HPCCOLL_NODES=2 python benchmarks/elastic_parts.py --runs 20   # 2 + 1 ranks, then 1 + 1

Three ranks have 26 MB of state (float32), as in elastic.py; rank 1 is killed. The time of a part does not include parts
within it. The program prints the medians over all survivors of all runs, and each part's share.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ELEMENTS = 6_500_000
RANKS, VICTIM, KILL_AT, LATER = 3, 1, 8, 5
PAUSE = 0.02
LIMIT = 60.0
PARTS = {
    "notice": "from the kill to the error in the operation",
    "leave": "the old World is shut down",
    "restore": "the commit is copied back",
    "agree": "the launcher forms the next generation",
    "exchange": "the exchanges of the start, but for those of the next two rows",
    "segments": "shared memory of the node and the set: created, attached, unlinked",
    "segments, exchange": "the exchanges for that",
    "net": "the net is made (hosts only)",
    "loop": "the loop and the set are made",
    "sync": "versions are compared",
    "step": "an allreduce of 26 MB, and the sum, as in later steps",
    "first touch": "by how much the first step is longer than those",
    "rest": "all else",
}


class Clock:
    """Counts each moment for the innermost part."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PARTS, 0.0)
        self._inside = ["rest"]
        self._since = time.time()

    def _go_on(self) -> None:
        now = time.time()
        self.spent[self._inside[-1]] += now - self._since
        self._since = now

    def begin(self, kill: float) -> None:
        """Start the clock; the time since the kill counts for noticing it."""
        self.spent, self._since = dict.fromkeys(PARTS, 0.0), time.time()
        self.spent["notice"] = self._since - kill

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        within = f"{self._inside[-1]}, {name}"
        self._go_on()
        self._inside.append(within if within in PARTS else name)
        try:
            yield
        finally:
            self._go_on()
            self._inside.pop()

    def wrap(self, owner: Any, name: str, part: str) -> None:
        whole = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return whole(*args, **kwargs)

        setattr(owner, name, timed)


def train(folder: Path) -> None:
    """Run one rank."""
    import numpy as np

    import hpccoll
    from hpccoll import bootstrap, elastic
    from hpccoll.elastic import loop
    from hpccoll.rendezvous.coordinator import CoordinatedRendezvous, Coordinator

    clock = Clock()
    clock.wrap(Coordinator, "come", "agree")
    clock.wrap(CoordinatedRendezvous, "allgather", "exchange")
    clock.wrap(bootstrap._core, "node_control_segment", "segments")
    clock.wrap(bootstrap._core, "first_set_segment", "segments")
    clock.wrap(bootstrap, "_make_net", "net")
    clock.wrap(bootstrap._core, "Loop", "loop")
    clock.wrap(bootstrap._core, "Set", "loop")
    clock.wrap(elastic.ArrayState, "restore", "restore")
    clock.wrap(elastic.ArrayState, "synchronize", "sync")
    mend: Callable[..., None] = loop._Turns.mend

    def timed_mend(turns: Any, error: Exception) -> None:
        clock.begin(float((folder / "kill").read_text()))
        with clock.part("leave"):
            mend(turns, error)

    loop._Turns.mend = timed_mend
    state = elastic.ArrayState(weights=np.zeros(ELEMENTS, np.float32), step=0)
    gradient, total = np.ones(ELEMENTS, np.float32), np.empty(ELEMENTS, np.float32)

    def step() -> float:
        began = time.perf_counter()
        hpccoll.allreduce(gradient, hpccoll.AVERAGE, name="gradient", out=total)
        state.weights += total
        return time.perf_counter() - began

    @elastic.run
    def run(state: elastic.ArrayState) -> None:
        while True:
            if state.step == KILL_AT and hpccoll.size() == RANKS and hpccoll.rank() == VICTIM:
                (folder / "kill").write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            if hpccoll.size() < RANKS:
                with clock.part("step"):
                    step()
                usual = statistics.median(step() for _ in range(LATER))
                clock.spent["first touch"], clock.spent["step"] = clock.spent["step"] - usual, usual
                (folder / f"parts.{os.getpid()}").write_text(json.dumps(clock.spent))
                hpccoll.barrier()
                os._exit(0)
            step()
            state.step += 1
            state.commit()
            time.sleep(PAUSE)

    run(state)


def measure() -> list[dict[str, float]]:
    """Make one run.

    :raises SystemExit: no rank has survived it
    """
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "hpccoll", "run", "-np", str(RANKS), "--min-np", str(RANKS - 1), sys.executable, __file__]
        environment = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_VERBOSE": "0", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-P", *words, "--folder", folder], env=environment, timeout=LIMIT, check=False,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if not (found := [json.loads(file.read_text()) for file in Path(folder).glob("parts.*")]):
            sys.exit(f"{done.stderr}no rank has survived")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder:
        train(chosen.folder)
        return
    found = [spent for _ in range(chosen.runs) for spent in measure()]
    whole = statistics.median(sum(spent.values()) for spent in found)
    print(f"{len(found)} survivors of {chosen.runs} runs; from the kill to the next finished step {whole * 1e3:.1f} ms")
    for name, what in PARTS.items():
        middle = statistics.median(spent[name] for spent in found)
        print(f"{name:20} {middle * 1e3:7.2f} ms {middle / whole:6.1%}  {what}")


if __name__ == "__main__":
    main()
