# SPDX-License-Identifier: Apache-2.0
"""Explains in sentences which rank diverged, at which call, and which rank waits for which."""

import dataclasses
from collections.abc import Iterable, Iterator

from hpccoll.text import capitalized, some_ranks
from hpccoll.tools.trace import messages, pace
from hpccoll.tools.trace.recording import Recording
from hpccoll.tools.trace.story import Request, Story, seconds

__all__ = ["explain"]

LONG = 1e9
"""Nanoseconds: a longer wait is for a missing rank, a shorter one for a slow rank."""
MOST = 5
"""Findings of one kind that are written out."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """An unfinished operation of a process set: the ranks that requested it and the ranks that did not."""

    asked: dict[int, Request]
    lacking: tuple[int, ...]
    """Members that have a recording, in which they do not ask for it."""
    silent: tuple[int, ...]
    """Members without a recording."""
    set: int

    @property
    def example(self) -> Request:
        """The request of the lowest rank; one that has a signature if there is one."""
        return next((request for _, request in sorted(self.asked.items()) if request.asked), min(self.asked.items())[1])

    @property
    def who(self) -> tuple[tuple[int, ...], tuple[int, ...], bool, bool]:
        """A key: operations with equal keys have the same reason."""
        return tuple(sorted(self.asked)), self.lacking, self.agreed, self.is_plan

    @property
    def agreed(self) -> bool:
        """Whether some rank knows that all ranks had requested it."""
        return any(request.agreed for request in self.asked.values())

    @property
    def is_plan(self) -> bool:
        """Whether it is the start of a plan. A rank that needs no other rank for it records no start."""
        return self.example.record.plan


def explain(recordings: list[Recording]) -> list[str]:
    """Explain the end, or the current state, of one World.

    :param recordings: the available ones of its ranks
    :returns: paragraphs
    """
    stories = {recording.rank: Story(recording) for recording in recordings}
    missing = tuple(sorted(set(range(recordings[0].size)) - set(stories)))
    operations = list(_operations(stories, missing))
    found = [*_absent(missing, stories), *_broken(stories), *_mismatches(stories)]
    hung = [*_apart(operations, stories), *messages.explain(stories), *_circle(operations, stories)]
    found += hung or [*pace.explain(stories)]
    if not found:
        found.append("No rank waits for another one, and no rank is slower than the others.")
    return [*found, *_each(stories)]


# ---- the World as a whole ----------------------------------------------------------------------------------


def _absent(missing: tuple[int, ...], stories: dict[int, Story]) -> Iterator[str]:
    if missing:
        there = some_ranks(stories)
        yield (
            f"{capitalized(some_ranks(missing))} left no recording, {there} did: a rank that was killed, is stopped, "
            "is cut off or has no space for it cannot write one."
        )


def _broken(stories: dict[int, Story]) -> Iterator[str]:
    for cause in dict.fromkeys(story.recording.cause for story in stories.values() if story.recording.cause):
        yield f"The World broke: {cause}."
    for story in stories.values():
        if story.recording.ended:
            yield f"Rank {story.rank} ended by an exception: {story.recording.ended}."
    stopped = [story.rank for story in stories.values() if story.recording.state in ("T", "t")]
    for rank in stopped:
        recording = stories[rank].recording
        yield (
            f"Rank {rank} is stopped (process {recording.pid} on {recording.host}, by a signal or a debugger): "
            f"`kill -CONT {recording.pid}` there lets it go on."
        )


def _mismatches(stories: dict[int, Story]) -> Iterator[str]:
    """Explain mismatches, by their positions in the log."""
    found: dict[tuple[int, str, int], dict[str, list[int]]] = {}
    examples: dict[tuple[int, str, int], Request] = {}
    for story in stories.values():
        for request in story.requests:
            if request.status == "MISMATCH":
                key = (request.set, request.key, request.position)
                call = f"{request.record.operation} ({request.signature}){request.place}"
                found.setdefault(key, {}).setdefault(call, []).append(story.rank)
                examples.setdefault(key, request)
    for key, texts in list(found.items())[-MOST:]:
        what = "; ".join(f"{some_ranks(ranks)}: {call}" for call, ranks in texts.items())
        yield f'The ranks disagreed about "{examples[key].key}"{_of_set(key[0])}: {what}.'


def _of_set(number: int) -> str:
    return f" of process set {number}" if number else ""


# ---- unfinished operations -----------------------------------------------------------------------------------


def _operations(stories: dict[int, Story], missing: tuple[int, ...]) -> Iterator[Operation]:
    asked: dict[tuple[int, int, int, str], dict[int, Request]] = {}
    for story in stories.values():
        for request in story.open:
            of = story.sets().get(request.set)
            if of and not request.is_message:
                asked.setdefault((request.set, of.wire, of.lead, request.key), {})[story.rank] = request
    for (number, wire, lead, _), requests in asked.items():
        members = [
            rank
            for rank, story in stories.items()
            if (process_set := story.sets().get(number)) and (process_set.wire, process_set.lead) == (wire, lead)
        ]
        size = stories[members[0]].sets()[number].size
        silent = missing if len(members) < size else ()
        lacking = tuple(rank for rank in members if rank not in requests)
        yield Operation(requests, lacking, silent, number)


def _apart(operations: list[Operation], stories: dict[int, Story]) -> Iterator[str]:
    """Yield one paragraph for all operations that the same ranks requested and the same ranks lack."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...], bool, bool], list[Operation]] = {}
    for operation in operations:
        if _matters(operation, stories):
            alike.setdefault(operation.who, []).append(operation)
    waited = sorted(alike.values(), key=lambda group: not any(_waited(operation) for operation in group))
    for group in waited[:MOST]:
        yield _paragraph(group, stories)


def _waited(operation: Operation) -> bool:
    return any(request.waited for request in operation.asked.values())


def _matters(operation: Operation, stories: dict[int, Story]) -> bool:
    """Return whether an operation was open at the World's end, or a caller has waited for it for longer than LONG."""
    if any(story.recording.cause or story.recording.ended for story in stories.values()):
        return True
    return any(
        made.waited and stories[rank].recording.written - made.waited > LONG for rank, made in operation.asked.items()
    )


def _paragraph(group: list[Operation], stories: dict[int, Story]) -> str:
    first = min(group, key=lambda operation: (not _waited(operation), operation.example.asked))
    what = f"{first.example.described}{_of_set(first.set)}"
    others = f" and {len(group) - 1} more operations" if len(group) > 1 else ""
    if first.agreed:
        return _moving(first, what + others, stories)
    if first.is_plan:
        return _started(first, what + others, stories)
    callers = f"{some_ranks(first.asked)} called{first.example.place}{_since(first, stories)}"
    if first.lacking:
        sentences = [f"{capitalized(some_ranks(first.lacking))} did not call {what}{others}, which {callers}."]
        sentences += [_instead(stories[rank], first) for rank in first.lacking[:MOST]]
    elif first.silent:
        verb = "is" if len(first.silent) == 1 else "are"
        sentences = [f"{some_ranks(first.silent)} {verb} awaited in {what}{others}, which {callers}."]
    else:
        sentences = [f"All members called {what}{others}, and it was not agreed: {callers}."]
    if first.silent and first.lacking:
        sentences.append(f"Whether {some_ranks(first.silent)} called it is not known.")
    return capitalized(" ".join(sentences))


def _since(operation: Operation, stories: dict[int, Story]) -> str:
    since = [
        (stories[rank].recording.written - made.waited, rank) for rank, made in operation.asked.items() if made.waited
    ]
    return (
        f" and {'has' if len(operation.asked) == 1 else 'have'} awaited for {seconds(max(since)[0])}" if since else ""
    )


def _moving(operation: Operation, what: str, stories: dict[int, Story]) -> str:
    moving = [rank for rank, made in operation.asked.items() if made.moving]
    since = [stories[rank].recording.written - made.agreed for rank, made in operation.asked.items() if made.agreed]
    began = f"its transfer has begun on {some_ranks(moving)}" if moving else "its transfer has not begun"
    still = f"it is not over on {some_ranks(operation.asked)} after {seconds(max(since))}"
    text = f"All members called {what}; {began}, and {still}."
    if operation.silent:
        text += f" The transfer needs {some_ranks(operation.silent)}, which left no recording."
    if operation.lacking:
        text += f" It is over on {some_ranks(operation.lacking)}."
    return text


def _started(operation: Operation, what: str, stories: dict[int, Story]) -> str:
    since = _since(operation, stories)
    sentences = [f"{capitalized(some_ranks(operation.asked))} made {what}{operation.example.place}{since}."]
    if operation.lacking:
        verb = "has" if len(operation.lacking) == 1 else "have"
        sentences.append(f"{capitalized(some_ranks(operation.lacking))} {verb} not made it, or {verb} done all of it.")
        sentences += [_instead(stories[rank], operation) for rank in operation.lacking[:MOST]]
    if operation.silent:
        sentences.append(f"Whether {some_ranks(operation.silent)} made it is not known.")
    return " ".join(sentences)


def _instead(story: Story, operation: Operation) -> str:
    """Describe what a rank did in place of the call of the others."""
    current, last = story.waits_for, story.last
    skipped = _left_out(story, operation, current) if current else ""
    if current:
        return f"Rank {story.rank} waits in {current.described}{_of_set(current.set)}{current.place} instead{skipped}."
    if story.recording.ended:
        return f"Rank {story.rank} had ended by then{_last_call(story)}."
    where = f"; it is in {story.recording.stack}" if story.recording.stack else ""
    if last is None:
        return f"Rank {story.rank} has made no call yet, and is in none{where}."
    if story.recording.state in ("T", "t"):
        return f"Rank {story.rank} is stopped{_last_call(story)}."
    return f"Rank {story.rank} is in no call of hpccoll{_last_call(story)}{where}."


def _last_call(story: Story) -> str:
    last = story.last
    if last is None:
        return ""
    return f"; its last call was {last.described}{last.place}, {story.ago(last.asked or last.ended)} ago"


def _left_out(story: Story, operation: Operation, current: Request) -> str:
    """Describe a call that this rank has left out: the last time it came before this rank's current call."""
    same = [
        request
        for request in story.requests
        if request.key == current.key and request.set == current.set and request is not current
    ]
    before = story.before(same[-1]) if same else None
    if before and before.set == operation.set and before.key == operation.example.key and current.set == operation.set:
        return f". The last time it called {before.call} just before that: this time it left it out"
    return ""


def _circle(operations: list[Operation], stories: dict[int, Story]) -> Iterator[str]:
    """Describe ranks that wait for each other."""
    edges: dict[int, tuple[int, Request]] = {}
    for rank, story in stories.items():
        current = story.waits_for
        for operation in operations:
            if (
                current is not None
                and operation.asked.get(rank) is current
                and operation.lacking
                and not operation.agreed
                and not operation.is_plan
            ):
                waiting = [member for member in operation.lacking if stories[member].waits_for]
                if waiting:
                    edges[rank] = waiting[0], current
    for start in edges:
        path = [start]
        while path[-1] in edges and edges[path[-1]][0] not in path:
            path.append(edges[path[-1]][0])
        if path[-1] in edges and edges[path[-1]][0] == start:
            yield _describe_circle(path, edges)
            return


def _describe_circle(path: list[int], edges: dict[int, tuple[int, Request]]) -> str:
    steps = ", ".join(
        f"rank {rank} for rank {edges[rank][0]} in {edges[rank][1].call}{_of_set(edges[rank][1].set)}" for rank in path
    )
    return (
        f"These ranks wait for each other: {steps}. They make these calls in different orders, or one of them leaves a "
        "call out: make the calls in one order on all ranks, or start them without waiting (`_async`)."
    )


# ---- each rank -------------------------------------------------------------------------------------------


def _each(stories: dict[int, Story]) -> Iterable[str]:
    lines = []
    for rank, story in stories.items():
        trace, current = story.recording, story.waits_for
        does = (
            f"waits for {current.call}{_of_set(current.set)}, since {story.ago(current.waited)}"
            if current
            else _idle(story)
        )
        lines.append(
            f"  rank {rank} ({trace.host}, process {trace.pid}): {does}; {len(story.requests)} requests recorded"
        )
    return ["Each rank, when it was recorded:\n" + "\n".join(lines)]


def _idle(story: Story) -> str:
    if story.recording.state in ("T", "t"):
        return "is stopped"
    if story.recording.ended:
        return "ended by an exception"
    return "is in no call of hpccoll" if not story.recording.callers else "waits in a call, not for long"
