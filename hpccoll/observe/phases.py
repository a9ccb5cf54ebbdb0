# SPDX-License-Identifier: Apache-2.0
"""From trace records (ext/loop/loop.h) to the events of a timeline: which phase each request is in."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hpccoll import _core

__all__ = ["Phases"]

Event = dict[str, Any]
STATUS = {code: name for code, name, *_ in _core.STATUSES}


class _Row:
    """A line of the timeline. At most one phase is open on it."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.phase = ""
        self.ticket = 0


class Phases:
    """What is going on, as far as the records tell. They come in order, maybe with gaps."""

    def __init__(self, rank: int, size: int, mark_cycles: bool) -> None:
        """The events are those of `rank`, which is the timeline's process number."""
        self._pid = rank
        self._title = f"rank {rank} of {size}"
        self._marks = mark_cycles
        self._rows: dict[tuple[Any, ...], _Row] = {}
        self._flying: dict[int, _Row] = {}  # by ticket
        self._batches: defaultdict[tuple[int, int], list[_Row]] = defaultdict(list)  # by set, number
        self._new: list[Event] = []

    def events(self, records: list[dict[str, Any]], lost: int) -> list[Event]:
        """The events of these records; `lost`: how many before or among them could not be read."""
        if self._title:
            self._new.append(self._name("process_name", 0, self._title))
            self._title = ""
        if lost:
            self._gap(lost, records)
        for record in records:
            handler = getattr(self, f"_on_{record['kind']}")
            handler(record, record["time"] / 1000)
        new, self._new = self._new, []
        return new

    # ---- records ------------------------------------------------------------------------------------

    def _on_enqueue(self, record: Event, ts: float) -> None:
        row = self._row_of(record)
        row.ticket = record["ticket"]
        self._flying[row.ticket] = row
        self._mark(row, ts, "enqueue", operation=record["operation"], bytes=record["bytes"])
        self._turn(row, ts, "negotiate")

    def _on_fuse(self, record: Event, ts: float) -> None:
        row = self._flying.get(record["ticket"])
        if row is None:
            return  # enqueued before the timeline began, or in a gap
        if row.phase == "negotiate":
            self._turn(row, ts, "fuse")
        self._batches[record["set"], record["batch"]].append(row)

    def _on_start(self, record: Event, ts: float) -> None:
        number = record["batch"]
        for row in self._batches.pop((record["set"], number), []):
            if row.phase == "fuse":
                self._turn(row, ts, "reduce", batch=number)
        self._turn(
            self._row("batches", record["set"]), ts, record["operation"],
            batch=number, bytes=record["bytes"], requests=record["count"],
        )  # fmt: skip

    def _on_end(self, record: Event, ts: float) -> None:
        self._turn(self._row("batches", record["set"]), ts, "")

    def _on_complete(self, record: Event, ts: float) -> None:
        row = self._flying.pop(record["ticket"], None)
        if row is None:
            return
        row.ticket = 0
        self._turn(row, ts, "")
        self._mark(row, ts, "complete", status=STATUS[record["status"]])

    def _on_send(self, record: Event, ts: float) -> None:
        if self._marks:
            self._mark(self._row("control"), ts, f"{record['kind']} {record['peer']}", bytes=record["bytes"])

    _on_receive = _on_send

    def _gap(self, lost: int, records: list[Event]) -> None:
        """What was open may have ended meanwhile: close it, and say so."""
        ts = (records[0]["time"] if records else 0) / 1000
        for row in self._rows.values():
            self._turn(row, ts, "")
            row.ticket = 0
        self._flying.clear()
        self._batches.clear()
        text = f"{lost} records were overwritten before they could be read"
        self._new.append({"ph": "i", "s": "p", "pid": self._pid, "tid": 0, "ts": ts, "name": text})

    # ---- rows and events ----------------------------------------------------------------------------

    def _row_of(self, record: Event) -> _Row:
        """The request's row: that of its name, unless another request of this (cut) name is on its way."""
        name = record["name"] or f"{record['operation']} {record['peer']}"
        copy = 1
        while (row := self._row("tensor", record["set"], name, copy)).ticket:
            copy += 1
        return row

    def _row(self, *key: Any) -> _Row:
        if key not in self._rows:
            self._rows[key] = _Row(len(self._rows) + 1)
            self._new.append(self._name("thread_name", self._rows[key].tid, _title(*key)))
        return self._rows[key]

    def _turn(self, row: _Row, ts: float, phase: str, **facts: Any) -> None:
        """End the row's open phase, and begin the next one, unless it is ""."""
        if row.phase:
            self._new.append({"ph": "E", "pid": self._pid, "tid": row.tid, "ts": ts})
        if phase:
            event = {"ph": "B", "pid": self._pid, "tid": row.tid, "ts": ts, "name": phase}
            self._new.append(event | {"args": facts} if facts else event)
        row.phase = phase

    def _mark(self, row: _Row, ts: float, name: str, **facts: Any) -> None:
        self._new.append(
            {"ph": "i", "s": "t", "pid": self._pid, "tid": row.tid, "ts": ts, "name": name, "args": facts}
        )

    def _name(self, kind: str, tid: int, text: str) -> Event:
        return {"ph": "M", "pid": self._pid, "tid": tid, "name": kind, "args": {"name": text}}


def _title(kind: str, number: int = 0, name: str = "", copy: int = 1) -> str:
    """How a row is called; process sets other than the World show their number."""
    where = f" (set {number})" if number else ""
    if kind == "tensor":
        return f"{name}{f' #{copy}' if copy > 1 else ''}{where}"
    return f"{'batches' if kind == 'batches' else 'control messages'}{where}"
