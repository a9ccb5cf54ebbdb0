# SPDX-License-Identifier: Apache-2.0
"""Runs elastic jobs, and checks what they have committed against the same steps without interruption."""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

HERE = Path(__file__).parent
SCHEDULE = "HPCCOLL_DETERMINISTIC"


@dataclass
class Ran:
    status: int
    output: str
    log: list[Any]
    weights: bytes
    size: int

    @property
    def sizes(self) -> list[int]:
        """The number of ranks, each time it changed."""
        sizes = [len(took) for _, took in self.log]
        return [size for at, size in enumerate(sizes) if not at or size != sizes[at - 1]]


def launch(
    *arguments: str, limit: float = 100, stderr: int | IO[str] = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", f"--timeout={limit:g}", *arguments]
    environment = {**os.environ, "HPCCOLL_TRACE_DIR": "none", "HPCCOLL_CHECK": "0", **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr}
    return subprocess.run(command, env=environment, **pipes, text=True, timeout=limit + 30, check=False)


def run(folder: Path, plan: list[list[Any]], *arguments: str, words: tuple[str, ...] = (), **others: Any) -> Ran:
    """Run the stepping program under a plan."""
    (folder / "plan.json").write_text(json.dumps(plan))
    program = [sys.executable, "-P", str(HERE / "stepping.py"), *words]
    done = launch(*arguments, *program, **{SCHEDULE: "1", "STEPPING": str(folder), **others})
    result = folder / "result.json"
    found = json.loads(result.read_text()) if result.exists() else {"log": [], "weights": "", "size": 0}
    output = done.stdout + (done.stderr or "")
    return Ran(done.returncode, output, found["log"], bytes.fromhex(found["weights"]), found["size"])


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Processes of the job that run() runs in a folder, on any host, with their words: this machine sees them all."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"STEPPING={folder}\0".encode() in (path / "environ").read_bytes():
                found.append((int(path.name), (path / "cmdline").read_text().replace("\0", " ")))
    return found


def check(ran: Ran, *, exact: bool = True, status: int = 0) -> None:
    """Every sample of each epoch once, and the weights of the same steps without interruption, bit for bit.

    :param exact: False where nodes have several ranks, whose sums are made first
    :param status: of the launcher
    """
    assert ran.status == status, ran.output
    stepping = _constants()
    for epoch in range(stepping["EPOCHS"]):
        taken = Counter(index for of, took in ran.log if of == epoch for batch in took for index in batch)
        assert taken == Counter(range(stepping["SAMPLES"])), (epoch, taken, ran.output)
    weights = np.zeros(stepping["SIZE"])
    for _, took in ran.log:
        total = None
        for batch in took:  # in the order of the ranks, as deterministic mode adds
            own = _gradient(batch, weights)
            total = own if total is None else total + own
        weights -= 0.01 * total
    if exact:
        assert weights.tobytes() == ran.weights, ran.output
    else:
        assert np.allclose(weights, np.frombuffer(ran.weights), rtol=1e-10, atol=0), ran.output


def _constants() -> dict[str, int]:
    line = next(line for line in (HERE / "stepping.py").read_text().splitlines() if line.startswith("SAMPLES, "))
    names, _, values = line.partition(" = ")
    return dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))


def _gradient(indices: list[int], weights: np.ndarray) -> np.ndarray:
    total = np.zeros_like(weights)
    for index in indices:
        total += np.random.default_rng(index).standard_normal(len(weights)) - weights / 7
    return total
