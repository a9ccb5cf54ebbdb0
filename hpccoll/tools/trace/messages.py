# SPDX-License-Identifier: Apache-2.0
"""Unmatched point-to-point messages."""

from collections.abc import Iterator

from hpccoll.text import capitalized
from hpccoll.tools.trace.story import Request, Story, seconds

__all__ = ["explain"]

MOST = 5


def explain(stories: dict[int, Story]) -> Iterator[str]:
    """Explain unmatched sends and receives for which a caller waits.

    :param stories: by rank
    """
    found = 0
    for rank, story in stories.items():
        for request in story.open:
            if request.is_message and request.waited and found < MOST:
                found += 1
                yield _explain(rank, story, request, stories)


def _explain(rank: int, story: Story, request: Request, stories: dict[int, Story]) -> str:
    record = request.record
    waits = f"rank {rank} waits for its {request.call}{request.place}, since {story.ago(request.waited)}"
    if record.peer < 0:
        return capitalized(f"{waits}: no rank has sent it a message with this tag.")
    if record.peer not in stories:
        return capitalized(f"{waits}: rank {record.peer} left no recording.")
    other = stories[record.peer]
    if any(_fits(rank, request, candidate) for candidate in other.open):
        return capitalized(f"{waits}: rank {record.peer} has the other side of it, and it is being transferred.")
    verb, noun = ("sent", "send") if record.operation == "receive" else ("posted a receive for", "receive")
    return capitalized(f"{waits}: rank {record.peer} has not {verb} it{_nearly(rank, request, other, noun)}.")


def _fits(rank: int, request: Request, other: Request) -> bool:
    mine, their = request.record, other.record
    if not other.is_message or their.operation == mine.operation or their.set != mine.set:
        return False
    return their.tag == mine.tag and their.peer in (rank, -1)


def _nearly(rank: int, request: Request, other: Story, noun: str) -> str:
    """Describe what the other rank does instead: a message of another tag, or its last call."""
    near = [
        candidate
        for candidate in other.open
        if candidate.is_message
        and candidate.record.operation != request.record.operation
        and candidate.record.peer in (rank, -1)
    ]
    if near:
        tags = ", ".join(str(candidate.record.tag) for candidate in near[:4])
        return f"; its {noun}s {'from' if noun == 'receive' else 'to'} rank {rank} that are open have tag {tags}"
    waits = other.waits_for
    if waits:
        return f"; it waits in {waits.described}{waits.place}, since {other.ago(waits.waited)}"
    last = other.last
    if last is None:
        return "; it has made no call at all"
    ago = seconds(other.recording.written - (last.asked or last.ended))
    return f"; its last call was {last.described}{last.place}, {ago} ago"
