# SPDX-License-Identifier: Apache-2.0
"""Turns trace records (ext/loop/loop.h) into the events of a timeline: the phases of each request."""

from collections import defaultdict
from typing import Any

from hpccoll import _core

__all__ = ["Phases"]

Event = dict[str, Any]
STATUS = {code: name for code, name, *_ in _core.STATUSES}


class _Row:
    """A row of the timeline, with at most one open phase."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.phase = ""
        self.ticket = 0


class Phases:
    """The state of all requests of a rank, from records that come in order, maybe with gaps."""

    def __init__(self, rank: int, size: int, mark_cycles: bool) -> None:
        """Begin a timeline.

        :param rank: the rank whose events these are; it is the timeline's process number
        :param size: number of ranks of the World
        :param mark_cycles: whether control messages are marked, too
        """
        self._pid = rank
        self._title = f"rank {rank} of {size}"
        self._marks = mark_cycles
        self._rows: dict[tuple[Any, ...], _Row] = {}
        self._pending: dict[int, _Row] = {}  # by ticket
        self._batches: defaultdict[tuple[int, int], list[_Row]] = defaultdict(list)  # by set, number
        self._new: list[Event] = []

    def events(self, records: list[dict[str, Any]], lost: int) -> list[Event]:
        """Turn records into events.

        :param lost: number of records, before or among these, that were overwritten before they could be read
        :returns: events in the Trace Event Format
        """
        if self._title:
            self._new.append(self._name("process_name", 0, self._title))
            self._title = ""
        if lost:
            self._gap(lost, records)
        for record in records:
            if handler := getattr(self, f"_on_{record['kind']}", None):  # waits have no place in a row
                handler(record, record["time"] / 1000)
        new, self._new = self._new, []
        return new

    # ---- records ------------------------------------------------------------------------------------

    def _on_enqueue(self, record: Event, ts: float) -> None:
        if record["plan"]:
            return  # its rows would lack the starts that need no driver
        row = self._row_of(record)
        row.ticket = record["ticket"]
        self._pending[row.ticket] = row
        self._mark(row, ts, "enqueue", operation=record["operation"], bytes=record["bytes"])
        self._begin(row, ts, "negotiate")

    def _on_fuse(self, record: Event, ts: float) -> None:
        row = self._pending.get(record["ticket"])
        if row is None:
            return  # enqueued before the timeline began, or in a gap
        if row.phase == "negotiate":
            self._begin(row, ts, "fuse")
        self._batches[record["set"], record["batch"]].append(row)

    def _on_start(self, record: Event, ts: float) -> None:
        number = record["batch"]
        for row in self._batches.pop((record["set"], number), []):
            if row.phase == "fuse":
                self._begin(row, ts, "reduce", batch=number)
        self._begin(
            self._row("batches", record["set"]), ts, record["operation"],
            batch=number, bytes=record["bytes"], requests=record["count"],
        )  # fmt: skip

    def _on_end(self, record: Event, ts: float) -> None:
        self._begin(self._row("batches", record["set"]), ts, "")

    def _on_complete(self, record: Event, ts: float) -> None:
        row = self._pending.pop(record["ticket"], None)
        if row is None:
            return
        row.ticket = 0
        self._begin(row, ts, "")
        self._mark(row, ts, "complete", status=STATUS[record["status"]])

    def _on_send(self, record: Event, ts: float) -> None:
        if self._marks:
            self._mark(self._row("control"), ts, f"{record['kind']} {record['peer']}", bytes=record["bytes"])

    _on_receive = _on_send

    def _gap(self, lost: int, records: list[Event]) -> None:
        """Close all open phases, because their ends may be lost, and mark the gap."""
        ts = (records[0]["time"] if records else 0) / 1000
        for row in self._rows.values():
            self._begin(row, ts, "")
            row.ticket = 0
        self._pending.clear()
        self._batches.clear()
        text = f"{lost} records were overwritten before they could be read"
        self._new.append({"ph": "i", "s": "p", "pid": self._pid, "tid": 0, "ts": ts, "name": text})

    # ---- rows and events ----------------------------------------------------------------------------

    def _row_of(self, record: Event) -> _Row:
        """Find the row of a request by its name; a pending request with the same (truncated) name gets another row."""
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

    def _begin(self, row: _Row, ts: float, phase: str, **facts: Any) -> None:
        """End the open phase of a row, and begin the next one, unless it is ""."""
        if row.phase:
            self._new.append({"ph": "E", "pid": self._pid, "tid": row.tid, "ts": ts})
        if phase:
            event = {"ph": "B", "pid": self._pid, "tid": row.tid, "ts": ts, "name": phase}
            self._new.append(event | {"args": facts} if facts else event)
        row.phase = phase

    def _mark(self, row: _Row, ts: float, name: str, **facts: Any) -> None:
        self._new.append({"ph": "i", "s": "t", "pid": self._pid, "tid": row.tid, "ts": ts, "name": name, "args": facts})

    def _name(self, kind: str, tid: int, text: str) -> Event:
        return {"ph": "M", "pid": self._pid, "tid": tid, "name": kind, "args": {"name": text}}


def _title(kind: str, number: int = 0, name: str = "", copy: int = 1) -> str:
    """The title of a row; it has the number of the process set unless that is the World."""
    where = f" (set {number})" if number else ""
    if kind == "tensor":
        return f"{name}{f' #{copy}' if copy > 1 else ''}{where}"
    return f"{'batches' if kind == 'batches' else 'control messages'}{where}"
