# SPDX-License-Identifier: Apache-2.0
"""Runs the job of a row of the table, and judges the end of each rank."""

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from table_of_faults import Fault

HERE = Path(__file__).parent
END = 120.0
"""Seconds that a job may take in addition to the bound of its row: the start, the end, a busy machine."""


@dataclasses.dataclass
class Outcome:
    """The outcome of a job."""

    struck: float
    """The time of the fault, in seconds since the epoch; without a fault the start of the job."""
    status: int | None
    """The exit status of the launcher; None: it had to be killed."""
    statuses: dict[int, int | None]
    """The exit status of each rank that was a child of this process; None: it had to be killed."""
    ended: dict[int, float]
    said: dict[int, str]
    """The text of each rank on stderr."""
    raised: dict[int, float]
    """The time at which a call raised."""

    def spoke(self, rank: int) -> float:
        """Return the time at which a survivor raised, or else ended."""
        return self.raised.get(rank, self.ended[rank])

    def told(self) -> str:
        """Return all texts, for a test that fails."""
        ends = {rank: round(at - self.struck, 1) for rank, at in self.ended.items()}
        parts = [f"launcher {self.status}, ranks {self.statuses}, ended after {ends} s"]
        return "\n".join(parts + [f"--- rank {rank}\n{text}" for rank, text in sorted(self.said.items())])


def run(fault: Fault, folder: Path) -> Outcome:
    """Run the job of a row until it has ended or was killed."""
    began = time.time()
    environment = {
        **os.environ,
        **{f"HPCCOLL_{name.upper()}": str(value) for name, value in fault.all_knobs().items()},
        "FAULT": json.dumps(fault.for_ranks()),
        "FAULT_IN": str(folder),
    }
    processes = STARTS[fault.by](fault, environment)
    try:
        ended = _watch(fault, processes, folder, began)
    finally:
        statuses = {key: one.poll() for key, one in processes.items()}
        _kill_all(processes, folder)
    file = folder / "struck"
    return Outcome(
        struck=float(file.read_text()) if file.exists() else began,
        status=statuses.pop("launcher", None),
        statuses={int(rank): status for rank, status in statuses.items()},
        ended=ended,
        said={int(one.suffix[1:]): one.read_text(errors="replace") for one in folder.glob("err.*")},
        raised={int(one.suffix[1:]): float(one.read_text().split()[0]) for one in folder.glob("said.*")},
    )


def _start_by_store(fault: Fault, environment: dict[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(HERE), str(HERE.parent / "api"), environment.get("PYTHONPATH")])
    )
    command = [sys.executable, str(HERE / "struck_rank.py")]
    with _dev_shm(fault.small_shm) as (within, files):
        return {
            str(rank): subprocess.Popen(
                [*within, *command], env=environment | {"FAULT_RANK": str(rank)}, pass_fds=files
            )
            for rank in range(fault.size)
        }


@contextlib.contextmanager
def _dev_shm(size: str) -> Iterator[tuple[list[str], list[int]]]:
    """Make a separate /dev/shm for ranks; give the command that starts a rank in it, and the files that it inherits."""
    if not size:
        yield [], []
        return
    script = f"mount -t tmpfs -o size={size} none /dev/shm && echo ready && read _"
    maker = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(maker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        namespace = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY)
        process.communicate("\n")
    try:
        yield ["nsenter", f"--mount=/proc/self/fd/{namespace}"], [namespace]
    finally:
        os.close(namespace)


def _start_by_hpccoll_run(fault: Fault, environment: dict[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", str(fault.size), "--nodes", fault.nodes]
    command += [sys.executable, str(HERE / "struck_rank.py")]
    return {"launcher": subprocess.Popen(command, env=environment, start_new_session=True)}


def _start_elastic(fault: Fault, environment: dict[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", str(fault.size), "--min-np", "2"]
    command += [sys.executable, str(HERE / "struck_rank.py")]
    return {"launcher": subprocess.Popen(command, env=environment, start_new_session=True)}


def _start_by_mpirun(fault: Fault, environment: dict[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    """Start Open MPI's mpirun, which must not end a job that has lost a rank: the survivors end by themselves."""
    run = [sys.executable, "-m", "hpccoll", "run", "-np", str(fault.size), "--nodes", fault.nodes]
    shown = subprocess.run([*run, "--show", "python"], capture_output=True, text=True, check=True).stdout
    command = shlex.split(shown)[:-1]
    command.insert(next(i for i, word in enumerate(command) if word.endswith("mpirun")) + 1, "--enable-recovery")
    if fault.who == "launcher":
        command.remove("--enable-recovery")
    command += [sys.executable, str(HERE / "struck_rank.py")]
    return {"launcher": subprocess.Popen(command, env=environment, start_new_session=True)}


STARTS = {
    "store": _start_by_store,
    "mpirun": _start_by_mpirun,
    "hpccoll run": _start_by_hpccoll_run,
    "elastic": _start_elastic,
}

# ---- until it has ended ------------------------------------------------------------------------------------


def _watch(fault: Fault, processes: dict[str, subprocess.Popen[bytes]], folder: Path, began: float) -> dict[int, float]:
    """Wait until all ranks that can end have ended, or until the limit; return the time at which each ended."""
    ended: dict[int, float] = {}
    survivors = set(fault.survivors())
    limit = time.time() + fault.bound + END
    while time.time() < limit:
        if fault.who == "launcher":
            _strike_launcher(fault.what, processes["launcher"], fault.size, folder / "struck")
        elif fault.when == "without launcher":
            _strike_launcher("kill -9", processes["launcher"], fault.size, folder / "orphaned")
        ended |= {rank: time.time() for rank in survivors - set(ended) if _has_ended(rank, processes, folder)}
        launcher = processes.get("launcher")
        if survivors <= set(ended) and (launcher is None or launcher.poll() is not None):
            break
        time.sleep(0.02)
    victim = processes.get(str(fault.victim))
    if victim and fault.what != "stop":
        victim.wait(max(1.0, limit - time.time()))
    return ended


def _has_ended(rank: int, processes: dict[str, subprocess.Popen[bytes]], folder: Path) -> bool:
    if str(rank) in processes:
        return processes[str(rank)].poll() is not None
    file = folder / f"pid.{rank}"
    return file.exists() and not _lives(int(file.read_text() or os.getpid()))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _strike_launcher(what: str, launcher: subprocess.Popen[bytes], size: int, mark: Path) -> None:
    """Cause the launcher's fault when all ranks are ready, and write down the time."""
    if len(list(mark.parent.glob("ready.*"))) == size and not mark.exists():
        mark.write_text(str(time.time()))
        launcher.send_signal({"kill -9": signal.SIGKILL, "kill -TERM": signal.SIGTERM}[what])


def _kill_all(processes: dict[str, subprocess.Popen[bytes]], folder: Path) -> None:
    """Kill the remaining processes of this job, by the ids that its ranks wrote down."""
    for one in processes.values():
        if one.poll() is None:
            one.kill()
        one.wait()
    for file in folder.glob("pid.*"):
        pid = int(file.read_text() or 0)
        environment = Path(f"/proc/{pid}/environ")
        try:
            if pid and str(folder).encode() in environment.read_bytes():  # no other process of the same number
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
