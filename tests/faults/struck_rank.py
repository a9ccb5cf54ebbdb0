# SPDX-License-Identifier: Apache-2.0
"""The program of every rank of a job with a planted fault; FAULT in the environment has the row of the table.

Each rank keeps files in the folder FAULT_IN: its pid, its stderr, the time and the text of an exception. The victim
writes down the time, then causes its own fault, at the point that the row names.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROW = json.loads(os.environ["FAULT"])
FOLDER = Path(os.environ["FAULT_IN"])
NUMBERS = ("FAULT_RANK", "OMPI_COMM_WORLD_RANK", "_HPCCOLL_WORKER")
RANK = next(int(os.environ[name]) for name in NUMBERS if name in os.environ)
SIZE, VICTIM = ROW["size"], ROW["victim"]
HIT = RANK == VICTIM or ROW["who"] == "all"
BIG = 4_000_000  # elements of an operation that takes long enough to be struck in its midst

(FOLDER / f"pid.{RANK}").write_text(str(os.getpid()))
os.dup2(os.open(FOLDER / f"err.{RANK}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)

import hpccoll.elastic  # noqa: E402 - its warnings go to the diary, too
from hpccoll import _core  # noqa: E402
from hpccoll.rendezvous import MpiRendezvous, StoreRendezvous  # noqa: E402

# ---- what is done to the victim ----------------------------------------------------------------------


def kill_with(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def raise_an_error() -> None:
    raise RuntimeError("planted")


STRIKES: dict[str, Callable[[], object]] = {
    "kill -9": kill_with(signal.SIGKILL),
    "kill -TERM": kill_with(signal.SIGTERM),
    "stop": kill_with(signal.SIGSTOP),
    "exception": raise_an_error,
    "sys.exit": lambda: sys.exit(5),
    "os._exit": lambda: os._exit(3),
    "return": lambda: sys.exit(),
    "elsewhere": lambda: (time.sleep(20), sys.exit(4)),
}


def strike() -> None:
    (FOLDER / "struck").write_text(str(time.time()))
    STRIKES[ROW["what"]]()


def strike_after(seconds: float) -> None:
    """Cause the fault from a thread, while the main thread is in a call."""
    threading.Thread(target=lambda: (time.sleep(seconds), strike()), daemon=True).start()


# ---- when --------------------------------------------------------------------------------------------


def ask(name: str = "after") -> None:
    hpccoll.allreduce(np.ones(10), name=name)


def in_init(step: int) -> None:
    """The victim fails before its exchange number `step` of init(); the others wait for it there."""
    for kind in (MpiRendezvous, StoreRendezvous):
        whole, done = kind.compare, iter(range(1000))

        def counted(self, *values, whole=whole, done=done, **more):
            if next(done) == step and HIT:
                strike()
            return whole(self, *values, **more)

        kind.compare = counted


def before(method: str, call: int) -> None:
    """The victim fails before its call number `call` of a method of MpiRendezvous."""
    whole, done = getattr(MpiRendezvous, method), iter(range(1000))

    def counted(self, *values):
        if next(done) == call and HIT:
            strike()
        return whole(self, *values)

    setattr(MpiRendezvous, method, counted)


def idle() -> None:
    """Nothing is in flight when the victim fails; the others make a request later."""
    if HIT:
        strike()
    time.sleep(1)
    ask()


def agreement() -> None:
    """The others have made a request, the victim has not."""
    if HIT:
        time.sleep(0.5)
        strike()
    ask()


def transfer() -> None:
    """All ranks are in the middle of large sums."""
    if HIT:
        strike_after(0.5)
    x = np.ones(BIG, np.float32)
    while True:
        hpccoll.allreduce(x, name="large", out=x)
        x[:] = 1


def p2p() -> None:
    """The others wait for a message of the victim."""
    if HIT:
        time.sleep(0.5)
        strike()
    hpccoll.recv(np.ones(10), VICTIM)


def p2p_transfer() -> None:
    """The victim fails while it receives messages of 16 MB from each of the others."""
    if HIT:
        strike_after(0.5)
    sources = [r for r in range(SIZE) if r != VICTIM]
    x = np.ones(BIG, np.float32)
    while True:
        for r in sources if HIT else [VICTIM]:
            (hpccoll.recv if HIT else hpccoll.send)(x, r)


def join() -> None:
    """The others have joined."""
    if HIT:
        time.sleep(0.5)
        strike()
    hpccoll.join()


def subset() -> None:
    """The others make a process set."""
    if HIT:
        time.sleep(0.5)
        strike()
    hpccoll.world().subset([0, 1])


def shutdown() -> None:
    """The others have called shutdown()."""
    if HIT:
        time.sleep(0.5)
        strike()
    hpccoll.shutdown()


def unwaited() -> None:
    """An operation is in flight for which the others never wait; they only call shutdown()."""
    if HIT:
        time.sleep(0.5)
        strike()
    handle = hpccoll.allreduce_async(np.ones(10), name="unwaited")
    time.sleep(1)
    hpccoll.shutdown()
    assert handle is not None


def exit_() -> None:
    """The same, and the program simply ends."""
    if HIT:
        time.sleep(0.5)
        strike()
    hpccoll.allreduce_async(np.ones(10), name="unwaited")


def sets() -> None:
    """All ranks make process sets until shared memory runs out; the World goes on, then all ranks end."""
    try:
        made = [hpccoll.world().subset([0, 1, 2]) for _ in range(60)]
        raise AssertionError(f"{len(made)} process sets were made")
    except hpccoll.HpccollError:
        ask()  # fails, and another error is raised, if the World does not go on
        raise


def gathering() -> None:
    """The victim has no memory for the others' data; the World goes on, then all ranks end."""
    x = np.ones(BIG)
    hpccoll.barrier()
    if HIT:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        leave = x.nbytes // 2
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + leave, -1))
        (FOLDER / "struck").write_text(str(time.time()))
    try:
        hpccoll.allgather(x, name="big")
    except hpccoll.OutOfMemoryError:
        ask()  # fails, and another error is raised, if the World does not go on
        hpccoll.shutdown()
        raise


@hpccoll.elastic.run
def train(_state: hpccoll.elastic.State) -> None:
    (FOLDER / f"ready.{RANK}").touch()
    while not hpccoll.allreduce(float((FOLDER / "orphaned").exists()), hpccoll.MIN):
        time.sleep(0.01)
    for _ in range(100):
        ask()
    if HIT:
        time.sleep(0.5)
        strike()
    ask()


def without_launcher() -> None:
    """The launcher of an elastic job has died and the ranks have gone on; then the victim fails."""
    train(hpccoll.elastic.ArrayState(x=np.zeros(1)))


def busy() -> None:
    """All ranks work until they are ended: the launcher has the fault."""
    (FOLDER / f"ready.{RANK}").touch()
    while True:
        ask()


WHEN: dict[str, Callable[[], None]] = {
    "idle": idle,
    "agreement": agreement,
    "gathering": gathering,
    "sets": sets,
    "busy": busy,
    "transfer": transfer,
    "without launcher": without_launcher,
    "p2p": p2p,
    "p2p transfer": p2p_transfer,
    "join": join,
    "subset": subset,
    "shutdown": shutdown,
    "shutdown, unwaited": unwaited,
    "exit, unwaited": exit_,
}

# ---- wrong surroundings ---------------------------------------------------------------------------------


def pretend_another_version() -> None:
    _core.VERSION = "0.0.9"


# ---- the job ----------------------------------------------------------------------------------------------


def meet_others() -> None:
    """Let survivors end together: when the first one ends, mpirun may kill the others before they print."""
    limit = time.monotonic() + 60
    while len(list(FOLDER.glob("said.*"))) < ROW["survivors"] and time.monotonic() < limit:
        time.sleep(0.02)


def make_world() -> None:
    step = ROW["when"].partition("init ")[2]
    if step.isdecimal():
        in_init(int(step))
    if ROW["what"] == "another version" and HIT:
        pretend_another_version()
    if ROW["what"] == "another knob" and HIT:
        os.environ["HPCCOLL_FANOUT"] = "7"
    if step == "hello":
        import mpi4py.MPI  # noqa: F401 - MPI_Init is behind all ranks
    if step in ("hello", "mpi") and HIT:
        strike()
    if step == "duplicate":
        before("duplicate", 0)
    if step == "net":
        before("duplicate", 1)
    if ROW["by"] == "store":
        from file_store import FileStore

        limit = float(os.environ.get("HPCCOLL_START_TIMEOUT", "60"))
        hpccoll.init(rendezvous=StoreRendezvous(RANK, SIZE, FileStore(str(FOLDER)), timeout=limit))
    else:
        hpccoll.init()


def run() -> None:
    make_world()
    ask("warm")
    WHEN[ROW["when"]]()


try:
    run()
except BaseException as error:
    (FOLDER / f"said.{RANK}").write_text(f"{time.time()} {type(error).__name__}: {error}")
    if ROW["by"] != "store" and not HIT:
        meet_others()
    raise
