# SPDX-License-Identifier: Apache-2.0
"""The requests of one rank, from its records, and the progress of each."""

import dataclasses

from hpccoll import _core
from hpccoll.text import byte_size
from hpccoll.tools.trace.recording import STATUS, ProcessSet, Record, Recording

__all__ = ["Request", "Story", "seconds"]

CUT_SHORT = {"SHUT_DOWN", "PEER_LOST", "STALLED", "TRANSPORT", "BROKEN", "NO_MEMORY", "BAD_MESSAGE"}
"""The statuses of requests that were not carried out, because the World ended first."""


@dataclasses.dataclass
class Request:
    """One request of one rank; times are nanoseconds on the clock of its rank, 0: not yet."""

    record: Record
    asked: int = 0
    agreed: int = 0
    moving: int = 0
    ended: int = 0
    waited: int = 0
    """The time at which a caller began to wait for it."""
    status: str = ""
    position: int = 0
    """Its position in the log of its process set, once it is done."""

    @property
    def set(self) -> int:
        """The number of its process set."""
        return self.record.set

    @property
    def is_message(self) -> bool:
        """Whether it is a send or a receive."""
        return self.record.operation in _core.P2P_OPERATIONS

    @property
    def is_agreed(self) -> bool:
        """Whether it has a place in the order of its process set: it is neither a message nor a start of a plan."""
        return not self.is_message and not self.record.plan

    @property
    def key(self) -> str:
        """Its name, equal on every rank."""
        return self.record.name

    @property
    def open(self) -> bool:
        """Whether it was not carried out."""
        return not self.ended or self.status in CUT_SHORT

    @property
    def call(self) -> str:
        """The operation and its name, for a sentence."""
        record = self.record
        if self.is_message:
            way = "from" if record.operation == "receive" else "to"
            peer = "any rank" if record.peer < 0 else f"rank {record.peer}"
            return f"{record.operation} {way} {peer} (tag {record.tag}, {byte_size(record.bytes)})"
        if record.operation == "join":
            return "join()"
        name = record.name.removeprefix("hpccoll.")
        if record.plan:
            return f'a start of {record.operation} "{record.name}"'
        if record.name.startswith("unnamed call"):
            return f"{record.operation} ({record.name})"
        return f'hpccoll\'s own {record.operation} "{name}"' if name != record.name else f'{record.operation} "{name}"'

    @property
    def signature(self) -> str:
        """Dtype and shape, in parentheses; "" where there are none or they were not recorded."""
        record = self.record
        if self.is_message or not self.asked or not record.arrays:
            return ""
        shape = ", ".join(map(str, record.dims)) + (", ..." if record.ndim > len(record.dims) else "")
        more = f" and {record.arrays - 1} more arrays" if record.arrays > 1 else ""
        comma = "," if record.ndim == 1 else ""
        root = f", root {record.root}" if record.root >= 0 else ""
        return f"{record.dtype}, shape ({shape}{comma}){more}{root}"

    @property
    def described(self) -> str:
        """The call with its signature."""
        return f"{self.call} ({self.signature})" if self.signature else self.call

    @property
    def place(self) -> str:
        """The program's line that made it: " at step (train.py:17)"; "" without HPCCOLL_DEBUG."""
        return f" at {self.record.site}" if self.record.site else ""


class Story:
    """The requests of one rank, the oldest first."""

    def __init__(self, recording: Recording) -> None:
        """Build the requests of a rank from its records."""
        self.recording = recording
        self.requests: list[Request] = []
        self.heard: dict[int, int] = {}
        self._in_flight: dict[int, Request] = {}
        self._batches: dict[tuple[int, int], list[Request]] = {}
        for record in recording.records:
            handler = getattr(self, f"_on_{record.kind}", None)
            if handler:
                handler(record)

    def _on_receive(self, record: Record) -> None:
        self.heard[record.peer] = record.time

    def _on_enqueue(self, record: Record) -> None:
        request = Request(record, asked=record.time)
        self.requests.append(request)
        self._in_flight[record.ticket] = request

    def _known(self, record: Record) -> Request:
        """Return the request of a record; make it if its beginning is before the first record."""
        if record.ticket not in self._in_flight:
            self._in_flight[record.ticket] = Request(record)
            self.requests.append(self._in_flight[record.ticket])
        return self._in_flight[record.ticket]

    def _on_fuse(self, record: Record) -> None:
        request = self._known(record)
        request.agreed = record.time
        self._batches.setdefault((record.set, record.batch), []).append(request)

    def _on_start(self, record: Record) -> None:
        for request in self._batches.get((record.set, record.batch), []):
            request.moving = record.time

    def _on_end(self, record: Record) -> None:
        self._batches.pop((record.set, record.batch), None)

    def _on_complete(self, record: Record) -> None:
        request = self._known(record)
        del self._in_flight[record.ticket]
        request.ended, request.status, request.position = record.time, STATUS[record.status], record.batch

    def _on_wait(self, record: Record) -> None:
        self._known(record).waited = record.time

    # ---- facts for the sentences ----------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The rank in the World."""
        return self.recording.rank

    @property
    def open(self) -> list[Request]:
        """The unfinished requests, the oldest first."""
        return [request for request in self.requests if request.open]

    @property
    def waits_for(self) -> Request | None:
        """The request for which a caller sleeps; None: no caller waits, or not yet for long."""
        if not self.recording.callers and not self.recording.cause and not self.recording.ended:
            return None
        return next((request for request in self.open if request.waited), None)

    @property
    def last(self) -> Request | None:
        """The newest request."""
        return self.requests[-1] if self.requests else None

    def sets(self) -> dict[int, ProcessSet]:
        """Return the process sets of this rank by number."""
        return self.recording.sets

    def before(self, request: Request) -> Request | None:
        """Return the request of the same process set that this rank made just before."""
        earlier = [made for made in self.requests if made.set == request.set and made.asked < request.asked]
        return earlier[-1] if earlier else None

    def ago(self, time: int) -> str:
        """Return the time from a moment to the end of the recording: `3.2 s`."""
        return seconds(self.recording.written - time)


def seconds(nanoseconds: float) -> str:
    """Return a duration in words: `3.2 s`, `20 ms`."""
    if nanoseconds < 1e9:
        return f"{max(nanoseconds, 0) / 1e6:.3g} ms"
    return f"{nanoseconds / 1e9:.1f} s" if nanoseconds < 100e9 else f"{nanoseconds / 1e9:.0f} s"
