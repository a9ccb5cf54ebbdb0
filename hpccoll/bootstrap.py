# SPDX-License-Identifier: Apache-2.0
"""From ranks that have met (hpccoll.rendezvous) to a loop with its home, its net and its first process set."""

from __future__ import annotations

import dataclasses
import platform
import secrets
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from hpccoll import _core, config, cuda, detect, errors
from hpccoll.checks import at_start, gpus, proofs
from hpccoll.checks.finding import ERROR, Facts, grouped
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.observe.timeline import Timeline, for_rank

__all__ = ["Base", "make"]


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

    rendezvous: Any
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
    tried: tuple[list[proofs.Proof], str] = ([], "")
    """Whether MPI may have the memory of GPUs: rank 0's, which reads for all."""


def make(rendezvous: Any, settings: config.Config) -> tuple[Base, _core.Set]:
    """The loop of this rank, and the process set of all ranks. All ranks of the rendezvous call it together."""
    cards = _exchange_cards(rendezvous, settings)
    machines = [card.machine for card in cards]
    node_of = place(machines, settings.nodes)
    nonce = cards[0].nonce
    _say_what_is_wrong(rendezvous, cards)
    nccl_files = [str(file) for file in cuda.packages()]
    gpu = _look_at_gpus(rendezvous, cards, nccl_files)
    flat = settings.device_mode == "mpi" and rendezvous.size > 1
    if flat and not rendezvous.threads and not rendezvous.library():
        raise errors.StartError("the World was not made: HPCCOLL_DEVICE_MODE=mpi, and there is no MPI")
    net = _agreed(rendezvous, lambda: rendezvous.net(machines)) if max(node_of) > 0 or flat else None
    background = [net is None or card.level == "MULTIPLE" for card in cards]
    node_control = _node_control(rendezvous, node_of, nonce)
    _core.select_kernels(settings.simd)
    loop = _core.Loop(
        rendezvous.rank,
        node_of,
        node_control,
        net,
        settings,
        background=settings.background and background[rendezvous.rank],
        one_thread=net is not None and cards[rendezvous.rank].level in ("SINGLE", "FUNNELED"),
        heartbeat=settings.peer_timeout > 0
        and all(background)
        and all(card.settings.background for card in cards),
        device_number=gpu.get("number", -1) if gpu.get("named") else -1,
        nccl_files=nccl_files,
        shares_device=gpus.sharing(config.environment()),
        gpu_aware=_gpu_aware(rendezvous, cards),
    )
    base = Base(rendezvous, settings, loop, nonce, (1 << _core.MAX_SETS) - 2, cards[rendezvous.rank].level)
    try:
        if any(card.uses_gpu and card.settings.device != "auto" for card in cards):
            _agreed(rendezvous, lambda: loop.open_device() if gpu.get("named") else None)
        members = tuple(range(rendezvous.size))
        segment = _set_segment(rendezvous, loop, 0, members, nonce)
        first = _agreed(rendezvous, lambda: _core.Set(loop, 0, 0, members, segment))
        if rendezvous.rank == 0 and settings.verbose:
            print(_start_line(base), file=sys.stderr, flush=True)
        if settings.timeline:
            base.timeline = _agreed(rendezvous, lambda: for_rank(loop, settings.timeline))
        rendezvous.allgather(None)  # nobody speaks before all listen
    except BaseException:
        loop.close()
        raise
    return base, first


def _exchange_cards(rendezvous: Any, settings: config.Config) -> list[_Card]:
    seen = at_start.collect() if settings.check and not rendezvous.threads else {}
    mine = _Card(
        settings, rendezvous.machine(), rendezvous.thread_level(), secrets.token_hex(8), seen, platform.node(),
        gpus.wanted(settings), _read_proofs(rendezvous, settings),
    )  # fmt: skip
    cards: list[_Card] = rendezvous.allgather(mine)
    if differing := config.differences([card.settings for card in cards]):
        raise errors.StartError(f"the World was not made: {differing}")
    return cards


def _say_what_is_wrong(rendezvous: Any, cards: list[_Card]) -> None:
    """Rank 0 prints what the checks of the start found, where no rank has switched them off."""
    if rendezvous.rank == 0 and all(card.seen for card in cards):
        for line in at_start.lines([card.machine for card in cards], [card.seen for card in cards]):
            print(f"hpccoll: check: {line}", file=sys.stderr, flush=True)


def _look_at_gpus(rendezvous: Any, cards: list[_Card], nccl_files: list[str]) -> Facts:
    """What GPU this rank uses, where that is known by now; refuse what cannot work, and print what is wrong."""
    if not any(card.uses_gpu for card in cards):
        return {}
    mine, facts = cards[rendezvous.rank], {}
    if mine.uses_gpu:
        place = [card.machine for card in cards[: rendezvous.rank]].count(mine.machine)
        facts = gpus.collect(mine.settings, place, config.environment(), nccl_files)
    seen = rendezvous.allgather(facts)
    job = Survey(
        [
            RankReport(rank, card.host, str(card.machine), {gpus.NAME: of_rank})
            for rank, (card, of_rank) in enumerate(zip(cards, seen, strict=True))
        ]
    )
    found = grouped(gpus.judge(job))
    if wrong := [finding.line() for finding in found if finding.severity == ERROR]:
        raise errors.StartError("the World was not made: " + "\n".join(wrong))
    if rendezvous.rank == 0 and all(card.settings.check for card in cards):
        for finding in found:
            print(f"hpccoll: check: {finding.line()}", file=sys.stderr, flush=True)
    return facts


def _read_proofs(rendezvous: Any, settings: config.Config) -> tuple[list[proofs.Proof], str]:
    if rendezvous.rank != 0 or settings.gpu_aware_mpi != "auto" or settings.device == "none":
        return [], ""
    return proofs.read(proofs.files(settings.gpu_aware_record, config.environment()))


def _gpu_aware(rendezvous: Any, cards: list[_Card]) -> tuple[str, list[str], str]:
    """HPCCOLL_GPU_AWARE_MPI, the devices for which it is proved, and why there are none."""
    library = proofs.library(rendezvous.library())
    if not library:
        return "no", [], ""
    env = config.environment()
    launched = detect.place(env)
    here = proofs.setup(library, launched.launcher if launched else "", env)
    nodes = len({card.machine for card in cards})
    found = proofs.verdict(*cards[0].tried, here, nodes)
    return cards[rendezvous.rank].settings.gpu_aware_mpi, found.devices, found.why


def _agreed(rendezvous: Any, action: Callable[[], Any]) -> Any:
    """Do `action`; if it fails on any rank, raise on all."""
    result, failure = None, None
    try:
        result = action()
    except errors.HpccollError as error:
        failure = error
    except (RuntimeError, MemoryError, OSError) as error:
        failure = errors.StartError(str(error) or type(error).__name__)
    texts = rendezvous.allgather(str(failure) if failure else "")
    raise_first(texts)
    return result


def raise_first(texts: list[str]) -> None:
    """Raise, on all ranks alike, what went wrong on the first rank where something did."""
    for rank, text in enumerate(texts):
        if text:
            raise errors.StartError(f"rank {rank}: {text}")


def _node_control(rendezvous: Any, node_of: tuple[int, ...], nonce: str) -> _core.Segment:
    mine = node_of[rendezvous.rank]
    here = [r for r, node in enumerate(node_of) if node == mine]
    nbytes = _core.node_control_bytes(len(here))
    leads = here[0] == rendezvous.rank
    if rendezvous.threads:
        shared: _core.Segment = rendezvous.shared((nonce, mine), lambda: _core.Segment.private(nbytes))
        return shared
    name = f"/hpccoll-{nonce}-home-{mine}"
    return shared_segment(name, nbytes, leads, lambda action: _agreed(rendezvous, action))


def _set_segment(
    rendezvous: Any, loop: _core.Loop, number: int, members: tuple[int, ...], nonce: str
) -> _core.Segment:
    return set_segment(loop, number, members, nonce, lambda action: _agreed(rendezvous, action))


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
    net = f", between nodes {base.rendezvous.describe_net()}" if len(counts) > 1 else ""
    driver = (
        "a background thread drives" if loop.background else "waiting callers drive (no background thread)"
    )
    device = f"; device memory of GPU {loop.device.number} ({loop.device.pci})" if loop.device else ""
    ranks = f"{loop.size} rank{'s' if loop.size > 1 else ''}"
    started = "" if base.rendezvous.threads else detect.started_by(config.environment())
    return (
        f"hpccoll {metadata.version('hpccoll')}: {ranks} on {nodes}{emulated}; inside a node shared memory "
        f"({_core.kernels()}){net}{device}; {driver}{'; ' if started else ''}{started}"
    )
