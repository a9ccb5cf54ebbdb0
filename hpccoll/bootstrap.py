# SPDX-License-Identifier: Apache-2.0
"""From ranks that know nothing of each other to a loop with its home, its net and its first process set.

A :class:`Meeting` is all that a World needs to be made: ranks that can exchange small objects. MPI gives one
(here), a key-value store another (hpccoll.store), so do threads of one process (hpccoll.testing), and a single process
a trivial one.
"""

from __future__ import annotations

import dataclasses
import platform
import secrets
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, Protocol

from hpccoll import _core, config, cuda, detect, errors
from hpccoll.checks import at_start, gpus
from hpccoll.checks.finding import ERROR, Card, Facts, Job, grouped
from hpccoll.observe.timeline import Timeline, for_rank
from hpccoll.store import StoreMeeting

__all__ = ["Alone", "Base", "Meeting", "MpiMeeting", "StoreMeeting", "make"]

HELLO_TAG = 0x4843  # below the smallest tag limit that the MPI standard allows
REPORT_EVERY = 10.0


class Meeting(Protocol):
    """Ranks that want to become a World."""

    rank: int
    size: int
    threads: bool
    """The ranks are threads of one process."""

    def allgather(self, value: Any) -> list[Any]:
        """Exchange small objects; all ranks call it together."""

    def machine(self) -> Any:
        """Equal on ranks that can share memory."""

    def net(self, machines: list[Any], /) -> Any:
        """A capsule "hpccoll.net". All ranks call it together, with what machine() gave on each of them."""

    def thread_level(self) -> str:
        """What the net allows: MULTIPLE, SERIALIZED, FUNNELED or SINGLE."""

    def describe_net(self) -> str:
        """What moves bytes between nodes, for the line at the start."""

    def give_up(self) -> None:
        """The World is broken and the process ends: take the others along."""


class Alone:
    """The meeting of a process without MPI."""

    rank, size, threads = 0, 1, False

    def allgather(self, value: Any) -> list[Any]:
        """See Meeting."""
        return [value]

    def machine(self) -> Any:
        """See Meeting."""
        return 0

    def net(self, _machines: list[Any], /) -> Any:
        """See Meeting."""
        raise AssertionError("a World of one rank has no net")

    def thread_level(self) -> str:
        """See Meeting."""
        return "MULTIPLE"

    def describe_net(self) -> str:
        """See Meeting."""
        return "none"

    def give_up(self) -> None:
        """See Meeting."""


class MpiMeeting:
    """The ranks of an mpi4py communicator."""

    threads = False

    def __init__(self, comm: Any, timeout: float) -> None:
        """Say hello to all ranks within `timeout` seconds, then duplicate the communicator."""
        from mpi4py import MPI

        if not MPI.Is_initialized() or MPI.Is_finalized():
            state = "finalized" if MPI.Is_initialized() else "not initialised"
            raise errors.StartError(
                f"MPI is {state}: a World of MPI ranks lives between MPI_Init and MPI_Finalize"
            )
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        _check_same_library()
        if self.size > 1:
            _Hello(comm, timeout).exchange()
        self.comm = comm.Dup()

    def allgather(self, value: Any) -> list[Any]:
        """See Meeting."""
        result: list[Any] = self.comm.allgather(value)
        return result

    def machine(self) -> Any:
        """See Meeting: the lowest rank among those that MPI says share memory."""
        from mpi4py import MPI

        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        lowest = near.allreduce(self.rank, MPI.MIN)
        near.Free()
        return lowest

    def net(self, machines: list[Any], /) -> Any:
        """See Meeting."""
        from hpccoll import _mpi

        return _mpi.net(self.comm, one_machine=len(set(machines)) == 1)

    def thread_level(self) -> str:
        """See Meeting."""
        from hpccoll import _mpi

        level: str = _mpi.thread_level()
        return level

    def describe_net(self) -> str:
        """See Meeting."""
        from hpccoll import _mpi

        return f"MPI ({_mpi.library_version()}, thread level {self.thread_level()})"

    def give_up(self) -> None:
        """See Meeting: MPI_Finalize would wait for a rank that is gone."""
        from mpi4py import MPI

        if not MPI.Is_finalized():
            MPI.COMM_WORLD.Abort(1)

    def free(self) -> None:
        """Give the communicator back."""
        from mpi4py import MPI

        if not MPI.Is_finalized():
            self.comm.Free()


def _check_same_library() -> None:
    """mpi4py and _mpi must be on one MPI library, or a communicator of one is garbage to the other."""
    from mpi4py import MPI

    try:
        from hpccoll import _mpi
    except ImportError as error:
        raise errors.StartError(
            f"hpccoll's MPI part cannot be loaded ({error}); `hpccoll info` says what is missing. Rebuild hpccoll "
            "where MPICC, or mpicc on PATH, is the MPI of mpi4py"
        ) from error
    theirs, ours = _mpi.library_path_of(MPI.__file__), _mpi.library_path()
    if theirs is not None and theirs != ours:
        raise errors.StartError(
            f"mpi4py uses the MPI library {theirs}, hpccoll was built for {ours}: two MPI libraries cannot share a "
            "communicator. Rebuild hpccoll with MPICC set to the mpicc of the first, or reinstall mpi4py for the second"
        )


class _Hello:
    """A start that is bounded in time: rank 0 hears from everybody, or says who is missing.

    Collectives of MPI would wait for ever, and do not know for whom.
    """

    def __init__(self, comm: Any, timeout: float) -> None:
        self.comm, self.timeout = comm, timeout
        self.began = time.monotonic()

    def exchange(self) -> None:
        if self.comm.Get_rank() == 0:
            self.gather()
        else:
            self.report()

    def gather(self) -> None:
        missing = set(range(1, self.comm.Get_size()))
        requests = {r: self.comm.irecv(source=r, tag=HELLO_TAG) for r in missing}
        said = self.began
        while missing and not self.late():
            missing -= {r for r in missing if requests[r].test()[0]}
            if missing and time.monotonic() - said > REPORT_EVERY:
                said = time.monotonic()
                print(
                    f"hpccoll: start: waiting for {errors.some_ranks(missing)}", file=sys.stderr, flush=True
                )
            if missing:
                time.sleep(0.0005)
        verdict = (
            f"no word from {errors.some_ranks(missing)} within {self.timeout:g} s (HPCCOLL_START_TIMEOUT)"
            if missing
            else ""
        )
        for r in set(requests) - missing:
            self.comm.send(verdict, dest=r, tag=HELLO_TAG)
        for r in missing:
            requests[r].cancel()
        if verdict:
            raise errors.StartError(f"the World was not made: {verdict}")

    def report(self) -> None:
        sent = self.comm.isend(None, dest=0, tag=HELLO_TAG)
        answer = self.comm.irecv(source=0, tag=HELLO_TAG)
        self.timeout += 5  # rank 0 knows more: let it speak first
        while not self.late():
            done, verdict = answer.test()
            if done:
                sent.wait()
                if verdict:
                    raise errors.StartError(f"the World was not made: {verdict}")
                return
            time.sleep(0.0005)
        raise errors.StartError(f"the World was not made: no word from rank 0 within {self.timeout:g} s")

    def late(self) -> bool:
        return time.monotonic() - self.began > self.timeout


# ---- nodes ------------------------------------------------------------------------------------------


def place(machines: list[Any], nodes: str) -> tuple[int, ...]:
    """The node of each rank, numbered by first appearance: one a machine, or as many as `nodes` asks for.

    "2" cuts each machine's ranks into two contiguous blocks, "3+1" into blocks of 3 and 1.
    """
    keys: list[Any] = list(machines)
    if nodes:
        for machine in dict.fromkeys(machines):
            ranks = [r for r, m in enumerate(machines) if m == machine]
            for block, count in enumerate(_block_sizes(nodes, len(ranks))):
                for r in ranks[:count]:
                    keys[r] = (machine, block)
                del ranks[:count]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return tuple(numbers[key] for key in keys)


def _block_sizes(nodes: str, ranks: int) -> list[int]:
    if "+" in nodes:
        sizes = [int(n) for n in nodes.split("+")]
        if sum(sizes) != ranks:
            raise errors.StartError(
                f"HPCCOLL_NODES={nodes} places {sum(sizes)} ranks, this machine has {ranks}"
            )
        return sizes
    count = int(nodes)
    if count > ranks:
        raise errors.StartError(f"HPCCOLL_NODES={nodes}: this machine has only {ranks} ranks")
    return [ranks // count + (i < ranks % count) for i in range(count)]


# ---- making --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Base:
    """What all process sets of one `init()` share on this rank."""

    meeting: Any
    settings: config.Config
    loop: _core.Loop
    nonce: str
    free_numbers: int
    """Bit n: set number n is not in use here."""
    level: str
    generation: int = 0
    """Of the newest process set here: numbers come again, generations do not."""
    broken_text: str = ""
    timeline: Timeline | None = None


@dataclasses.dataclass
class _Card:
    """What a rank tells the others before there is a World."""

    settings: config.Config
    machine: Any
    level: str
    nonce: str
    seen: dict[str, Facts]
    """For the checks at the start; empty where there are none."""
    host: str
    uses_gpu: bool


def make(meeting: Any, settings: config.Config) -> tuple[Base, _core.Set]:
    """The loop of this rank, and the process set of all ranks. All ranks of the meeting call it together."""
    cards = _exchange_cards(meeting, settings)
    machines = [card.machine for card in cards]
    node_of = place(machines, settings.nodes)
    nonce = cards[0].nonce
    _say_what_is_wrong(meeting, cards)
    nccl_files = [str(file) for file in cuda.packages()]
    gpu = _look_at_gpus(meeting, cards, nccl_files)
    net = _agreed(meeting, lambda: meeting.net(machines)) if max(node_of) > 0 else None
    background = [net is None or card.level == "MULTIPLE" for card in cards]
    home = _home(meeting, node_of, nonce)
    _core.select_kernels(settings.simd)
    loop = _core.Loop(
        meeting.rank,
        node_of,
        home,
        net,
        settings,
        background=settings.background and background[meeting.rank],
        one_thread=net is not None and cards[meeting.rank].level in ("SINGLE", "FUNNELED"),
        heartbeat=settings.peer_timeout > 0
        and all(background)
        and all(card.settings.background for card in cards),
        device_number=gpu.get("number", -1) if gpu.get("named") else -1,
        nccl_files=nccl_files,
        shares_device=gpus.sharing(config.environment()),
    )
    base = Base(meeting, settings, loop, nonce, (1 << 127) - 2, cards[meeting.rank].level)
    try:
        if any(card.uses_gpu and card.settings.device != "auto" for card in cards):
            _agreed(meeting, lambda: loop.open_device() if gpu.get("named") else None)
        members = tuple(range(meeting.size))
        segment = _set_segment(meeting, loop, 0, members, nonce)
        first = _agreed(meeting, lambda: _core.Set(loop, 0, 0, members, segment))
        if meeting.rank == 0 and settings.verbose:
            print(_start_line(base), file=sys.stderr, flush=True)
        if settings.timeline:
            base.timeline = _agreed(meeting, lambda: for_rank(loop, settings.timeline))
        meeting.allgather(None)  # nobody speaks before all listen
    except BaseException:
        loop.close()
        raise
    return base, first


def _exchange_cards(meeting: Any, settings: config.Config) -> list[_Card]:
    seen = at_start.collect() if settings.check and not meeting.threads else {}
    mine = _Card(
        settings, meeting.machine(), meeting.thread_level(), secrets.token_hex(8), seen, platform.node(),
        gpus.wanted(settings),
    )  # fmt: skip
    cards: list[_Card] = meeting.allgather(mine)
    if differing := config.differences([card.settings for card in cards]):
        raise errors.StartError(f"the World was not made: {differing}")
    return cards


def _say_what_is_wrong(meeting: Any, cards: list[_Card]) -> None:
    """Rank 0 prints what the checks of the start found, where no rank has switched them off."""
    if meeting.rank == 0 and all(card.seen for card in cards):
        for line in at_start.lines([card.machine for card in cards], [card.seen for card in cards]):
            print(f"hpccoll: check: {line}", file=sys.stderr, flush=True)


def _look_at_gpus(meeting: Any, cards: list[_Card], nccl_files: list[str]) -> Facts:
    """What GPU this rank uses, where that is known by now; refuse what cannot work, and print what is wrong."""
    if not any(card.uses_gpu for card in cards):
        return {}
    mine, facts = cards[meeting.rank], {}
    if mine.uses_gpu:
        place = [card.machine for card in cards[: meeting.rank]].count(mine.machine)
        facts = gpus.collect(mine.settings, place, config.environment(), nccl_files)
    seen = meeting.allgather(facts)
    job = Job(
        [
            Card(rank, card.host, str(card.machine), {gpus.NAME: of_rank})
            for rank, (card, of_rank) in enumerate(zip(cards, seen, strict=True))
        ]
    )
    found = grouped(gpus.judge(job))
    if wrong := [finding.line() for finding in found if finding.severity == ERROR]:
        raise errors.StartError("the World was not made: " + "\n".join(wrong))
    if meeting.rank == 0 and all(card.settings.check for card in cards):
        for finding in found:
            print(f"hpccoll: check: {finding.line()}", file=sys.stderr, flush=True)
    return facts


def _agreed(meeting: Any, action: Callable[[], Any]) -> Any:
    """Do `action`; if it fails on any rank, raise on all."""
    result, failure = None, None
    try:
        result = action()
    except errors.HpccollError as error:
        failure = error
    except (RuntimeError, MemoryError, OSError) as error:
        failure = errors.StartError(str(error) or type(error).__name__)
    texts = meeting.allgather(str(failure) if failure else "")
    raise_first(texts)
    return result


def raise_first(texts: list[str]) -> None:
    """Raise, on all ranks alike, what went wrong on the first rank where something did."""
    for rank, text in enumerate(texts):
        if text:
            raise errors.StartError(f"rank {rank}: {text}")


def _home(meeting: Any, node_of: tuple[int, ...], nonce: str) -> _core.Segment:
    mine = node_of[meeting.rank]
    here = [r for r, node in enumerate(node_of) if node == mine]
    nbytes = _core.home_bytes(len(here))
    leads = here[0] == meeting.rank
    if meeting.threads:
        shared: _core.Segment = meeting.shared((nonce, mine), lambda: _core.Segment.private(nbytes))
        return shared
    name = f"/hpccoll-{nonce}-home-{mine}"
    return shared_segment(name, nbytes, leads, lambda action: _agreed(meeting, action))


def _set_segment(
    meeting: Any, loop: _core.Loop, number: int, members: tuple[int, ...], nonce: str
) -> _core.Segment:
    return set_segment(loop, number, members, nonce, lambda action: _agreed(meeting, action))


Agreed = Callable[[Callable[[], Any]], Any]


def set_segment(
    loop: _core.Loop, number: int, members: tuple[int, ...], nonce: str, agreed: Agreed
) -> _core.Segment:
    """The segment of a process set on this node, made by the set's lowest member here.

    :param agreed: does an action and raises on all ranks if it failed on any; ranks that are no members take part
    """
    mine = loop.node_of[loop.rank]
    here = [m for m in members if loop.node_of[m] == mine]
    if loop.rank not in here:
        for _ in range(2):
            agreed(lambda: None)
        return None  # type: ignore[return-value]
    name = f"/hpccoll-{nonce}-{number}-{here[0]}"
    return shared_segment(name, _core.node_bytes(len(here)), here[0] == loop.rank, agreed)


def shared_segment(name: str, nbytes: int, leads: bool, agreed: Agreed) -> _core.Segment:
    """Create (the leader), attach (the others), unlink; in two agreed steps, so that nothing stays behind."""
    try:
        made = agreed(lambda: _core.Segment.create(name, nbytes) if leads else None)
        attached = agreed(lambda: None if leads else _core.Segment.attach(name, nbytes))
    finally:
        if leads:
            _core.Segment.unlink(name)
    segment: _core.Segment = made or attached
    return segment


def _start_line(base: Base) -> str:
    loop, settings = base.loop, base.settings
    counts = [loop.node_of.count(n) for n in range(max(loop.node_of) + 1)]
    ranks_of_nodes = "+".join(map(str, counts[:16])) + "+..." * (len(counts) > 16)
    nodes = f"{len(counts)} node{'s' if len(counts) > 1 else ''} ({ranks_of_nodes})"
    emulated = f", emulated by HPCCOLL_NODES={settings.nodes}" if settings.nodes else ""
    net = f", between nodes {base.meeting.describe_net()}" if len(counts) > 1 else ""
    driver = (
        "a background thread drives" if loop.background else "waiting callers drive (no background thread)"
    )
    device = f"; device memory of GPU {loop.device.number} ({loop.device.pci})" if loop.device else ""
    ranks = f"{loop.size} rank{'s' if loop.size > 1 else ''}"
    started = "" if base.meeting.threads else detect.started_by(config.environment())
    return (
        f"hpccoll {metadata.version('hpccoll')}: {ranks} on {nodes}{emulated}; inside a node shared memory "
        f"({_core.kernels()}){net}{device}; {driver}{'; ' if started else ''}{started}"
    )
