# SPDX-License-Identifier: Apache-2.0
"""The coordinator: chosen cases in words, random interleavings with faults, and planted faults that these must find."""

from collections.abc import Sequence
from typing import Any

import pytest
import simulated

from hpccoll.elastic import versions
from hpccoll.elastic.versions import NONE, Report, Version
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
    HostLost,
    Kill,
    Leaving,
    Release,
    Say,
    Start,
    Tick,
    Void,
)  # fmt: skip
from hpccoll.tools.launch.elastic.membership import Limits, Membership

SEEDS = 150
SLOW_SEEDS = 4000


class Script:
    """A coordinator whose events are told one by one; `kinds` picks actions of a class."""

    def __init__(self, hosts: dict[str, int], **limits: Any) -> None:
        self.now = 10.0
        self.coordinator = Membership(Limits(**{"np": 2, "min_np": 1, "max_np": 2} | limits))
        self.last = self.tell(Discovered(hosts))

    def tell(self, event: Any, later: float = 0.0) -> list[Any]:
        self.now += later
        self.last = self.coordinator.step(event, self.now)
        return self.last

    def begin(self, *workers: int) -> None:
        for worker in workers:
            self.tell(Came(worker, 0))
        assert Form(1, workers) in self.last

    def kinds(self, *kinds: type) -> list[Any]:
        return [action for action in self.last if isinstance(action, kinds)]


def test_survivors_go_on_at_once_and_the_lost_one_is_replaced_in_its_slot() -> None:
    job = Script({"a": 3}, np=3, max_np=3)
    assert job.kinds(Start) == [Start(0, "a", 0), Start(1, "a", 1), Start(2, "a", 2)]
    job.begin(0, 1, 2)
    job.tell(Gone(0, -9, "killed by signal 9"))
    assert job.kinds(Void, Start, Form) == [Void(1, "rank 0 was lost"), Start(3, "a", 0)]
    job.tell(Came(1, 1, {0: "its process is gone"}))
    assert not job.kinds(Form)
    job.tell(Came(2, 1, {0: "its process is gone"}))
    assert job.kinds(Form) == [Form(2, (1, 2))]
    job.tell(Came(3, 0))
    assert job.kinds(Change) == [Change(2, (1, 2), True)]
    job.tell(Came(1, 2))
    job.tell(Came(2, 2))
    assert job.kinds(Form) == [Form(3, (1, 2, 3))]


def test_a_rank_that_was_declared_lost_is_killed_and_does_not_come_back() -> None:
    job = Script({"a": 3}, np=3, max_np=3)
    job.begin(0, 1, 2)
    job.tell(Came(0, 1, {2: "it has been stopped (state T) for 5 s"}))
    assert [kill.worker for kill in job.kinds(Kill)] == [2]
    job.tell(Came(1, 1))
    assert job.kinds(Form) == [Form(2, (0, 1))]
    assert not job.tell(Came(2, 1, {0: "gone"}))  # it woke up before the signal arrived
    job.tell(Gone(2, -9, "killed"))
    assert job.kinds(Start) == [Start(3, "a", 2)]


def test_a_straggler_is_waited_for_and_then_killed() -> None:
    job = Script({"a": 3}, np=3, max_np=3, straggler_timeout=60)
    job.begin(0, 1, 2)
    job.tell(Gone(0, -9, "killed"))
    job.tell(Came(1, 1))
    assert "waiting for rank 2" in job.tell(Tick(), later=11)[0].text
    job.tell(Tick(), later=50)
    assert [kill.worker for kill in job.kinds(Kill)] == [2] and job.kinds(Form) == [Form(2, (1,))]


def test_a_stopped_rank_is_no_straggler() -> None:
    """It counts as lost when the others would have lost it, 5 s after it was stopped, and not after 60 s."""
    job = Script({"a": 3}, np=3, max_np=3, straggler_timeout=60, peer_timeout=5)
    job.begin(0, 1, 2)
    job.tell(Halted(2, 4711), later=1)
    job.tell(Gone(0, -9, "killed"), later=1)
    job.tell(Came(1, 1))
    assert not job.tell(Tick(), later=3)
    job.tell(Tick(), later=1)
    assert job.kinds(Kill) == [Kill(2, "it has been stopped (state T) for 5 s")]
    assert job.kinds(Form) == [Form(2, (1,))]


@pytest.mark.parametrize("peer_timeout", [0, 5])
def test_a_rank_that_goes_on_again_is_not_lost(peer_timeout: float) -> None:
    """Nor is one that is stopped, if HPCCOLL_PEER_TIMEOUT is 0."""
    job = Script({"a": 3}, np=3, max_np=3, straggler_timeout=60, peer_timeout=peer_timeout)
    job.begin(0, 1, 2)
    job.tell(Halted(2, 4711))
    if peer_timeout:
        job.tell(Halted(2, 0), later=4)
    job.tell(Gone(0, -9, "killed"))
    job.tell(Came(1, 1))
    job.tell(Tick(), later=50)
    assert not job.kinds(Kill)


def test_ranks_that_are_all_stopped_are_named_with_what_continues_them() -> None:
    """No rank misses another one, so only the launcher can say it."""
    job = Script({"a": 2, "b": 1}, np=3, max_np=3)
    job.begin(0, 1, 2)
    for worker in range(3):
        job.tell(Halted(worker, 4711 + worker))
    assert not job.tell(Tick(), later=7)
    assert job.tell(Tick(), later=2) == [
        Say(
            "ranks 0-2 are stopped (SIGSTOP, state T); to continue, on host a: kill -CONT -4711 -4712; on host b: "
            "kill -CONT -4713"
        )
    ]
    assert not job.tell(Tick(), later=9) and job.tell(Tick(), later=2), "every ten seconds"
    job.tell(Halted(2, 0))
    assert "ranks 0, 1 are stopped" in job.tell(Tick(), later=11)[0].text


@pytest.mark.parametrize(
    ("limits", "hosts", "words"),
    [
        ({"min_np": 2, "elastic_timeout": 30}, {"a": 2}, "1 rank, --min-np is 2, and no more had come after 30 s"),
        ({"min_np": 2, "host_failures": 1}, {"a": 2}, "all hosts are excluded"),
        ({"reset_limit": 0}, {"a": 2}, "would change again, after 0 changes: --reset-limit is 0"),
    ],
)
def test_a_job_that_cannot_go_on_ends_and_says_why(limits: dict[str, Any], hosts: dict[str, int], words: str) -> None:
    job = Script(hosts, **limits)
    job.begin(0, 1)
    job.tell(Gone(1, 1, "exit status 1"))
    job.tell(Came(0, 1))
    if not job.kinds(End):
        job.tell(Tick(), later=31)
    assert job.last[-1].status == 1 and words in job.last[-1].why


def test_all_ranks_lost_is_the_end() -> None:
    job = Script({"a": 2})
    job.begin(0, 1)
    job.tell(Gone(0, 1, "exit status 1"))
    job.tell(Gone(1, 1, "exit status 1"))
    assert job.last[-1] == End(1, "all ranks that had the state are lost")


def test_a_host_is_excluded_after_failures_and_comes_back_later() -> None:
    job = Script({"a": 1, "b": 1}, np=2, min_np=1, host_failures=2, cooldown=(5.0, 60.0))
    job.begin(0, 1)
    job.tell(Gone(1, 1, "exit status 1"))
    job.tell(Came(0, 1))
    assert job.coordinator.generation == 2
    job.tell(Gone(2, 1, "exit status 1"))
    assert any("host b is excluded for 5 s" in action.text for action in job.last) and not job.kinds(Start)
    assert not job.tell(Tick(), later=4)
    assert job.tell(Tick(), later=2) == [Start(3, "b", 0)]


def test_ranks_that_wait_for_a_stopped_new_one_begin_without_it() -> None:
    job = Script({"a": 3}, np=3, min_np=2, max_np=3, peer_timeout=5.0)
    job.tell(Halted(2, 4711))
    job.tell(Tick(), later=6)
    assert not job.kinds(Kill)  # no rank waits
    job.tell(Came(0, 0))
    assert Say("a new rank (host a, slot 2) ended before it came in: it has been stopped (state T) for 6 s") in job.last
    assert [kill.worker for kill in job.kinds(Kill)] == [2]
    job.tell(Gone(2, -9, "killed"))
    assert job.kinds(Start) == [Start(3, "a", 2)] and not job.coordinator.hosts.is_excluded("a", job.now)
    assert len(job.coordinator.hosts.known["a"].failures) == 1
    job.tell(Came(1, 0)), job.tell(Came(3, 0))
    assert job.kinds(Form) == [Form(1, (0, 1, 3))]


def test_ranks_that_make_a_world_do_not_wait_for_a_stopped_one() -> None:
    job = Script({"a": 2}, peer_timeout=5.0)
    job.begin(0, 1)
    job.tell(Halted(1, 4711))
    job.tell(Tick(), later=6)
    assert not job.kinds(Kill)  # no rank waits
    job.tell(Tick(frozenset({1})))
    assert [kill.worker for kill in job.kinds(Kill)] == [1]
    job.tell(Gone(1, -9, "killed"))
    assert job.kinds(Void) == [Void(1, "rank 1 was lost")]  # the others repeat the step


@pytest.mark.parametrize("limits", [{"straggler_timeout": 20.0}, {"elastic_timeout": 20.0}])
def test_the_job_begins_with_the_least_ranks_when_others_do_not_come(limits: dict[str, float]) -> None:
    job = Script({"a": 3}, np=3, min_np=2, max_np=3, **limits)
    job.tell(Came(0, 0)), job.tell(Came(1, 0))
    job.tell(Tick(), later=11)
    assert job.last == [Say("2 ranks ready, waiting for 3 (-np)")]
    job.tell(Tick(), later=10)
    assert job.kinds(End, Form) == [Form(1, (0, 1))]


def test_the_end_of_an_agent_is_one_failure_of_its_host() -> None:
    """Whatever number of ranks it had: another agent starts new ones."""
    job = Script({"a": 1, "b": 4}, np=5, min_np=1, max_np=5, host_failures=3)
    job.begin(0, 1, 2, 3, 4)
    for first in (5, 9):
        job.tell(HostLost("b", "host b has lost its agent"))
        assert job.kinds(Start) == [Start(first + slot, "b", slot) for slot in range(4)]
    job.tell(HostLost("b", "host b has lost its agent"))
    assert not job.kinds(Start)
    assert Say("host b is excluded for the rest of the job: its ranks have failed repeatedly") in job.last


def test_an_excluded_host_loses_its_healthy_ranks_if_asked_for() -> None:
    job = Script({"a": 2, "b": 2}, np=4, max_np=4, host_failures=1, exclude_host_on_failure=True)
    job.begin(0, 1, 2, 3)
    job.tell(Gone(3, 1, "exit status 1"))
    assert [kill.worker for kill in job.kinds(Kill)] == [2] and not job.kinds(Start)
    assert Say("host b is excluded for the rest of the job: a rank has failed") in job.last
    job.tell(Came(0, 1))
    job.tell(Gone(2, -9, "killed"))
    job.tell(Came(1, 1))
    assert job.kinds(Form) == [Form(2, (0, 1))] and not job.tell(Tick(), later=1000)


def test_a_host_that_is_given_back_hands_the_state_over_first() -> None:
    job = Script({"a": 1}, np=1, max_np=1, discovers=True)
    job.begin(0)
    job.tell(Discovered({"b": 1}))
    assert job.kinds(Start, Change) == [Start(1, "b", 0)]
    job.tell(Came(1, 0))
    assert job.kinds(Change)
    job.tell(Came(0, 1, has_state=True))
    assert job.kinds(Form, Change) == [Form(2, (0, 1))]
    job.tell(Tick())
    assert job.kinds(Change)
    job.tell(Came(0, 2, has_state=True))
    job.tell(Came(1, 2, has_state=True))
    assert job.kinds(Release, Form) == [Release(0, "its slot is to be given back"), Form(3, (1,))]


def test_a_rank_that_is_asked_to_leave_is_not_replaced() -> None:
    job = Script({"a": 2})
    job.begin(0, 1)
    assert job.tell(Leaving(1)) == [Change(1, (0, 1), False)]
    job.tell(Came(0, 1))
    job.tell(Came(1, 1))
    assert [r.worker for r in job.kinds(Release)] == [1] and job.kinds(Form) == [Form(2, (0,))]
    job.tell(Gone(1, 0, "it ended"))
    assert not job.kinds(Start)


def test_an_early_init_is_answered_and_halts_nobody() -> None:
    """The place is the one behind the survivors and the newcomers that were started before."""
    job = Script({"a": 2, "b": 2}, np=4, max_np=4, gather=0)
    for worker in range(4):
        assert job.tell(Early(worker)) == [Answer(worker, None)], "all come to the first generation"
    job.begin(0, 1, 2, 3)
    job.tell(Gone(0, -9, "killed"))
    job.tell(Gone(2, -9, "killed"))
    for worker in (1, 3):
        job.tell(Came(worker, 1, {0: "gone", 2: "gone"}))
    assert job.kinds(Form) == [Form(2, (1, 3))]
    assert job.tell(Early(5)) == [Answer(5, Place(3, 4, 0, 2, 1, 2))]
    assert job.tell(Early(4)) == [Answer(4, Place(2, 4, 0, 2, 0, 2))]
    assert not job.tell(Tick(), later=50), "they prepare"
    job.tell(Came(4, 0))
    assert job.kinds(Change) == [Change(2, (1, 3), True)]


def test_an_early_worker_that_does_not_come_is_named() -> None:
    job = Script({"a": 2}, min_np=2, elastic_timeout=30)
    job.begin(0, 1)
    job.tell(Gone(1, -9, "killed"))
    job.tell(Came(0, 1))
    job.tell(Early(2))
    said = "1 rank ready, waiting for 2 (--min-np); a new rank has called init(), and not elastic.run() yet"
    assert job.tell(Tick(), later=11) == [Say(said)]
    (end,) = job.tell(Tick(), later=31)
    assert end.status == 1 and "(--elastic-timeout); a new rank has called init(), and not elastic.run() yet" in end.why


def test_the_end_of_the_program() -> None:
    job = Script({"a": 2})
    job.begin(0, 1)
    for worker in (0, 1):
        job.tell(Done(worker))
        job.tell(Gone(worker, 0, "it ended"))
    assert job.last[-1] == End(0, "")


@pytest.mark.parametrize("late", [False, True])
def test_the_end_without_a_rank_that_was_lost_is_a_failure(late: bool) -> None:
    """In whichever order the ends of the processes become known."""
    job = Script({"a": 2})
    job.begin(0, 1)
    ends = [Gone(0, 1, "exit status 1"), Gone(1, 0, "exit status 0")]
    for end in reversed(ends) if late else ends:
        job.tell(end)
    (end,) = job.kinds(End)
    assert end.status == 1 and "ranks were lost, and others came to the end without them" in end.why


def test_an_end_that_takes_long_is_reported() -> None:
    job = Script({"a": 2})
    job.begin(0, 1)
    job.tell(Gone(0, 0, "exit status 0"))
    (said,) = job.tell(Tick(), later=11)
    assert said.text == "the program has ended on some ranks, and not yet on rank 1"


def test_random_interleavings() -> None:
    ends = {simulated.run(seed).end.status for seed in range(SEEDS)}
    assert ends == {0, 1}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_random_interleavings() -> None:
    for seed in range(SEEDS, SLOW_SEEDS):
        simulated.run(seed)


class ForgetsToKill(Membership):
    def _kill(self, worker: Any, why: str, now: float) -> None:
        worker.phase = simulated.Phase.READY


class NewcomersFirst(Membership):
    def _chosen(self) -> list[int]:
        chosen = super()._chosen()
        return chosen[::-1]


class DoesNotWait(Membership):
    def _come(self, event: Came, now: float) -> None:
        super()._come(event, now)
        for number in self.members:
            if event.generation == self.generation and number in self.workers:
                self.workers[number].phase = simulated.Phase.READY


class TakesAnybody(Membership):
    def _all_has_ended(self) -> bool:
        return super()._all_has_ended() if self.finishing else False


class CountsArrivals(Membership):
    def _go(self, number: int, status: int, how: str, now: float) -> None:
        super()._go(number, status, how, now)
        self.generation -= self.generation > 1 and number not in self.members


class NeverTells(Membership):
    def _announce(self, now: float) -> None:
        self.changing = bool(self._chosen())


class ForgetsTheEnd(Membership):
    def _finish(self, number: int, now: float) -> None:
        pass


class BelievesTheDead(Membership):
    def _come(self, event: Came, now: float) -> None:
        if event.worker in self.workers and self.workers[event.worker].phase is simulated.Phase.ENDING:
            self.workers[event.worker].phase = simulated.Phase.MEMBER
        super()._come(event, now)


class TakesTheEarlyForReady(Membership):
    def _answer(self, number: int) -> None:
        super()._answer(number)
        if self.generation and number in self.workers and self.workers[number].phase is simulated.Phase.STARTING:
            self.workers[number].phase = simulated.Phase.READY


class PutsTheEarlyFirst(Membership):
    def _answer(self, number: int) -> None:
        super()._answer(number)
        self.out = [Answer(a.worker, a.place and a.place._replace(rank=0)) for a in self.out if isinstance(a, Answer)]


class EndsWithItsLauncher(simulated.Job):
    def trains(self) -> tuple[int, ...]:
        return super().trains()[1:]


def test_a_planted_end_with_the_launcher_is_found() -> None:
    with pytest.raises(simulated.BrokenRuleError, match="training goes on without the launcher"):
        for seed in range(10 * SEEDS):
            simulated.run(seed, job=EndsWithItsLauncher)


@pytest.mark.parametrize(
    "planted",
    [
        ForgetsToKill,
        NewcomersFirst,
        DoesNotWait,
        TakesAnybody,
        CountsArrivals,
        ForgetsTheEnd,
        BelievesTheDead,
        TakesTheEarlyForReady,
        PutsTheEarlyFirst,
    ],
)
def test_planted_faults_are_found(planted: type[Membership]) -> None:
    for seed in range(10 * SEEDS):
        try:
            simulated.run(seed, planted)
        except Exception:  # noqa: BLE001 - a broken rule, or the simulation's own assumptions
            return
    raise AssertionError(f"{planted.__name__} was not found")


def oldest_of_all(reports: Sequence[Report]) -> Version:
    return min((commit.version for report in reports for commit in report.held()), default=NONE)


def that_of_the_first(reports: Sequence[Report]) -> Version:
    return reports[0].last.version


def with_one_commit(reports: Sequence[Report]) -> Version | None:
    return versions.common([Report(report.last, since=report.since) for report in reports])


@pytest.mark.parametrize("planted", [versions.newest, oldest_of_all, that_of_the_first, with_one_commit])
def test_planted_choices_of_a_commit_are_found(planted: simulated.Chooser) -> None:
    """For sharded state the newest commit of any rank is as wrong as one that some rank does not have."""
    for seed in range(4 * SEEDS):
        try:
            simulated.run(seed, choose=planted)
        except simulated.BrokenRuleError:
            return
    raise AssertionError(f"{planted.__name__} was not found")
