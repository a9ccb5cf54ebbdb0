# SPDX-License-Identifier: Apache-2.0
"""Reads the trace of one rank: the file that the rank wrote, or its ring in memory (ext/loop/trace.h)."""

import dataclasses
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpccoll import _core

__all__ = ["ENDING", "STATUS", "Record", "Recording", "TraceError", "as_file", "parse", "read_folder"]

ENDING = ".hctrace"
HEADER = struct.Struct("=8s4I2I3iI3Q32s64s704s256s256s")
NRECORDS_AT, FIRST_AT, WRITTEN_AT = 24, 48, 64
SETS_AT, SET, HEAD_AT, CALLERS_AT = HEADER.size, struct.Struct("=IIii"), 3456, 3520
OWN = str(Path(__file__).parents[2])
RECORD = struct.Struct("=4QihBBIIIi4BI4q64s")


class TraceError(Exception):
    """A file or a ring cannot be read; the text has the reason."""


class Record(NamedTuple):
    """One event, see hc_trace_record."""

    time: int
    bytes: int
    ticket: int
    batch: int
    peer: int
    status: int
    kind: str
    operation: str
    set: int
    arrays: int
    tag: int
    root: int
    dtype: str
    ndim: int
    reduction: int
    plan: bool
    dims: tuple[int, ...]
    name: str
    site: str


class ProcessSet(NamedTuple):
    """A process set as one of its members knows it; two of one `wire` and `lead` are the same."""

    wire: int
    size: int
    lead: int


@dataclasses.dataclass
class Recording:
    """The last events of one rank, with facts about its process."""

    world: str
    rank: int
    size: int
    host: str
    pid: int
    folder: str
    handles_signal: bool
    """SIGUSR2 makes the process write its file."""
    clock: int
    """Nanoseconds: wall-clock time minus the time of the records."""
    written: int
    """The time of writing, on the clock of the records."""
    callers: int
    """Threads that were waiting in a call."""
    cause: str
    ended: str
    sets: dict[int, ProcessSet]
    records: list[Record]
    first: int = 0
    """Number of the first record; earlier ones were overwritten."""
    state: str = ""
    """The kernel's code for the state of the process, if another process has read it; "T": stopped."""
    stack: str = ""
    """The position of the program, if it is known: `step (train.py:17)`, the innermost function first."""


def read_folder(folder: Path, left_out: list[str]) -> dict[str, list[Recording]]:
    """Read all files of a folder.

    :param left_out: gets a text for each file that cannot be read, as one that a full disk has cut off
    :returns: by World, in the order in which they were written, the recordings of its ranks
    :raises TraceError: there is no file that can be read
    """
    if not folder.is_dir():
        raise TraceError(f"{folder} is no folder: give the one that the job has named on stderr")
    files = sorted(folder.glob(f"*{ENDING}"))
    if not files:
        raise TraceError(f"{folder} has no file *{ENDING}: no rank has written its last events there")
    worlds: dict[str, list[Recording]] = {}
    for file in files:
        try:
            recording = parse(file.read_bytes(), str(file))
        except (TraceError, OSError) as error:
            left_out.append(str(error))
            continue
        with suppress(OSError):
            _add_notes(recording, file)
        worlds.setdefault(recording.world, []).append(recording)
    if not worlds:
        raise TraceError(left_out[0])
    for recordings in worlds.values():
        recordings.sort(key=lambda recording: recording.rank)
    return dict(sorted(worlds.items(), key=lambda item: min(each.written + each.clock for each in item[1])))


def _add_notes(recording: Recording, file: Path) -> None:
    """Add the contents of the files beside it: the main thread's stack, and the state of the process in /proc."""
    stack, state = file.with_suffix(".stack"), file.with_suffix(".state")
    if stack.exists():
        recording.stack = program_lines(stack.read_text(errors="replace"))
    if state.exists():
        recording.state = state.read_text().strip()


def program_lines(stacks: str) -> str:
    """Find the position of the interrupted thread in the output of Python's faulthandler.

    :returns: `step (train.py:17), main (train.py:40)`, the innermost first; "" if it is only in this library
    """
    frames = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', stacks, re.MULTILINE)
    shown = [f"{name} ({path}:{line})" for path, line, name in frames if not path.startswith((OWN, "<frozen"))]
    return ", ".join(shown[:3])


def as_file(ring: bytes, now: int) -> bytes:
    """Turn the bytes of a ring into those of a file: the newest records, in order.

    :param now: when the ring was copied, on the clock of its records
    """
    (_, version, header_bytes, record_bytes, site_bytes, nrecords, *_) = HEADER.unpack_from(ring)
    if version != _core.TRACE_VERSION:
        raise TraceError(f"the process has traces of format {version}, this hpccoll reads {_core.TRACE_VERSION}")
    (head,) = struct.unpack_from("=Q", ring, HEAD_AT)
    first = max(0, head - _core.TRACE_KEPT)
    header = bytearray(ring[:header_bytes])
    struct.pack_into("=2I", header, NRECORDS_AT, head - first, 1)
    struct.pack_into("=Q", header, FIRST_AT, first)
    struct.pack_into("=Q", header, WRITTEN_AT, now)
    sites_at = header_bytes + nrecords * record_bytes
    parts = [bytes(header)]
    for at, size in ((header_bytes, record_bytes), (sites_at, site_bytes)):
        parts += [ring[at + n % nrecords * size : at + (n % nrecords + 1) * size] for n in range(first, head)]
    return b"".join(parts)


def parse(data: bytes, name: str) -> Recording:
    """Read the bytes of a file.

    :param name: of the file, for errors
    :raises TraceError: the bytes are no trace, are cut off or damaged, or a trace of another version of hpccoll
    """
    if len(data) < HEADER.size or not data.startswith(_core.TRACE_MAGIC):
        raise TraceError(f"{name} is not the trace of a rank")
    (_, version, header_bytes, record_bytes, site_bytes, nrecords, _, rank, size, pid, handles, first, clock,
     written, world, host, folder, cause, ended) = HEADER.unpack_from(data)  # fmt: skip
    if version != _core.TRACE_VERSION or record_bytes != RECORD.size:
        raise TraceError(
            f"{name} has format {version}, this hpccoll reads {_core.TRACE_VERSION}: use the hpccoll of the job"
        )
    if len(data) < header_bytes + nrecords * (record_bytes + site_bytes):
        raise TraceError(f"{name} is cut off after {len(data)} bytes")
    (head,) = struct.unpack_from("=Q", data, HEAD_AT)
    (callers,) = struct.unpack_from("=i", data, CALLERS_AT)
    sites_at = header_bytes + nrecords * record_bytes
    sets = dict(_sets(data))
    try:
        if not 0 <= rank < size or (0 in sets and sets[0].size != size):
            raise IndexError(rank)
        records = [
            _record(data, header_bytes + slot * record_bytes, sites_at + slot * site_bytes if site_bytes else 0)
            for slot in range(head - first)
        ]
    except (IndexError, struct.error):
        raise TraceError(f"{name} is damaged: no rank writes what it holds") from None
    return Recording(
        _text(world), rank, size, _text(host), pid, _text(folder), bool(handles), clock, written, callers,
        _text(cause), _text(ended), sets, records, first,
    )  # fmt: skip


def _sets(data: bytes) -> Iterator[tuple[int, ProcessSet]]:
    for number in range(_core.MAX_SETS):
        _, wire, size, lead = SET.unpack_from(data, SETS_AT + number * SET.size)
        if size:
            yield number, ProcessSet(wire, size, lead)


STATUS = {code: name for code, name, *_ in _core.STATUSES}
OPERATIONS = (*_core.OPERATIONS, *_core.P2P_OPERATIONS)


def _record(data: bytes, at: int, site_at: int) -> Record:
    (time, nbytes, ticket, batch, peer, status, kind, operation, in_set, count, tag, root, dtype, ndim, reduction, _,
     plan, *dims, name) = RECORD.unpack_from(data, at)  # fmt: skip
    site = _text(data[site_at : site_at + _core.TRACE_SITE]) if site_at else ""
    if status not in STATUS:
        raise IndexError(status)
    return Record(
        time, nbytes, ticket, batch, peer, status, _core.TRACE_KINDS[kind], OPERATIONS[operation], in_set, count, tag,
        root, _core.DTYPES[dtype], ndim, reduction, bool(plan), tuple(dims[:ndim]), _text(name), site,
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
