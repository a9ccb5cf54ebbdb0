# SPDX-License-Identifier: Apache-2.0
"""The end of the process: shuts open Worlds down; a broken World ends the job with an error."""

import atexit
import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

from hpccoll import _core, errors
from hpccoll.rendezvous import CoordinatedRendezvous
from hpccoll.text import say

__all__ = ["begin_shutdown", "ends_broken", "exits_by", "forget", "lacking_ranks_end_the_job", "watch"]

_open: dict[Any, None] = {}
"""The Worlds to end. A World that the program drops stays here, because only all ranks together can end it."""
_ended_broken: list[Any] = []
"""The rendezvous of Worlds that the program has shut down after they broke."""
_lacking: list[Any] = []
"""The rendezvous that lacked ranks at the start, until a later one is complete."""
_exits: list[SystemExit] = []
"""The exits by which the program leaves elastic.run(), which Python does not keep as it keeps other exceptions."""
_in_finalize: list[int] = []
"""The key of the attribute whose deletion by MPI_Finalize ends the Worlds that are on MPI."""
_patience = 0.0
"""Seconds after which a process that ends after a failure reports that MPI_Finalize waits; 0: no report."""
AFTER_WELL = 6
"""Factor of `_patience` for a process without failure: it is normal that other ranks still compute."""


def watch(world: Any) -> None:
    """Shut this World down at the end of the process, unless the program does so. Process sets end with their World."""
    global _patience
    if world.core.number != 0:
        return
    _open[world] = None
    _patience = world.base.settings.stall_warning
    if not _in_finalize and _is_over_mpi(world):
        _end_worlds_in_finalize()


def forget(world: Any) -> None:
    """Call this when a World has been shut down."""
    _open.pop(world, None)


def begin_shutdown(core: _core.Set, *, waits: bool) -> _core.Handle:
    """Begin the barrier before the end of a process set.

    :param waits: the caller waits for it next
    """
    return core.collective("barrier", None, "hpccoll.shutdown", None, waits, last=True)


def _announce(worlds: list[Any]) -> None:
    """Tell the other ranks that this one ends these Worlds, before it waits for any of them.

    A rank that asks for an operation of one of them gets its error at once.
    """
    for world in worlds:
        with contextlib.suppress(errors.HpccollError):  # shutdown() finds out
            world.base.shutdown = begin_shutdown(world.core, waits=False)


def _is_over_mpi(world: Any) -> bool:
    return getattr(world.base.rendezvous, "comm", None) is not None and sys.modules["mpi4py.MPI"].Is_initialized()


def _end_worlds_in_finalize() -> None:
    """Shut Worlds down in MPI_Finalize, if the program calls it: it first deletes the attributes of MPI_COMM_SELF."""
    mpi = sys.modules["mpi4py.MPI"]
    keyval = mpi.Comm.Create_keyval(delete_fn=_finalize)
    mpi.COMM_SELF.Set_attr(keyval, None)
    _in_finalize.append(keyval)


def _finalize(*_: object) -> None:
    if not _in_finalize:  # the process ends, and its Worlds have ended
        return
    worlds = [world for world in _open_worlds() if _is_over_mpi(world)]
    _announce(worlds)
    for world in worlds:
        with contextlib.suppress(errors.HpccollError):
            world.shutdown()


def _open_worlds() -> list[Any]:
    """Return the Worlds to end, in the order of the random words that the ranks of each share.

    The order in which threads have made them may be another one on each rank, and ranks that ended two Worlds in
    different orders would wait for each other.
    """
    worlds = [world for world in list(_open) if not world.core.closed and not world.base.loop.forked]
    return sorted(worlds, key=lambda world: world.base.nonce)


def ends_broken(rendezvous: Any) -> None:
    """Remember that ranks of this rendezvous are lost: if an exception ends this process, it ends the job."""
    _ended_broken.append(rendezvous)


def exits_by(error: SystemExit) -> None:
    """Remember that the program ends with an error: the others learn it, as if another exception had ended it."""
    _exits.append(error)


@contextlib.contextmanager
def lacking_ranks_end_the_job(rendezvous: Any) -> Iterator[None]:
    """Guard a wait for all ranks: after a StartError this process ends the job, because MPI_Finalize would hang."""
    try:
        yield
    except errors.StartError:
        _lacking.append(rendezvous)
        raise
    _lacking.clear()


def _at_exit() -> None:
    """Shut open Worlds down. A broken World ends the job here, because MPI_Finalize would wait for a lost rank."""
    uncaught = getattr(sys, "last_value", None) or (_exits[-1] if _exits else None)
    worlds = _open_worlds()
    if uncaught is None:
        _announce(worlds)
    for world in worlds:
        with contextlib.suppress(errors.RecoverableError):  # reported below, with earlier failures
            _end_by(world, uncaught)
    broken = [w.base for w in worlds if w.base.failure and w.base.rendezvous.size > 1]
    for base in broken:
        reason = f"{type(base.failure).__name__}: {base.failure}"
        _give_up(base.rendezvous, "the World is broken", f" ({reason})")
    for rendezvous in _lacking[:1]:
        _give_up(rendezvous, "ranks were missing at the start")
    if uncaught and not broken:
        for rendezvous in _ended_broken:
            _give_up(rendezvous, "a World was broken when it ended")
    _in_finalize.clear()
    _say_what_finalize_waits_for(well=not (uncaught or broken or _lacking or _ended_broken))


def _end_by(world: Any, uncaught: BaseException | None) -> None:
    """End a World in order, or by an exception, which shutdown() tells to the other ranks if it is being handled."""
    if uncaught is None:
        world.shutdown()
        return
    world.base.record_exception(uncaught)
    try:
        raise uncaught
    except BaseException:  # noqa: BLE001 - the one that has ended the program
        world.shutdown(wait=False)


def _give_up(rendezvous: Any, why: str, more: str = "") -> None:
    elastic = isinstance(rendezvous, CoordinatedRendezvous)
    what = "this process ends, and its launcher lets the others go on" if elastic else "ending the job"
    say(f"hpccoll: rank {rendezvous.rank}: {why}, {what}{more}")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
        sys.stdout.flush()  # MPI_Abort discards its buffer
    _core.fail_at_exit()
    rendezvous.give_up()


def _say_what_finalize_waits_for(well: bool) -> None:
    mpi = sys.modules.get("mpi4py.MPI")
    if _patience and mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        seconds = _patience * (AFTER_WELL if well else 1)
        who = f"rank {mpi.COMM_WORLD.Get_rank()} of MPI_COMM_WORLD (host {platform.node()}, pid {os.getpid()})"
        how = "is done" if well else "ended after a failure"
        _core.say_later(
            seconds,
            f"hpccoll: {who} {how}, and has waited {seconds:g} s in MPI_Finalize for the other ranks; that is normal "
            f"while one of them still computes",
        )


def _after_fork() -> None:
    for world in _open:
        world.base.loop.mark_forked()
    _ended_broken.clear()
    _lacking.clear()
    _exits.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
