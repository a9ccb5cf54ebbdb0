# SPDX-License-Identifier: Apache-2.0
"""The table of planted faults: the victim, the fault and its phase; the time in which survivors end, and their errors.

A row is one job. `bound` is the time in seconds from the fault until the last survivor has raised or ended. `says` is a
pattern that the stderr of every survivor matches; `status` is the exit status of every survivor, and `own` that of the
victim, if it ends by itself. The bounds are at least five times the times on a quiet machine.
"""

import dataclasses
from typing import Any

START = 20
"""Seconds of HPCCOLL_START_TIMEOUT where a rank is missing at the start."""
NODES = {"store": "3", "mpirun": "2+2", "hpccoll run": "2+2", "elastic": "3"}
ROLES = {
    "store": {"root": 0, "neighbour": 1, "all": None, "nobody": None},
    "mpirun": {"root": 0, "neighbour": 1, "leader": 2, "leaf": 3, "alone": 2, "all": None, "launcher": None},
    "hpccoll run": {"launcher": None},
    "elastic": {"launcher": None, "root": 0, "neighbour": 1},
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A row of the table."""

    who: str
    """root (rank 0), neighbour (on the root's node), leader and leaf (of the other node), alone (on its node), all."""
    what: str
    """The fault: a signal, a way to end, or a wrong environment."""
    when: str
    """The phase; `init 3`: before the fourth exchange of init()."""
    bound: float
    says: str
    status: int = 1
    own: int | None = None
    by: str = "store"
    """store: processes without a launcher, on one node; mpirun: Open MPI's, on two; hpccoll run: the same below it;
    elastic: `hpccoll run --min-np`, on one node."""
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    small_shm: str = ""
    """The size of a /dev/shm that only this job has, as mount takes it."""
    quick: bool = False
    """Part of `make test`."""

    @property
    def nodes(self) -> str:
        """The ranks of each node."""
        return "2+1" if self.who == "alone" else NODES[self.by]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(map(int, self.nodes.split("+")))

    @property
    def victim(self) -> int | None:
        """The rank with the fault."""
        return ROLES[self.by][self.who]

    @property
    def name(self) -> str:
        """The name of the test."""
        return f"{self.what}, {self.who}, {self.when}, {self.by}"

    def survivors(self) -> list[int]:
        """Return the ranks that are judged."""
        return [rank for rank in range(self.size) if rank != self.victim]

    def sentence(self) -> str:
        """Return the pattern, with the victim in it."""
        return self.says.replace("VICTIM", f"rank {self.victim}")

    def all_knobs(self) -> dict[str, Any]:
        """Return the knobs of the job."""
        start = {"start_timeout": START} if "init " in self.when else {}  # on a busy machine ranks come seconds apart
        silence = 10 if self.by == "mpirun" else 3  # on a busy machine a rank that lives is silent for seconds
        return {"stall_warning": 1, "peer_timeout": silence, "stop_timeout": 20} | start | self.knobs

    def for_ranks(self) -> dict[str, Any]:
        """The facts that its ranks need."""
        return {
            **{name: getattr(self, name) for name in ("who", "what", "when", "by", "size", "victim")},
            "survivors": len(self.survivors()),
        }


WHO = r"PeerLostError: VICTIM \(host [^ ]+, pid \d+\) was lost: "
GONE = WHO + "its process is gone"
STOPPED = WHO + r"it has been stopped \(state T\) for \d+ s"
LOST = WHO + "(its process is gone|no sign of life for 10 s)"
ABSENT = r"StartError: the World was not made: no word from VICTIM\b.* within \d+ s \(HPCCOLL_START_TIMEOUT\)"
ELSEWHERE = r"StartError: subset: not all ranks came within \d s \(HPCCOLL_START_TIMEOUT\): .*VICTIM \(host "
NO_SHM = r"StartError: rank 0: .*bytes but /dev/shm has only \d+ bytes left"
NO_MEMORY = r"OutOfMemoryError: .*VICTIM \(host [^ ]+, pid \d+\) has no memory for its result of \d+ bytes"
MPI = {"by": "mpirun"}
NO_MPI = r"MPI_Init has not returned after \d+ s \(HPCCOLL_START_TIMEOUT\): this process ends|MPI_INIT failed"
"""The first process that ends lets MPI_Init of Open MPI fail on the others."""
NO_LAUNCHER = r"StartError: the launcher of the job is gone \(.*\), so its ranks cannot change"
LEFT = "ShutDownError: the World has been shut down: VICTIM .*"

FAULTS = [
    # A killed process on the same node: the kernel knows at once.
    Fault("root", "kill -9", "idle", 10, GONE),
    Fault("neighbour", "kill -9", "idle", 10, GONE),
    Fault("root", "kill -9", "agreement", 10, GONE, quick=True),
    Fault("neighbour", "kill -9", "agreement", 10, GONE),
    Fault("root", "kill -9", "transfer", 10, GONE),
    Fault("neighbour", "kill -9", "transfer", 10, GONE, quick=True),
    Fault("root", "kill -9", "p2p", 10, GONE),
    Fault("neighbour", "kill -9", "p2p", 10, GONE),
    Fault("root", "kill -9", "p2p transfer", 10, GONE),
    Fault("neighbour", "kill -9", "p2p transfer", 10, GONE),
    Fault("root", "kill -9", "join", 10, GONE),
    Fault("neighbour", "kill -9", "join", 10, GONE),
    Fault("root", "kill -9", "subset", 10, GONE),
    Fault("neighbour", "kill -9", "subset", 10, GONE),
    # A killed process as the others end: shutdown() raises, and the end of a program that never calls it says so.
    Fault("root", "kill -9", "shutdown", 10, GONE),
    Fault("neighbour", "kill -9", "shutdown", 10, GONE),
    Fault("root", "kill -9", "shutdown, unwaited", 10, GONE),
    Fault("neighbour", "kill -9", "shutdown, unwaited", 10, GONE),
    Fault("root", "kill -9", "exit, unwaited", 10, GONE),
    Fault("neighbour", "kill -9", "exit, unwaited", 10, GONE),
    # A stopped process on the same node: its state in /proc says so.
    *(Fault(who, "stop", when, 30, STOPPED, quick=(who, when) == ("root", "agreement"))
      for who in ("root", "neighbour")
      for when in ("agreement", "transfer", "p2p", "join", "shutdown", "shutdown, unwaited")),
    # A rank ends by itself.
    Fault("root", "exception", "agreement", 10, LEFT, own=1),
    Fault("neighbour", "exception", "agreement", 10, LEFT, own=1, quick=True),
    Fault("root", "sys.exit", "agreement", 10, LEFT, own=5),
    Fault("neighbour", "sys.exit", "agreement", 10, LEFT, own=5),
    Fault("neighbour", "return", "agreement", 10, LEFT, own=0),
    Fault("neighbour", "return", "p2p", 30, LEFT, own=0, knobs={"stop_timeout": 5}),
    Fault("root", "os._exit", "agreement", 10, GONE, own=3),
    Fault("neighbour", "os._exit", "agreement", 10, GONE, own=3),
    Fault("neighbour", "os._exit", "shutdown", 10, GONE, own=3),
    Fault("neighbour", "kill -TERM", "agreement", 10, GONE, own=-15),
    # A rank does something else while the others make a process set.
    Fault("root", "elsewhere", "subset", 45, ELSEWHERE, own=4, knobs={"start_timeout": 8}),
    Fault("neighbour", "elsewhere", "subset", 45, ELSEWHERE, own=4, knobs={"start_timeout": 8}),
    # A wrong environment at the start: one error on all ranks.
    Fault("neighbour", "another version", "init", 20, "StartError: .*different versions of hpccoll", own=1, quick=True),
    Fault("neighbour", "another knob", "init", 20, "HPCCOLL_FANOUT differs between ranks: 16 on .*; 7 on", own=1),
    Fault("all", "wrong knob", "init", 20, "InvalidArgumentError: .*FANOUT.*0", knobs={"fanout": 0}),
    Fault("all", "wrong knob", "init", 20, "HPCCOLL_NET=nonsense is no net: there are", knobs={"net": "nonsense"}),
    Fault("all", "wrong knob", "init", 20, "StartError: .*HPCCOLL_NODES=9: the machine of rank 0 has only 3 ranks",
          knobs={"nodes": "9"}),
    # Missing resources: memory for a result, shared memory at the start and for a process set.
    Fault("root", "full memory", "gathering", 20, NO_MEMORY, own=1),
    Fault("neighbour", "full memory", "gathering", 20, NO_MEMORY, own=1, quick=True),
    Fault("all", "full /dev/shm", "init", 20, NO_SHM, small_shm="64k", quick=True),
    Fault("all", "full /dev/shm", "sets", 20, NO_SHM, small_shm="16m"),
    # Through a store, without MPI, a rank that is missing at the start.
    *(Fault(who, what, f"init {exchange}", 100, ABSENT)
      for what in ("stop", "kill -9") for who, exchange in (("root", 2), ("neighbour", 0), ("neighbour", 5))),
    # Over MPI, a rank that is missing at the start: each wait of init() ends at HPCCOLL_START_TIMEOUT.
    *(Fault(who, what, f"init {phase}", 100, ABSENT, **MPI)
      for what in ("stop", "kill -9")
      for who, phase in (("root", "hello"), ("leader", "hello"), ("root", "duplicate"), ("leaf", "duplicate"),
                         ("neighbour", "0"), ("root", "2"), ("leaf", "2"), ("leader", "net"), ("root", "5"),
                         ("leaf", "8"))),
    Fault("root", "stop", "init mpi", 100, NO_MPI, **MPI),
    Fault("leaf", "stop", "init mpi", 100, NO_MPI, **MPI),
    # Two nodes: ranks on the node of a killed process know at once and inform the others; a rank alone on a node is
    # silent. A killed leader cuts the tree, so the rest of its node informs the leader's neighbours in the tree.
    *(Fault(who, "kill -9", when, bound, says, **MPI, quick=when == "agreement" and who == "leader")
      for who, bound, says in (("root", 10, GONE), ("leader", 10, GONE), ("leaf", 60, LOST), ("alone", 60, LOST))
      for when in ("idle", "agreement", "transfer", "p2p", "shutdown", "shutdown, unwaited")),
    Fault("launcher", "kill -9", "busy", 30, "", **MPI),
    Fault("launcher", "kill -TERM", "busy", 30, "", **MPI),
    # `hpccoll run` itself is ended: no rank outlives it.
    Fault("launcher", "kill -9", "busy", 30, "", by="hpccoll run", quick=True),
    Fault("launcher", "kill -TERM", "busy", 30, "", by="hpccoll run"),
    # The launcher of an elastic job: its order ends all ranks; they outlive its death, until one of them is lost.
    Fault("launcher", "kill -TERM", "busy", 30, "", by="elastic"),
    *(Fault(who, what, "without launcher", bound, NO_LAUNCHER, by="elastic", quick=(who, what) == ("root", "kill -9"))
      for who, what, bound in (("root", "kill -9", 10), ("neighbour", "kill -9", 10), ("root", "stop", 30),
                               ("neighbour", "stop", 30), ("neighbour", "exception", 10))),
    # Without background threads nobody asks: the rest of a stopped leader's node informs its neighbours in the tree.
    *(Fault("leader", "stop", when, 60, STOPPED, **MPI, knobs={"background": 0}, quick=when == "agreement")
      for when in ("agreement", "transfer", "p2p")),
    *(Fault("alone", "stop", when, 60, LOST, **MPI) for when in ("agreement", "transfer", "p2p", "shutdown")),
]  # fmt: skip
