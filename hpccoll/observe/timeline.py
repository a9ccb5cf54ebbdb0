# SPDX-License-Identifier: Apache-2.0
"""A timeline of a rank for chrome://tracing and https://ui.perfetto.dev, made from the trace ring of its loop.

Each tensor has a row with the pipeline's five words: *enqueue* (a mark), *negotiate*, *fuse* (agreed, but its batch has
not begun), *reduce*, *complete* (a mark). The batches of each process set have a row, with their bytes. Starts
of plans of collectives are in no row.

The loop always writes its trace into a ring without a lock. A thread here reads the ring a hundred times per second.
The loop never waits for it: records that were overwritten before they were read are missing, and the timeline says how
many. The file is a complete JSON document after each write, so also when the process is killed. (During the
microseconds of a write it may lack its end, which the viewers accept.)

Format: "Trace Event Format" of the Chromium project, JSON object form; times in us of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from hpccoll import _core, errors
from hpccoll.observe.phases import Phases
from hpccoll.text import say

__all__ = ["Timeline", "for_rank", "path_of", "start", "stop"]

EVERY = 0.01
"""Seconds between two reads of the ring."""
MOST = 64
"""Records per translation, which holds the GIL for a fraction of a millisecond."""
REST = 3
"""After a portion of records the thread pauses for REST times as long as the portion took, so that the program gets
the GIL. In a program that only communicates the ring may overwrite records meanwhile; they are lost."""


def start(world: Any, path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begin a timeline of all operations of a World from now on, those of its process sets included.

    Each rank that is to write a file calls it; it does not communicate.

    :param world: a World, or a process set made from it
    :param path: the file of rank 0; with "{rank}" in it, every rank writes a file of its own
    :param mark_cycles: also mark the control messages
    :raises InvalidArgumentError: a timeline is being written already, or the file cannot be created

    >>> timeline.start(hpccoll.world(), "timeline.json")
    """
    base = world.base
    if base.timeline is not None:
        raise errors.InvalidArgumentError(f"a timeline is being written to {base.timeline.path}: stop it first")
    base.timeline = for_rank(base.loop, os.fspath(path), mark_cycles)


def stop(world: Any) -> None:
    """End the timeline of a World; the file is complete when this returns. Does nothing on a rank without a timeline.

    :param world: the World that was given to `start`
    """
    timeline, world.base.timeline = world.base.timeline, None
    if timeline is not None:
        timeline.close()


def for_rank(loop: _core.Loop, path: str, mark_cycles: bool = False) -> Timeline | None:
    """Make the timeline that this rank writes.

    :param path: see `start`
    :returns: None if this rank writes no timeline
    :raises InvalidArgumentError: the file cannot be created
    """
    if "{rank}" not in path and loop.rank != 0:
        return None
    try:
        return Timeline(loop, path_of(loop.rank, path), mark_cycles)
    except OSError as error:
        raise errors.InvalidArgumentError(f"no timeline can be written to {path}: {error.strerror}") from error


def path_of(rank: int, path: str | os.PathLike[str]) -> str:
    """Return the file of a rank.

    :param path: see `start`
    """
    return os.fspath(path).replace("{rank}", str(rank))


class Timeline:
    """The timeline of one rank, being written."""

    def __init__(self, loop: _core.Loop, path: str, mark_cycles: bool) -> None:
        """Open the file and start the thread that reads the ring."""
        self.path = path
        self._loop = loop
        self._document = _Document(path, {"wall clock minus ts (us)": (time.time_ns() - time.monotonic_ns()) / 1000})
        self._phases = Phases(loop.rank, loop.size, mark_cycles)
        self._next, _ = loop.trace()
        loop.watched = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hpccoll timeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last records; the file is complete when this returns."""
        self._loop.watched = False
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        """Read the ring until the timeline ends; an error ends the timeline, but not the program."""
        try:
            with contextlib.suppress(errors.ShutDownError):
                while not self._ended.wait(EVERY):
                    self._read()
                self._read(rest=0)
            self._document.close()
        except OSError as error:
            say(f"hpccoll: the timeline {self.path} ends here: {error.strerror}")

    def _read(self, rest: float = REST) -> None:
        """Write the new records in portions, with pauses in which the program's threads run undisturbed."""
        while True:
            began, first = time.monotonic(), self._next
            self._next, records = self._loop.trace(first, MOST)
            lost = self._next - first - len(records)
            self._document.add(self._phases.events(records, lost))
            if len(records) < MOST:
                return
            self._ended.wait(rest * (time.monotonic() - began))


class _Document:
    """A file that is a JSON document after each write: new text overwrites the closing brackets, and adds new ones."""

    END = b"\n]}\n"

    def __init__(self, path: str, facts: dict[str, Any]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._at, self._separator = 0, b""
        self._write(f'{{"otherData": {json.dumps(facts)}, "traceEvents": [\n'.encode())

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        text = b"".join(b",\n" + json.dumps(event, separators=(",", ":")).encode() for event in events)
        if text:
            self._write(text if self._separator else text[2:])
            self._separator = b",\n"

    def _write(self, text: bytes) -> None:
        rest, at = memoryview(text + self.END), self._at
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                rest, at = rest[written:], at + written
        except OSError:
            self._end()
            raise
        self._at += len(text)

    def _end(self) -> None:
        """End the document behind the last whole write, whose closing brackets a full disk still has room for."""
        if self._at:
            os.pwrite(self._file, self.END, self._at)
            os.ftruncate(self._file, self._at + len(self.END))

    def close(self) -> None:
        os.close(self._file)
