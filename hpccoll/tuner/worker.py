# SPDX-License-Identifier: Apache-2.0
"""The thread of rank 0 that measures the program's steps and proposes knobs.

It reads the trace that each rank writes anyway, so that measuring costs the program nothing. A step is the time from
one request of a name to the next; the name is that with the most reduced bytes. A sample is the median of several
steps, each divided by its reduced bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections import Counter
from typing import IO, Any

from hpccoll import _core, config, errors
from hpccoll.text import say
from hpccoll.tuner.search import Knobs, Outcome, search

__all__ = ["Tuner", "for_rank"]

LOOK = 0.02
"""Seconds between two looks at the trace."""
REPEATS = 4
"""A name with so many requests marks the program's steps."""
SHORTEST = 0.05
"""Least seconds of a sample."""
COLUMNS = ("seconds", "fusion_threshold", "raise_bytes", "raise_window", "bytes_per_second", "what")
FUSED = frozenset(("allreduce", "reduce", "scan", "exscan"))
"""The operations that the knobs are about (HC_OP_FUSES)."""


def for_rank(first: _core.Set, settings: config.Config) -> Tuner | None:
    """Start the tuner of a World, if this rank is to run it.

    :param first: the process set of all ranks
    :returns: None if this rank runs none
    :raises InvalidArgumentError: the log cannot be written (all ranks get a StartError)
    """
    if not settings.autotune or first.rank != 0:
        return None
    if first.size == 1:
        _say("there is one rank, and nothing to tune")
        return None
    try:
        log = _opened(settings.autotune_log) if settings.autotune_log else None
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"HPCCOLL_AUTOTUNE_LOG: {settings.autotune_log} cannot be written: {error.strerror}"
        ) from error
    return Tuner(first, settings, log)


def _opened(path: str) -> IO[str]:
    """Open a log, and write its first line.

    :raises OSError: it takes no line
    """
    log = open(path, "w", encoding="utf-8")  # noqa: SIM115 - the tuner closes it
    try:
        log.write(f"{','.join(COLUMNS)}\n")
        log.flush()
    except OSError:
        _close(log)
        raise
    return log


def _close(log: IO[str]) -> None:
    """Close a log; what a full disk has not taken is lost."""
    with contextlib.suppress(OSError):
        log.close()


def _say(text: str) -> None:
    say(f"hpccoll: autotune: {text}")


class Tuner:
    """The tuner of a World, on its rank 0."""

    def __init__(self, first: _core.Set, settings: config.Config, log: IO[str] | None) -> None:
        """Start the thread."""
        self._set, self._loop, self._settings, self._log = first, first.loop, settings, log
        self._ended = threading.Event()
        self._began = time.monotonic()
        self.outcome: Outcome | None = None
        """The result of the search; None: it still runs."""
        self._laps: _core.Laps | None = None
        self._steps = 0
        self._settled = 0
        self._thread = threading.Thread(target=self._run, name="hpccoll tuner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; call it before the World's loop is closed. The knobs stay as they are."""
        self._ended.set()
        self._thread.join()

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        """Tune until the search ends, the World ends, or the log cannot be written."""
        try:
            with contextlib.suppress(errors.ShutDownError, _EndedError):
                name, first = self._find_name()
                self._laps = _core.Laps(self._loop, name, first)
                self._search(name)
        except OSError as error:
            _say(f"ends here: {self._settings.autotune_log}: {error.strerror}")
        finally:
            if self._log:
                _close(self._log)

    def _search(self, name: str) -> None:
        defaults = self._tuning()
        if self._settings.verbose:
            _say(f"began: it measures the steps from one {name!r} to the next")
        for _ in range(self._settings.autotune_warmup):
            self._sample(defaults)
        best, asked = defaults, search(defaults)
        sample: Any = None
        while True:
            try:
                wanted = asked.send(sample)
            except StopIteration as end:
                self._finish(defaults, end.value)
                return
            if isinstance(wanted, Outcome):
                self._tell_change(best, wanted)
                best, sample = wanted.knobs, None
            else:
                sample = self._sample(wanted)

    def _tell_change(self, before: Knobs, adopted: Outcome) -> None:
        changes = ", ".join(
            f"{name} {getattr(before, name):g} -> {getattr(adopted.knobs, name):g}"
            for name in Knobs.__dataclass_fields__
            if getattr(before, name) != getattr(adopted.knobs, name)
        )
        self._write_knobs(adopted.knobs, "", f"adopted: {adopted.ratio} of the time before")
        if self._settings.verbose:
            _say(f"{changes}: steps take {adopted.ratio} of the time before")

    def _finish(self, defaults: Knobs, outcome: Outcome) -> None:
        self._use(outcome.knobs)
        gained = outcome.ratio is not None
        text = f"{outcome.ratio} of the defaults' time" if gained else "nothing gained: the defaults hold"
        self._write_knobs(outcome.knobs, "", f"ended: {text}")
        if self._settings.verbose:
            keep = " ".join(
                f"{config.variable(name)}={getattr(outcome.knobs, name):.12g}"
                for name in Knobs.__dataclass_fields__
                if getattr(outcome.knobs, name) != getattr(defaults, name)
            )
            _say(f"ended after {self._steps} steps: {text}" + (f"; to begin with them: {keep}" if keep else ""))
        self.outcome = outcome

    # ---- measuring -------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise _EndedError

    def _find_name(self) -> tuple[str, int]:
        """The name that marks the program's steps, and the number of the trace's record from which on to look."""
        first, seen, reduced = 0, Counter[str](), Counter[str]()
        while True:
            first, records = self._loop.trace(first)
            for record in records:
                if record["kind"] == "enqueue" and record["set"] == 0 and record["operation"] in FUSED:
                    seen[record["name"]] += 1
                    reduced[record["name"]] += record["bytes"]
            repeated = [name for name, times in seen.items() if times >= REPEATS and reduced[name]]
            if repeated:
                return max(repeated, key=reduced.__getitem__), first
            if len(seen) > 1 << 16:  # names that never recur
                seen.clear()
                reduced.clear()
            self._wait(10 * LOOK)

    def _use(self, knobs: Knobs) -> None:
        """Propose knobs, and wait until the log has them here."""
        if self._tuning() == knobs:
            return
        self._set.tune(knobs.fusion_threshold, knobs.raise_bytes, knobs.raise_window)
        while self._tuning() != knobs:
            self._wait(LOOK / 4)

    def _tuning(self) -> Knobs:
        tuning = self._loop.tuning()
        self._settled = int(tuning["at"])
        return Knobs(int(tuning["fusion_threshold"]), int(tuning["raise_bytes"]), round(tuning["raise_window"], 9))

    def _sample(self, knobs: Knobs) -> float:
        """Seconds per byte: the median of several steps with these knobs, the first of which does not count."""
        self._use(knobs)
        assert self._laps is not None
        steps: list[tuple[float, float]] = []
        for _ in itertools.count():
            found = [lap for lap in self._laps.read() if lap[0] >= self._settled and lap[2]]
            steps += [((ended - begun) * 1e-9, nbytes) for begun, ended, nbytes in found]
            measured = steps[1:]
            if len(measured) >= self._settings.autotune_steps and sum(s for s, _ in measured) >= SHORTEST:
                break
            self._wait(LOOK)
        self._steps += len(steps)
        value = statistics.median(seconds / nbytes for seconds, nbytes in measured)
        self._write_knobs(knobs, f"{1 / value:.6g}", "sample")
        return value

    # ---- the log ---------------------------------------------------------------------------------

    def _write_knobs(self, knobs: Knobs, score: str, what: str) -> None:
        values = (f"{getattr(knobs, name):.12g}" for name in Knobs.__dataclass_fields__)
        self._write(f"{time.monotonic() - self._began:.3f}", *values, score, what)

    def _write(self, *fields: str) -> None:
        if self._log:
            self._log.write(",".join(fields) + "\n")
            self._log.flush()


class _EndedError(Exception):
    """The World is being shut down."""
