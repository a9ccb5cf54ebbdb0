# SPDX-License-Identifier: Apache-2.0
"""From a rendezvous to a loop with its node control segment, its net and its first process set."""

from __future__ import annotations

import dataclasses
import traceback
from typing import TYPE_CHECKING, TypeVar

from hpccoll import _core, config, cuda, detect, errors, inherited, launched, net, node_order, start_report, taken_place
from hpccoll.checks import at_start, gpus, proofs
from hpccoll.checks.finding import ERROR, Facts, grouped
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.compared import Compared
from hpccoll.observe.timeline import Timeline, for_rank
from hpccoll.rendezvous import Machine, Rendezvous, ThreadRendezvous, agreed, gather_bytes, raise_first
from hpccoll.start_report import Ranks
from hpccoll.text import say, some_ranks

if TYPE_CHECKING:
    from hpccoll.tuner import worker

__all__ = ["Base", "make"]

T = TypeVar("T")


# ---- making -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Base:
    """The state of this rank that all process sets of one `init()` share."""

    rendezvous: Rendezvous
    settings: config.Config
    loop: _core.Loop
    nonce: str
    """A unique word of this World, for the names of its shared memory."""
    net: net.Choice | None
    """The net between the nodes; None without a net."""
    ordered: str = ""
    """A description of what orders the nodes; "" if there is only one node."""
    timeline: Timeline | None = None
    tuner: worker.Tuner | None = None
    shutdown: _core.Handle | None = None
    """The barrier before the end of the World, if it has begun already."""
    failure: errors.RecoverableError | None = None
    """The failure that broke the World before its shutdown."""

    def record_exception(self, error: BaseException) -> None:
        """Write the trace, with the uncaught exception that ends the process, unless the World broke before."""
        if self.loop.size > 1 and not self.loop.broken():
            frames = traceback.extract_tb(error.__traceback__)
            where = f" at {frames[-1].name} ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
            self.loop.write_trace(f"{type(error).__name__}: {str(error)[:120]}{where}")


def make(
    rendezvous: Rendezvous,
    settings: config.Config,
    wrong: errors.InvalidArgumentError | None = None,
    provider: net.NetProvider | None = None,
) -> tuple[Base, _core.Set]:
    """Make the loop of this rank and the process set of all ranks. All ranks of the rendezvous call this together.

    :param wrong: the error in the settings of this rank, which is an error on all ranks
    :param provider: makes the net, in place of the provider that the knob `net` names
    """
    _compare_versions(rendezvous, wrong)
    ranks = start_report.exchange(rendezvous, settings)
    if differing := config.differences(ranks.settings):
        raise errors.StartError(f"the World was not made: {differing}")
    node_of = _core.nodes_of_machines(ranks.machines.of, rendezvous.size, settings.nodes)
    _print_findings(rendezvous, ranks)
    nccl_files = [str(file) for file in cuda.packages()]
    gpu = _look_at_gpus(rendezvous, ranks, nccl_files)
    choice = _choose_net(rendezvous, settings, provider, ranks.machines, node_of)
    drivers = _exchange_drivers(rendezvous, choice)
    capsule = _make_net(rendezvous, choice, ranks.machines)
    if not choice or choice.provider.name != net.MpiNet.name:
        net.mpi.make_progress()
    _core.select_kernels(settings.simd)
    loop = _core.Loop(
        rendezvous.rank,
        node_of,
        capsule,
        settings,
        hosts=ranks.hosts.values,
        host_of=ranks.hosts.of,
        pids=ranks.pids,
        device_number=gpu.get("number", -1) if gpu.get("named") else -1,
        nccl_files=nccl_files,
        shares_device=gpus.sharing(inherited.environment()),
        gpu_aware=_gpu_aware(choice, settings, ranks),
        world=ranks.nonce,
    )
    base = Base(rendezvous, settings, loop, ranks.nonce, choice)
    try:
        _begin_loop(base, ranks, drivers)
        _order_nodes(base, ranks)
        first = _first_set(base, ranks, opens_device=bool(gpu.get("named")))
        _begin_world(base)
    except BaseException:
        loop.close()
        raise
    taken_place.take(rendezvous.rank)
    return base, first


def _begin_loop(base: Base, ranks: Ranks, drivers: Compared[net.Drivers]) -> None:
    """Give the loop its shared memory, and the threads that may drive it."""
    rendezvous, settings, loop = base.rendezvous, base.settings, base.loop
    control = _node_control(rendezvous, loop)
    agreed(
        rendezvous.compare,
        lambda: loop.begin(
            control,
            background=settings.background and drivers[loop.rank] is net.Drivers.ANY,
            one_thread=drivers[loop.rank] is net.Drivers.MAKER,
            heartbeat=drivers.values == [net.Drivers.ANY] and all(one.background for one in ranks.settings.values),
            job=detect.job(inherited.environment()),
            machine_size=len(ranks.machines.like(loop.rank)),
        ),
    )


def _node_control(rendezvous: Rendezvous, loop: _core.Loop) -> _core.Segment:
    if not isinstance(rendezvous, ThreadRendezvous):
        return _core.node_control_segment(loop, gather_bytes(rendezvous))
    # The record locks that detect dead ranks belong to processes: threads share plain memory.
    leads = loop.local_rank == 0
    segments = rendezvous.share(_core.Segment.private(_core.node_control_bytes(loop.local_size)) if leads else None)
    shared = segments[loop.node_of.index(loop.node_of[loop.rank])]
    assert shared is not None
    return shared


def _order_nodes(base: Base, ranks: Ranks) -> None:
    """Order the nodes along the network; a deterministic sum is added in the order of the ranks, on any nodes."""
    rendezvous, settings, loop = base.rendezvous, base.settings, base.loop
    ordered = None if settings.deterministic else loop
    found = node_order.order(ranks.addresses, ranks.hosts, loop.node_of, settings.node_file, ordered)
    if settings.deterministic:
        found = node_order.NodeOrder(None, "ranks (HPCCOLL_DETERMINISTIC)" if found.said else "")
    if found.warning and rendezvous.rank == 0 and settings.verbose:
        say(f"hpccoll: {found.warning}")
    base.ordered = found.said


def _first_set(base: Base, ranks: Ranks, *, opens_device: bool) -> _core.Set:
    """Make the process set of all ranks, and do the other steps of the start that need the loop."""
    rendezvous, settings, loop = base.rendezvous, base.settings, base.loop
    if any(ranks.uses_gpu.values) and any(one.device != "auto" for one in ranks.settings.values):
        agreed(rendezvous.compare, lambda: loop.open_device() if opens_device else None)
    members, segment = tuple(range(rendezvous.size)), _core.first_set_segment(loop, gather_bytes(rendezvous))
    first = agreed(rendezvous.compare, lambda: _core.Set(loop, 0, 0, members, segment))
    if rendezvous.rank == 0 and settings.verbose:
        say(_start_line(base))
    if any(one.timeline for one in ranks.settings.values):
        path = settings.timeline
        base.timeline = agreed(rendezvous.compare, lambda: for_rank(loop, path) if path else None)
    if settings.autotune:
        from hpccoll.tuner import worker  # most jobs have no tuner

        base.tuner = agreed(rendezvous.compare, lambda: worker.for_rank(first, settings))
    return first


def _begin_world(base: Base) -> None:
    """Tell the launcher about the World. It is the last step, after which no rank may fail alone: others would wait."""
    ended = base.loop.process_ended
    try:  # no rank sends before this exchange: then all ranks listen
        agreed(base.rendezvous.compare, lambda: launched.world_begins(inherited.environment(), ended))
    except BaseException:
        launched.world_ended(ended)
        raise


# ---- exchange and check of the ranks' reports ------------------------------------------------------------


WRONG = ": "
"""Separates the version of a rank from the error in its settings."""


def _compare_versions(rendezvous: Rendezvous, wrong: errors.InvalidArgumentError | None) -> None:
    """Fail on all ranks unless all run one version, and all have right settings.

    Plain values: a report of another version may not be readable.

    :param wrong: see make()
    """
    mine = f"{_core.VERSION} (messages of version {_core.WIRE_VERSION})"
    said = rendezvous.compare(f"{mine}{WRONG}{wrong}" if wrong else mine)
    if wrong:
        raise wrong
    versions = said.map(lambda text: text.partition(WRONG)[0])
    if not versions.alike:
        found = "; ".join(f"{version} on {some_ranks(versions.ranks(i))}" for i, version in enumerate(versions.values))
        raise errors.StartError(
            f"the World was not made: its ranks run different versions of hpccoll: {found}. Start all of them with one "
            "environment: `hpccoll info` on each host says which one it finds"
        )
    raise_first(said.map(lambda text: text.partition(WRONG)[2]))


def _print_findings(rendezvous: Rendezvous, ranks: Ranks) -> None:
    """Print the findings of the start's checks on rank 0, unless a rank has switched them off."""
    if all(one.check for one in ranks.settings.values):
        for line in at_start.look(rendezvous.compare, rendezvous.rank, ranks.machines.like(rendezvous.rank)):
            say(f"hpccoll: check: {line}")


def _look_at_gpus(rendezvous: Rendezvous, ranks: Ranks, nccl_files: list[str]) -> Facts:
    """Return the GPU of this rank, if it is known already; raise an error or print warnings of the checks."""
    if not any(ranks.uses_gpu.values):
        return {}
    settings, facts = ranks.settings[rendezvous.rank], {}
    if ranks.uses_gpu[rendezvous.rank]:
        before = ranks.machines.like(rendezvous.rank).index(rendezvous.rank)
        facts = gpus.collect(settings, before, inherited.environment(), nccl_files)
    seen = rendezvous.compare(facts)
    try:
        found = grouped(gpus.judge(_gpus(ranks, seen))) if gpus.suspicious(seen, ranks.machines) else []
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.StartError(
            f"the World was not made: a rank's facts about its GPU cannot be read: {error!r}"
        ) from None
    if wrong := [finding.line() for finding in found if finding.severity == ERROR]:
        raise errors.StartError("the World was not made: " + "\n".join(wrong))
    if rendezvous.rank == 0 and all(one.check for one in ranks.settings.values):
        for finding in found:
            say(f"hpccoll: check: {finding.line()}")
    return facts


def _gpus(ranks: Ranks, seen: Compared[Facts]) -> Survey:
    return Survey(
        [
            RankReport(rank, host, str(machine), {gpus.NAME: facts})
            for rank, (host, machine, facts) in enumerate(zip(ranks.hosts, ranks.machines, seen, strict=True))
        ]
    )


# ---- the net ------------------------------------------------------------------------------------------


def _choose_net(
    rendezvous: Rendezvous,
    settings: config.Config,
    provider: net.NetProvider | None,
    machines: Compared[Machine],
    node_of: tuple[int, ...],
) -> net.Choice | None:
    """Choose the net of this World; return None if all ranks are on one node."""
    net.check_name(settings.net)
    for_devices = settings.device_mode == "mpi" and rendezvous.size > 1
    if max(node_of) == 0 and not for_devices:
        return None
    try:
        choice = net.Choice(provider, "given") if provider else net.choose(settings.net, rendezvous, settings)
    except errors.StartError as error:
        raise errors.StartError(f"the World was not made: {_why_a_net(machines, node_of)}, {error}") from None
    if for_devices and not choice.provider.moves_device_memory:
        raise errors.StartError(
            f"the World was not made: HPCCOLL_DEVICE_MODE=mpi, and the net {choice.provider.name} does not move the "
            "memory of GPUs"
        )
    return choice


def _why_a_net(machines: Compared[Machine], node_of: tuple[int, ...]) -> str:
    """Why the World needs a net; part of the error if none was found."""
    if not machines.alike:
        where = "; ".join(f"{machine}: {some_ranks(machines.ranks(i))}" for i, machine in enumerate(machines.values))
        return f"the ranks are on {len(machines.values)} machines ({where}), and no net connects them"
    if max(node_of) > 0:
        return "HPCCOLL_NODES splits the ranks into nodes (unset it to join them), and no net connects these"
    return "HPCCOLL_DEVICE_MODE=mpi gives the memory of GPUs to a net, and there is none"


def _exchange_drivers(rendezvous: Rendezvous, choice: net.Choice | None) -> Compared[net.Drivers]:
    """Tell all ranks which threads may drive the net on each of them."""
    mine = choice.provider.drivers() if choice else net.Drivers.ANY
    names = rendezvous.compare(mine.name)
    if unknown := set(names.values) - set(net.Drivers.__members__):
        raise errors.StartError(f"the World was not made: a rank says that its net is driven by {min(unknown)!r}")
    return names.map(lambda name: net.Drivers[name])


def _make_net(rendezvous: Rendezvous, choice: net.Choice | None, machines: Compared[Machine]) -> object | None:
    if choice is None:
        return None
    return agreed(rendezvous.compare, lambda: choice.provider.make(rendezvous, one_machine=machines.alike))


def _gpu_aware(choice: net.Choice | None, settings: config.Config, ranks: Ranks) -> tuple[str, list[str], str]:
    """HPCCOLL_GPU_AWARE_MPI, the devices with a proof, and the reason if there are none."""
    library = proofs.library(choice.provider.library()) if choice else ""
    if not library:
        return "no", [], ""
    env = inherited.environment()
    launched = detect.place(env)
    here = proofs.setup(library, launched.launcher if launched else "", env)
    found = proofs.verdict(*ranks.proofs, here, len(ranks.machines.values))
    return settings.gpu_aware_mpi, found.devices, found.why


# ---- the line at the start ----------------------------------------------------------------------------------


def _start_line(base: Base) -> str:
    loop, settings = base.loop, base.settings
    counts = [loop.node_of.count(n) for n in range(max(loop.node_of) + 1)]
    ranks_of_nodes = "+".join(map(str, counts[:16])) + "+..." * (len(counts) > 16)
    nodes = f"{len(counts)} node{'s' if len(counts) > 1 else ''} ({ranks_of_nodes})"
    emulated = f", emulated by HPCCOLL_NODES={settings.nodes}" if settings.nodes else ""
    ordered = f", ordered by {base.ordered}" if base.ordered else ""
    between = f", between nodes {base.net.provider.describe()} ({base.net.why})" if base.net else ""
    driver = "a background thread drives" if loop.background else "waiting callers drive (no background thread)"
    device = f"; device memory of GPU {loop.device.number} ({loop.device.pci})" if loop.device else ""
    ranks = f"{loop.size} rank{'s' if loop.size > 1 else ''}"
    started, met = detect.started_by(inherited.environment()), base.rendezvous.describe()
    return (
        f"hpccoll {_core.VERSION}: {ranks} on {nodes}{emulated}{ordered}; inside a node shared memory "
        f"({_core.kernels()}){between}{device}; {driver}; waits: {loop.waiting()}; stores: {loop.stores()}"
        f"{'; ' if started else ''}{started}{'; ' if met else ''}{met}"
    )
