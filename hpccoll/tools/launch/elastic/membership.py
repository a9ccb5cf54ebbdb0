# SPDX-License-Identifier: Apache-2.0
"""Membership of an elastic job: the coordinator as a function, `step(event, now) -> actions`.

Like the engine it has no clock, process or socket: time is an argument, and the caller performs the actions.
tests/elastic/test_membership.py runs it under random interleavings. README.md has the rules E1 to E9.
"""

from dataclasses import dataclass

from hpccoll.text import some_ranks
from hpccoll.tools.launch.elastic.events import (
    Action,
    Answer,
    Came,
    Change,
    Discovered,
    Done,
    Early,
    End,
    Event,
    Form,
    Gone,
    Halted,
    HostLost,
    Kill,
    Leaving,
    Release,
    Say,
    Start,
    Tick,
    Void,
)
from hpccoll.tools.launch.elastic.hosts import Hosts
from hpccoll.tools.launch.elastic.options import EXCLUDE
from hpccoll.tools.launch.elastic.worker import STOPPED_AFTER, Phase, Worker, how_to_continue, place_of

LOST = "all ranks that had the state are lost"
REPORT_EVERY = 10.0
"""Seconds between two lines about what is awaited."""


@dataclass(frozen=True)
class Limits:
    """The limits that the user sets."""

    np: int
    """Ranks to begin with."""
    min_np: int
    max_np: int
    elastic_timeout: float = 600.0
    """Seconds to wait for `min_np` ranks."""
    reset_limit: int | None = None
    """The largest number of changes of the ranks."""
    straggler_timeout: float = 60.0
    """Seconds that the first rank of a round waits for the others before these are killed."""
    peer_timeout: float = 5.0
    """Seconds after which a stopped rank counts as lost if another rank waits for it; 0: never."""
    gather: float = 3.0
    """Seconds that a newcomer waits for others that are starting, so that they join in the same change."""
    host_failures: int = 3
    exclude_host_on_failure: bool = False
    """Whether an excluded host loses its healthy ranks, too."""
    cooldown: tuple[float, float] | None = None
    discovers: bool = False
    """Whether hosts may still come."""


class Membership:
    """The coordinator. See the module."""

    def __init__(self, limits: Limits) -> None:
        """Begin without hosts and workers."""
        self.limits = limits
        self.hosts = Hosts(limits.host_failures, limits.cooldown)
        self.workers: dict[int, Worker] = {}
        self.generation = 0
        self.members: tuple[int, ...] = ()
        self.next_worker = 0
        self.open_since: float | None = 0.0
        """The time at which the present round began; None: the generation runs."""
        self.short_since: float | None = None
        """Since when there have been too few ranks."""
        self.changing = False
        """Whether the members know of a coming change."""
        self.state_exists = False
        """Whether a worker with a commit was ever ready."""
        self.finishing = False
        """Whether the program of a worker has ended."""
        self.failed = False
        """Whether a member was lost after that."""
        self.unmended = False
        """Whether a member was lost, and no generation without it has begun since."""
        self.ended = False
        self.last_report = 0.0
        self.last_stopped_report = 0.0
        self.awaited: frozenset[int] = frozenset()
        """See Tick."""
        self.failing: set[str] = set()
        """The hosts whose failure this event reports. It counts once, however many ranks it has ended."""
        self.out: list[Action] = []

    def step(self, event: Event, now: float) -> list[Action]:
        """Take an event.

        :param now: in seconds, never less than before
        :returns: the actions, in their order
        """
        self.out = []
        self.failing.clear()
        if self.ended:
            return []
        self.last_report = self.last_report or now
        match event:
            case Discovered(slots):
                self.hosts.set(slots)
            case Early(worker):
                self._answer(worker)
            case Came():
                self._come(event, now)
            case Gone(worker, status, how):
                self._go(worker, status, how, now)
            case HostLost(host, how):
                self._lose_host(host, how, now)
            case Halted(worker, process):
                if worker in self.workers:
                    self.workers[worker].process, self.workers[worker].stopped_at = process, now
            case Leaving(worker):
                self._bar(worker)
            case Done(worker):
                self._finish(worker, now)
            case Tick(awaited):
                self.awaited = awaited
        self._go_on(now)
        return self.out

    # ---- one event ------------------------------------------------------------------------------------

    def _answer(self, number: int) -> None:
        """E2: a worker that is early is not ready. It is told where it will be if all come in that are being started.

        Before the first generation it is told to come, because the program may need the World at once.
        """
        worker = self.workers.get(number)
        if worker is None or worker.phase is not Phase.STARTING:
            return
        worker.early = bool(self.generation)
        members = [self.workers[m] for m in self.members if m in self.workers]
        staying = [w for w in members if w.phase in (Phase.MEMBER, Phase.READY) and self._may_stay(w)]
        new = [w for w in self._newcomers() if w is worker or self._may_stay(w)]
        self.out.append(Answer(number, place_of(worker, [*staying, *new]) if self.generation else None))

    def _come(self, event: Came, now: float) -> None:
        """E2: a worker returns from the running generation, or is ready for the first time."""
        worker = self.workers.get(event.worker)
        if worker is None or worker.phase in (Phase.ENDING, Phase.DONE, Phase.READY):
            return
        was_member = worker.phase is Phase.MEMBER
        if was_member != (event.generation == self.generation and self.generation > 0):
            self._kill(worker, f"it comes from generation {event.generation}, which it is not in", now)
            return
        self._enter(worker, Phase.READY, now)
        worker.has_state = event.has_state
        self.state_exists |= event.has_state
        if not was_member:
            return
        for rank, why in sorted(event.lost.items()):
            accused = self.workers.get(self.members[rank]) if rank < len(self.members) else None
            if accused and accused.phase is Phase.MEMBER:
                self._kill(accused, f"rank {self.members.index(event.worker)} has lost it: {why}", now)
        self._open("ranks were lost" if event.lost else "the ranks change", now)

    def _go(self, number: int, status: int, how: str, now: float) -> None:
        """E3: a process has ended."""
        worker = self.workers.get(number)
        if worker is None:
            return
        if not status and worker.phase is not Phase.ENDING:
            self._finish(number, now)
        del self.workers[number]
        del self.hosts.known[worker.host].occupants[worker.slot]
        if worker.phase is Phase.DONE and not status:
            return
        if worker.phase is not Phase.ENDING:
            self._lose(worker, how, now)
        if number in self.members:
            self._open(f"rank {self.members.index(number)} was lost", now)

    def _lose_host(self, host: str, how: str, now: float) -> None:
        """E3: all processes of a host have ended, or are unreachable."""
        for number in [worker.number for worker in self.workers.values() if worker.host == host]:
            self._go(number, 255, how, now)

    def _bar(self, number: int) -> None:
        """E7: a worker is to leave, and no other one takes its slot."""
        if worker := self.workers.get(number):
            self.hosts.known[worker.host].barred.add(worker.slot)

    def _finish(self, number: int, now: float) -> None:
        """E8: the program has ended on a member, so no new worker is needed."""
        worker = self.workers.get(number)
        if worker is None or worker.phase is Phase.ENDING:
            return
        self._enter(worker, Phase.DONE, now)
        self.finishing = True
        for other in list(self.workers.values()):
            if other.number in self.members:
                continue
            if other.phase is Phase.STARTING:
                self._kill(other, "the program has come to its end", now)
            elif other.phase is Phase.READY:
                self._release(other, "the program has come to its end")

    # ---- decisions about all workers --------------------------------------------------------------------

    def _go_on(self, now: float) -> None:
        if self._all_has_ended():
            return
        self._clear_away(now)
        self._watch_stopped(now)
        if not self.finishing:
            self._fill(now)
        if self.open_since is not None:
            self._close(now)
        elif not self.finishing and not self.changing:
            self._announce(now)
        elif self.finishing:
            left = [rank for rank, number in enumerate(self.members) if number in self.workers]
            self._report(f"the program has ended on some ranks, and not yet on {some_ranks(left)}", now)
        elif self.changing:
            self._report("the ranks know of a change, and none of them has come to state.commit() since", now)

    def _all_has_ended(self) -> bool:
        counting = self.members if self.generation else tuple(self.workers)
        alive = [self.workers[m] for m in counting if m in self.workers]
        ready = [w for w in alive if w.phase is Phase.READY and (w.has_state or not self.state_exists)]
        having = ready or [w for w in alive if w.phase is Phase.MEMBER]
        if self.finishing and not alive:
            failed = self.failed or self.unmended
            self._end(1 if failed else 0, "ranks were lost, and others came to the end without them" * failed)
        elif self.generation and not self.finishing and not having:
            self._end(1, LOST)
        return self.ended

    def _clear_away(self, now: float) -> None:
        """Remove workers that are no members yet and whose slot is gone."""
        for worker in [w for w in self.workers.values() if w.number not in self.members and not self._may_stay(w)]:
            if worker.phase is Phase.STARTING:
                self._kill(worker, "its slot is gone", now)
            elif worker.phase is Phase.READY:
                self._release(worker, "its slot is gone")

    def _watch_stopped(self, now: float) -> None:
        """E5: a stopped rank for which others wait is lost. Only the launcher can say that all ranks are stopped."""
        stopped = [w for w in self.workers.values() if w.process and w.phase is not Phase.ENDING]
        timeout = self.limits.peer_timeout
        for worker in [w for w in stopped if timeout and now - w.stopped_at >= timeout and self._is_awaited(w)]:
            why = f"it has been stopped (state T) for {now - worker.stopped_at:.0f} s"
            if worker.phase is Phase.STARTING:
                self._lose(worker, why, now)
            self._kill(worker, why, now)
        left = [w for w in stopped if w.phase is not Phase.ENDING and now - w.stopped_at >= STOPPED_AFTER]
        if left and now - self.last_stopped_report >= REPORT_EVERY:
            self.last_stopped_report = now
            self.out.append(Say(how_to_continue(left, self.members)))

    def _is_awaited(self, worker: Worker) -> bool:
        """Whether others make a World and wait for it, or are ready; for a new one if there are too few without it."""
        if self.open_since is None:
            return worker.phase is Phase.MEMBER and worker.number in self.awaited
        if worker.phase is Phase.STARTING:
            return self.short_since is not None and any(w.phase is Phase.READY for w in self.workers.values())
        return worker.phase is Phase.MEMBER

    def _fill(self, now: float) -> None:
        """E4: start a worker in each free slot, up to `max_np`; to begin with, `np`."""
        counted = [w for w in self.workers.values() if w.phase is not Phase.ENDING and self._may_stay(w)]
        wanted = self.limits.max_np if self.generation else self.limits.np
        for host, slot in list(self.hosts.free(now))[: max(0, wanted - len(counted))]:
            worker = Worker(self.next_worker, host, slot, since=now)
            self.next_worker += 1
            self.workers[worker.number] = worker
            self.hosts.known[host].occupants[slot] = worker.number
            self.out.append(Start(worker.number, host, slot))

    def _close(self, now: float) -> None:
        """E5: form the next generation when all expected workers are ready."""
        assert self.open_since is not None
        members = [self.workers[m] for m in self.members if m in self.workers]
        awaited = [w for w in members if w.phase is Phase.MEMBER]
        starting = [w for w in self.workers.values() if w.phase is Phase.STARTING]
        if awaited and now - self.open_since < self.limits.straggler_timeout:
            late = some_ranks(self.members.index(worker.number) for worker in awaited)
            self._report(f"waiting for {late}, to form the next generation", now)
            return
        for worker in awaited:
            self._kill(worker, f"it did not come within {self.limits.straggler_timeout:g} s of the first rank", now)
        if self._all_has_ended():
            return
        self._give_back(members)
        chosen = self._chosen()
        wanted = self.limits.np if not self.generation and starting else self.limits.min_np
        patience = min(self.limits.straggler_timeout, self.limits.elastic_timeout)
        if self.short_since is not None and now - self.short_since >= patience:
            wanted = self.limits.min_np
        if chosen and (len(chosen) >= wanted or self.finishing):
            self._form(chosen, now)
            return
        self._wait_for_ranks(len(chosen), wanted, bool(starting), now)

    def _give_back(self, members: list[Worker]) -> None:
        """Release the survivors whose slots are gone, if another worker has the state."""
        survivors = [w for w in members if w.phase is Phase.READY]
        if self.finishing:
            for worker in survivors:
                if self.state_exists and not worker.has_state:
                    self._release(worker, "the program has come to its end")
        elif any(self._may_stay(w) and (w.has_state or not self.state_exists) for w in survivors):
            for worker in survivors:
                if not self._may_stay(worker):
                    self._release(worker, "its slot is to be given back")

    def _chosen(self) -> list[int]:
        """E6: choose survivors in their old order, then newcomers, `max_np` at most.

        If all survivors must leave, they first give the state to newcomers: without newcomers, no worker is chosen.
        """
        ready = [n for n, w in self.workers.items() if w.phase is Phase.READY]
        survivors = [m for m in self.members if m in ready]
        newcomers = [n for n in ready if n not in survivors]
        if survivors and not newcomers and not any(self._may_stay(self.workers[s]) for s in survivors):
            return []
        return [*survivors, *newcomers][: max(self.limits.max_np, len(survivors) + 1)]

    def _form(self, chosen: list[int], now: float) -> None:
        limit = self.limits.reset_limit
        if limit is not None and self.generation > limit and not self.finishing:
            self._end(1, f"the ranks would change again, after {self.generation - 1} changes: --reset-limit is {limit}")
            return
        before = set(self.members)
        self.generation += 1
        self.members = tuple(chosen)
        self.open_since = self.short_since = None
        self.changing = self.unmended = False
        for number in chosen:
            self._enter(self.workers[number], Phase.MEMBER, now)
        self.out.append(Form(self.generation, self.members))
        if self.generation > 1:
            new = len(set(chosen) - before)
            ranks = f"{len(chosen)} rank{'s' if len(chosen) > 1 else ''}"
            self.out.append(Say(f"generation {self.generation}: {ranks}, {new} of them new"))

    def _announce(self, now: float) -> None:
        """E7: tell the members about a change that can wait for the end of their step."""
        members = [self.workers[m] for m in self.members if m in self.workers]
        leaving = [w for w in members if not self._may_stay(w)]
        new = [w for w in self.workers.values() if w.phase is Phase.READY]
        starting = any(w.phase is Phase.STARTING for w in self.workers.values())
        wait = starting and new and now - min(w.since for w in new) < self.limits.gather
        takes = len(members) - len(leaving) < self.limits.max_np
        if (leaving and (new or len(leaving) < len(members) or not starting)) or (new and takes and not wait):
            self.changing, self.last_report = True, now
            numbers = tuple(w.number for w in members)
            self.out.append(Change(self.generation, numbers, not leaving))

    def _wait_for_ranks(self, count: int, wanted: int, starting: bool, now: float) -> None:
        """E9: there are too few ranks: wait, and end the job at the limit, with the reason."""
        limits, ranks = self.limits, f"{count} rank{'' if count == 1 else 's'}"
        if self.short_since is None:
            self.short_since = now
        if not starting and not limits.discovers and not self.hosts.may_come():
            why = "all hosts are excluded, or have been asked to leave"
            self._end(1, f"{ranks}, --min-np is {limits.min_np}, and no more can come: {why}")
        elif now - self.short_since >= limits.elastic_timeout:
            waited = f"after {limits.elastic_timeout:g} s (--elastic-timeout)"
            self._end(1, f"{ranks}, --min-np is {limits.min_np}, and no more had come {waited}{self._early()}")
        else:
            option = "--min-np" if wanted == limits.min_np else "-np"
            self._report(f"{ranks} ready, waiting for {wanted} ({option}){self._early()}", now)

    # ---- helpers ----------------------------------------------------------------------------------------

    def _newcomers(self) -> list[Worker]:
        found = [w for w in self.workers.values() if w.number not in self.members]
        return [w for w in found if w.phase in (Phase.STARTING, Phase.READY)]

    def _early(self) -> str:
        """Say how many workers have called init() only: the rest of a line, which may be the reason for the wait."""
        count = sum(w.early for w in self.workers.values() if w.phase is Phase.STARTING)
        who = f"{count} new ranks have" if count > 1 else "a new rank has"
        return f"; {who} called init(), and not elastic.run() yet" if count else ""

    def _may_stay(self, worker: Worker) -> bool:
        return self.hosts.keeps(worker.host, worker.slot)

    def _enter(self, worker: Worker, phase: Phase, now: float) -> None:
        worker.phase, worker.since = phase, now

    def _open(self, why: str, now: float) -> None:
        """Begin a round, unless one is open."""
        if self.open_since is None:
            self.open_since = self.last_report = now
            self.out.append(Void(self.generation, why))

    def _kill(self, worker: Worker, why: str, now: float) -> None:
        """E3: kill a worker that was declared lost, so that it cannot return."""
        if worker.number in self.members:
            self._lose(worker, why, now)
        worker.phase = Phase.ENDING
        self.out.append(Kill(worker.number, why))

    def _release(self, worker: Worker, why: str) -> None:
        worker.phase = Phase.ENDING
        self.out.append(Release(worker.number, why))

    def _lose(self, worker: Worker, how: str, now: float) -> None:
        """Print the loss, and count it as a failure of the host."""
        where = f"host {worker.host}, slot {worker.slot}"
        if worker.number in self.members:
            self.out.append(Say(f"rank {self.members.index(worker.number)} ({where}) was lost: {how}"))
            self.failed, self.unmended = self.failed or self.finishing, True
        else:
            self.out.append(Say(f"a new rank ({where}) ended before it came in: {how}"))
        counts = worker.host not in self.failing
        self.failing.add(worker.host)
        if counts and self.hosts.fail(worker.host, now):
            left = self.hosts.known[worker.host].excluded_until - now
            until = f"for {left:g} s" if left < float("inf") else "for the rest of the job"
            why = "a rank has failed" if self.limits.host_failures == 1 else "its ranks have failed repeatedly"
            self.out.append(Say(f"host {worker.host} is excluded {until}: {why}"))
            if self.limits.exclude_host_on_failure:
                self._empty(worker, now)

    def _empty(self, failed: Worker, now: float) -> None:
        """Kill the healthy ranks of the host on which a rank has failed."""
        for other in list(self.workers.values()):
            if other.host == failed.host and other is not failed and other.phase not in (Phase.ENDING, Phase.DONE):
                self._kill(other, f"a rank of its host has failed: {EXCLUDE}", now)

    def _report(self, text: str, now: float) -> None:
        if now - self.last_report >= REPORT_EVERY:
            self.last_report = now
            self.out.append(Say(text))

    def _end(self, status: int, why: str) -> None:
        self.ended = True
        self.out.append(End(status, why))
