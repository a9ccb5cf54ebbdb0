# SPDX-License-Identifier: Apache-2.0
"""An elastic job in the memory of one process: the real coordinator, and workers that step, commit, die and stop.

Messages between them are delayed at random, and keep their order in each direction. `Job.check` runs after every event.
The launcher may die: `Job.lose_launcher` simulates the reaction of agents and workers.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpccoll.elastic import versions
from hpccoll.elastic.versions import NONE, Commit, Report, Version
from hpccoll.launch_protocol import Place
from hpccoll.tools.launch.elastic.events import (
    Answer,
    Came,
    Change,
    Discovered,
    Done,
    Early,
    End,
    Form,
    Gone,
    Halted,
    Kill,
    Leaving,
    Release,
    Start,
    Tick,
    Void,
)  # fmt: skip
from hpccoll.tools.launch.elastic.membership import LOST, Limits, Membership, Phase

LAST = 12
"""The step after which the program ends."""


class BrokenRuleError(AssertionError):
    """A rule of membership was broken."""


@dataclass(frozen=True)
class Cut:
    """The connection to the coordinator has ended."""


@dataclass
class Worker:
    number: int
    host: str
    slot: int
    alive: bool = True
    stopped: bool = False
    generation: int = 0
    held: Report = field(default_factory=Report)
    """Its commits."""
    contents: dict[Version, int] = field(default_factory=dict)
    """The contents of the commits; equal for equal histories."""
    synced: bool = False
    entered: int = 0
    state: str = "starting"
    """starting, asking (in an early init()), preparing (told its place), waiting, member, done"""
    told: bool = False
    """Whether it knows of a change."""
    cut: bool = False
    """Whether it knows that its launcher is gone."""
    inbox: deque = field(default_factory=deque)
    outbox: deque = field(default_factory=deque)

    @property
    def version(self) -> Version:
        return self.held.last.version

    def keep(self, version: Version, content: int, place: tuple[int, int], *, two: bool) -> None:
        older = self.held.last if two else Commit()
        self.held = Report(Commit(version, *place), older, self.held.since or self.generation)
        kept = {commit.version for commit in self.held.held()}
        self.contents = {of: what for of, what in {**self.contents, version: content}.items() if of in kept}


@dataclass
class World:
    members: tuple[int, ...]
    change_at: int | None = None
    reports: list[Report] = field(default_factory=list)
    """The reports that the members have exchanged, once all of them were ready."""
    content: int = 0
    """The contents of the chosen commit."""


class Job:
    def __init__(
        self, seed: int, limits: Limits, kind: type[Membership] = Membership, choose: "Chooser | None" = None
    ) -> None:
        """A state is sharded in half of the jobs, in all of them if `choose` is given."""
        self.random = random.Random(seed)
        self.sharded = bool(choose) or random.Random(-seed - 1).random() < 0.5
        self.choose = choose or (versions.common if self.sharded else versions.newest)
        self.coordinator = kind(limits)
        self.limits, self.now = limits, 100.0
        self.workers: dict[int, Worker] = {}
        self.worlds: dict[int, World] = {}
        self.floor = 0
        """A commit that all members of some generation have made: it must not be lost."""
        self.end: End | None = None
        self.said: list[str] = []
        self.launcher_lives = True
        self.undisturbed: tuple[int, ...] = ()
        """The members that must reach the end of the program, because only the launcher was lost."""
        self.kills: deque[int] = deque()
        self.killed: set[int] = set()
        """All workers that were declared lost, also those whose messages were still under way."""

    # ---- the coordinator -----------------------------------------------------------------------------

    def tell(self, event: object) -> bool:
        """Let the coordinator take an event; return whether it acted."""
        if not self.launcher_lives:
            return False
        while isinstance(event, Early) and self.tell(Tick()):
            pass  # what only waits for its time, or for the step after a new generation
        actions = self.coordinator.step(event, self.now)
        quiet = all(isinstance(action, Answer) for action in actions)
        require(quiet or not isinstance(event, Early), "nobody waits for a worker that is not ready")
        for action in actions:
            match action:
                case Start(worker, host, slot):
                    self.workers[worker] = Worker(worker, host, slot)
                case Kill(worker):
                    self.kills.append(worker)
                    self.killed.add(worker)
                case Form(generation, members):
                    self.form(generation, members)
                case Change(_, members) | Void(_, members):
                    for m in members if isinstance(action, Change) else ():
                        self.workers[m].inbox.append(action)
                case Release(worker):
                    self.workers[worker].inbox.append(action)
                case Answer(worker, place):
                    self.check_place(place)
                    self.workers[worker].inbox.append(action)
                case End():
                    self.end = action
                    done = [w for w in self.workers.values() if w.state == "done" and not w.outbox]
                    through = any(w.number not in self.killed for w in done)
                    require(action.why != LOST or not through, "a program that has come to its end has lost nothing")
        self.check()
        return bool(actions)

    def form(self, generation: int, members: tuple[int, ...]) -> None:
        before = self.worlds[generation - 1].members if generation > 1 else ()
        require(generation == len(self.worlds) + 1, "generations count up, each is formed once")
        require(len(set(members)) == len(members), "a worker has one rank")
        enough = self.limits.min_np <= len(members) or self.coordinator.finishing
        require(enough and len(members) <= self.limits.max_np + len(before), "min_np <= size")
        kept = [m for m in members if m in before]
        require(not before or bool(kept), "somebody has the state")
        require(list(members[: len(kept)]) == [m for m in before if m in kept], "survivors first, in their old order")
        for m in before:
            phase = self.coordinator.workers[m].phase if m in self.coordinator.workers else None
            require(phase is not Phase.MEMBER or m in members, "no rank of the last generation is left in it")
        for m in members:
            worker = self.workers[m]
            require(m not in self.kills, "what was declared lost does not come back")
            require(worker.state == "waiting" or not worker.alive, "a worker is in one generation at a time")
            worker.inbox.append(Form(generation, members))
        self.worlds[generation] = World(members)

    def check_place(self, place: Place | None) -> None:
        """Check what a new worker tells its program before it is in; None: it is to come."""
        require((place is None) == (not self.worlds), "init() makes the first generation, and no other one")
        if place is not None:
            staying = [m for m in self.coordinator.members if m in self.coordinator.workers]
            survive = [m for m in staying if self.coordinator.workers[m].phase in (Phase.MEMBER, Phase.READY)]
            kept = [m for m in survive if self.coordinator._may_stay(self.coordinator.workers[m])]
            require(len(kept) <= place.rank < place.size, "a new worker is behind all that stay")
            require(place.local_rank < place.local_size and place.cross_rank < place.cross_size, "places count from 0")

    def check(self) -> None:
        in_slot = [(w.host, w.slot) for w in self.coordinator.workers.values()]
        require(len(set(in_slot)) == len(in_slot), "a slot has one worker")

    def lose_launcher(self) -> None:
        """End the launcher's process: its messages may be lost, and the agents kill workers outside of a generation."""
        members = [self.workers[m] for m in self.coordinator.members]
        self.launcher_lives = False
        calm = self.coordinator.open_since is None and not self.coordinator.changing and not self.kills
        if calm and all(w.state == "member" and w.alive and not (w.stopped or w.told) for w in members):
            self.undisturbed = self.coordinator.members
        for worker in self.workers.values():
            worker.inbox = deque(list(worker.inbox)[: self.random.randint(0, len(worker.inbox))])
            worker.inbox.append(Cut())
            worker.outbox.clear()
            if worker.number not in self.trains():
                self.die(worker)

    def trains(self) -> tuple[int, ...]:
        """Return the workers that the agents do not end."""
        return self.coordinator.members

    def end_alone(self, worker: Worker) -> None:
        """End a worker that needs the launcher; its agent ends the workers of its host, and all others lose it."""
        self.die(worker, 1)
        for other in self.workers.values():
            if other.host == worker.host and other.state != "done":
                self.die(other)

    def left_alone(self) -> None:
        """Judge the job when all its workers have ended."""
        states = [self.workers[m].state for m in self.undisturbed]
        require(all(state == "done" for state in states), f"training goes on without the launcher: {states}")
        self.end = End(1, "the launcher is gone")

    # ---- one thing happens ---------------------------------------------------------------------------

    def happen(self, *, faults: bool) -> None:
        self.now += self.random.choice((0.0, 0.01, 0.3))
        live = [w for w in self.workers.values() if w.alive]
        pick = self.random.random()
        if faults and pick < 0.02:
            self.strike(live)
        elif pick < 0.1:
            self.tell(Tick())
        elif self.kills and pick < 0.15:
            self.die(self.workers[self.kills.popleft()])
        elif live:
            self.act(self.random.choice(live))
        elif not self.launcher_lives:
            self.left_alone()

    def strike(self, live: list[Worker]) -> None:
        kind = self.random.choice(("kill", "kill", "stop", "wake", "leave", "hosts"))
        if self.random.random() < 0.04 and self.launcher_lives:
            self.lose_launcher()
            return
        self.undisturbed = ()
        worker = self.random.choice(live) if live else None
        if kind == "hosts":
            self.tell(Discovered({name: self.random.choice((1, 2)) for name in ("a", "b", "c")}))
        elif worker and kind == "kill":
            self.die(worker)
        elif worker and kind == "stop":
            self.halt(worker, stopped=True)
        elif worker and kind == "wake":
            self.halt(worker, stopped=False)
        elif worker and worker.state == "member":
            worker.outbox.append(Leaving(worker.number))

    def halt(self, worker: Worker, *, stopped: bool) -> None:
        """Let the agent of its host report the change to the coordinator."""
        if worker.alive and stopped != worker.stopped:
            worker.stopped = stopped
            worker.outbox.append(Halted(worker.number, 1000 + worker.number if stopped else 0))

    def die(self, worker: Worker, status: int = -9) -> None:
        if worker.alive:
            worker.alive = False
            worker.outbox.append(Gone(worker.number, status, "it was killed" if status else "it ended"))
            while worker.outbox:
                self.tell(worker.outbox.popleft())

    # ---- a worker ------------------------------------------------------------------------------------

    def act(self, worker: Worker) -> None:
        if worker.outbox and self.random.random() < 0.5:
            self.tell(worker.outbox.popleft())
        elif worker.stopped:
            self.halt(worker, stopped=self.random.random() < 0.95)
        elif worker.inbox and (worker.state != "member" or self.random.random() < 0.5):
            self.hear(worker, worker.inbox.popleft())
        elif worker.state == "starting" and self.random.random() < 0.5:
            worker.state = "asking"
            worker.outbox.append(Early(worker.number))
        elif worker.state == "starting" or (worker.state == "preparing" and self.random.random() < 0.2):
            self.come(worker, {})
        elif worker.state == "member":
            self.go_on(worker, self.worlds[worker.generation])
        elif worker.state == "done" and not worker.outbox:
            self.die(worker, 0)

    def hear(self, worker: Worker, news: object) -> None:
        match news:
            case Form(generation, _):
                worker.generation, worker.state, worker.synced, worker.told = generation, "member", False, False
            case Change(generation):
                worker.told = worker.told or generation == worker.generation
            case Release():
                self.die(worker, 0)
            case Answer(_, place):
                worker.state = "preparing"
                if place is None:
                    self.come(worker, {})
            case Cut():
                worker.cut = True
                if worker.state in ("starting", "asking", "preparing", "waiting"):
                    self.end_alone(worker)

    def come(self, worker: Worker, lost: dict[int, str]) -> None:
        if worker.cut:
            self.end_alone(worker)
            return
        worker.state = "waiting"
        worker.outbox.append(Came(worker.number, worker.generation, lost, worker.version > (0, 0)))

    def go_on(self, worker: Worker, world: World) -> None:
        """Let a member make its next action: notice a loss, sync, enter a step, or commit it."""
        others = [self.workers[m] for m in world.members]
        here = [w for w in others if w.generation == worker.generation and w.state in ("member", "done")]
        away = [w for w in others if w.state != "done" and (not w.alive or w.stopped) and w is not worker]
        away += [w for w in others if w.alive and w.state == "waiting" and w.generation == worker.generation]
        through = worker.synced and worker.version[1] < worker.entered and self.have_entered(others, worker)
        if away and not through and not (worker.synced and worker.version[1] >= LAST):
            lost = {world.members.index(w.number): "gone" for w in away if not w.alive or w.stopped}
            self.come(worker, lost)
        elif not worker.synced:
            if len(here) == len(others) or world.reports:
                self.sync(worker, world)
        elif through:
            self.commit(worker, world)
        elif worker.version[1] >= LAST:
            worker.state = "done"
            worker.outbox.append(Done(worker.number))
        elif worker.version[1] == worker.entered:
            worker.entered += 1

    def have_entered(self, others: list[Worker], worker: Worker) -> bool:
        return all(w.entered >= worker.entered and w.generation >= worker.generation and w.synced for w in others)

    def sync(self, worker: Worker, world: World) -> None:
        """Take the chosen commit: each rank takes its part of a sharded state, newcomers the parts of others."""
        members = [self.workers[m] for m in world.members]
        first = not world.reports
        world.reports = world.reports or [w.held for w in members]
        version = self.choose(world.reports)
        require(version is not None, f"the ranks have a commit in common: {world.reports}")
        lost = first and version[1] < self.floor
        require(not lost, f"commit {self.floor} is not lost, chosen is {version}")
        if first and version != NONE:
            world.content = next(w.contents[version] for w in members if version in w.contents)
        own = world.content
        if self.sharded and version != NONE and 0 < worker.held.since <= version[0]:
            require(version in worker.contents, f"worker {worker.number} has its part of {version}: {worker.held}")
            own = worker.contents[version]
        if self.sharded and worker.held.older.version == version != NONE:
            worker.held = Report(worker.held.older, since=worker.held.since)
        place = world.members.index(worker.number), len(world.members)
        worker.keep((worker.generation, version[1]), own, place, two=self.sharded)
        worker.entered, worker.synced = version[1], True

    def commit(self, worker: Worker, world: World) -> None:
        number = worker.version[1] + 1
        content = hash((worker.contents[worker.version], worker.generation, number))
        place = world.members.index(worker.number), len(world.members)
        worker.keep((worker.generation, number), content, place, two=self.sharded)
        members = [self.workers[m] for m in world.members]
        if all(w.version[1] >= number for w in members):
            self.floor = max(self.floor, number)
        same = {w.contents[w.version] for w in members if w.version == worker.version}
        require(len(same) == 1, f"ranks have different states at commit {worker.version}")
        if worker.told and world.change_at is None:
            world.change_at = number + 1
        if world.change_at is not None and number >= world.change_at:
            self.come(worker, {})


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise BrokenRuleError(rule)


Chooser = Callable[[Sequence[Report]], Version | None]


def run(
    seed: int,
    kind: type[Membership] = Membership,
    choose: Chooser | None = None,
    *,
    job: type[Job] = Job,
    struck: int = 400,
    quiet: int = 6000,
) -> Job:
    """Run a job: first with faults, then without, until it has ended."""
    draw = random.Random(seed)
    limits = Limits(np=draw.choice((2, 3)), min_np=draw.choice((1, 2)), max_np=draw.choice((3, 4)), elastic_timeout=60,
                    straggler_timeout=5, gather=0.5, host_failures=draw.choice((3, 50)), discovers=draw.random() < 0.5,
                    cooldown=draw.choice((None, (1.0, 4.0))), exclude_host_on_failure=draw.random() < 0.2)  # fmt: skip
    made = job(seed, limits, kind, choose)
    made.tell(Discovered({"a": 2, "b": 2}))
    for count in range(struck + quiet):
        made.happen(faults=count < struck)
        if made.end:
            return made
    raise BrokenRuleError(f"the job hangs: generation {made.coordinator.generation}, {made.coordinator.workers}")
