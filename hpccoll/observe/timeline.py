# SPDX-License-Identifier: Apache-2.0
"""A timeline of a rank, for chrome://tracing and https://ui.perfetto.dev, drawn from the trace ring of its loop.

A row for each tensor, with the pipeline's five words: *enqueue* (a mark), *negotiate*, *fuse* (agreed, its batch has
not begun), *reduce*, *complete* (a mark). A row for each process set's batches, with their bytes.

The loop writes its trace anyway, into a ring without a lock. A thread here reads it a hundred times a second: nothing
waits for it, and what the ring had overwritten before it was read is missing, and said in the timeline. The file is a
complete JSON document after each write, so also when the process is killed. (Within the microseconds of a write it may
lack the end, which the viewers forgive.)

Format: "Trace Event Format" of the Chromium project, JSON object form; times in us of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from hpccoll import _core, errors
from hpccoll.observe.phases import Phases

__all__ = ["Timeline", "for_rank", "start", "stop"]

EVERY = 0.01
"""Seconds between two looks at the ring."""
MOST = 64
"""Records that are translated at once: a fraction of a millisecond in which the program may want the interpreter."""
REST = 3
"""Times as long as a portion took the observer then leaves the interpreter alone. What the ring overwrites meanwhile,
in a program that does nothing but communicate, is lost rather than waited for."""


def start(world: Any, path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begin a timeline of everything that the loop of this World does from now on, process sets included.

    :param world: a World, or a process set made from it
    :param path: rank 0 writes it; with "{rank}" in it every rank writes its own
    :param mark_cycles: mark the control messages, too
    :raises InvalidArgumentError: a timeline is being written, or the file cannot be made
    """
    base = world.base
    if base.timeline is not None:
        raise errors.InvalidArgumentError(
            f"a timeline is being written to {base.timeline.path}: stop it first"
        )
    base.timeline = for_rank(base.loop, os.fspath(path), mark_cycles)


def stop(world: Any) -> None:
    """End the timeline of this World with all that has happened so far; nothing, if there is none on this rank."""
    timeline, world.base.timeline = world.base.timeline, None
    if timeline is not None:
        timeline.close()


def for_rank(loop: _core.Loop, path: str, mark_cycles: bool = False) -> Timeline | None:
    """Make the timeline that this rank writes, if it writes one."""
    if "{rank}" not in path and loop.rank != 0:
        return None
    try:
        return Timeline(loop, path.replace("{rank}", str(loop.rank)), mark_cycles)
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"no timeline can be written to {path}: {error.strerror}"
        ) from error


class Timeline:
    """The timeline of one rank, being written."""

    def __init__(self, loop: _core.Loop, path: str, mark_cycles: bool) -> None:
        """Open the file and begin to look."""
        self.path = path
        self._loop = loop
        self._document = _Document(
            path, {"wall clock minus ts (us)": (time.time_ns() - time.monotonic_ns()) / 1000}
        )
        self._phases = Phases(loop.rank, loop.size, mark_cycles)
        self._next, _ = loop.trace()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hpccoll timeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is left; the file is complete when this returns."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        """Never lets an error out: the program is not to end for its timeline."""
        try:
            with contextlib.suppress(errors.ShutDownError):
                while not self._ended.wait(EVERY):
                    self._look()
                self._look(rest=0)
            self._document.close()
        except OSError as error:
            print(
                f"hpccoll: the timeline {self.path} ends here: {error.strerror}", file=sys.stderr, flush=True
            )

    def _look(self, rest: float = REST) -> None:
        """Write down what is new, in portions, between which the program's threads run undisturbed."""
        while True:
            began, first = time.monotonic(), self._next
            self._next, records = self._loop.trace(first, MOST)
            lost = self._next - first - len(records)
            self._document.add(self._phases.events(records, lost))
            if len(records) < MOST:
                return
            self._ended.wait(rest * (time.monotonic() - began))


class _Document:
    """A file that is a JSON document after each write: what is added overwrites the end, and brings a new one."""

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
        while rest:
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written
        self._at += len(text)

    def close(self) -> None:
        os.close(self._file)
