# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, as bytes. If pickle refuses an object, all ranks raise the same error.

An object that arrives and cannot be unpickled is an error of the receiver alone: the operation has ended by then.

The argument `dumps` makes the bytes of an object, which pickle.loads() must understand.
"""

import contextlib
import operator
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hpccoll import _core, agreements, arrays, errors
from hpccoll.compared import NOBODY, Compared, all_equal, digest, extremes, index
from hpccoll.outside import check_inside
from hpccoll.reductions import MIN

__all__ = ["Dumps", "allgather", "broadcast", "compare", "exchange", "gather", "receive", "same", "scatter", "send"]

Dumps = Callable[[Any], bytes]

_PICKLED = "a pickle"
"""The type of the messages: so that no rank mistakes the bytes of an array for an object, or the reverse."""


class _Refused(str):
    """The reason why an object could not be packed; it travels in the object's place."""

    __slots__ = ()


def broadcast(own: _core.Set, value: Any, root: int, name: str | None, dumps: Dumps = pickle.dumps) -> Any:
    """Give the root's object to all ranks of the process set; the root also gets a copy."""
    root = _check_root(own, "broadcast", root, name, 1)
    data = _pack(value, dumps) if own.rank == root else np.empty(0, np.uint8)
    from_root = f"{_PICKLED} from root {root}"  # an allgather has no root that ranks could compare
    received = own.collective("allgather", data, name, None, True, type_name=from_root).wait()
    call = _call("broadcast_object", name)
    if not len(received):
        raise errors.RootJoinedError(f"{call}: rank {root}, the root, has joined")
    return _unpack(own, call, received, root)


def allgather(own: _core.Set, value: Any, name: str | None, dumps: Dumps = pickle.dumps) -> list[Any]:
    """Collect one object of each rank of the process set, in order of the ranks; a joined rank has none."""
    handle = own.collective("allgather", _pack(value, dumps), name, None, True, type_name=_PICKLED)
    received = handle.wait()
    return _unpack_rows(own, _call("allgather_object", name), handle, received)


def compare(own: _core.Set, value: Any, name: str, seconds: float | None) -> Compared[Any]:
    """Exchange a value that is equal on most or all ranks, for a collective step.

    A reduction tells whether all values are equal. If not, each rank sends its value's digest, and the lowest rank of
    each different value sends the value.

    :param value: of types whose repr() is complete
    :param seconds: time limit for the other ranks (HPCCOLL_START_TIMEOUT); None: no limit
    :raises StartError: a rank has not called this in time; the text names it, if a report of the wait does
    """
    with agreements.whole():
        return _compare(own, value, name, seconds)


def _compare(own: _core.Set, value: Any, name: str, seconds: float | None) -> Compared[Any]:
    mine = digest(repr(value).encode())  # pickles of equal values may differ
    least = _meet(own, "allreduce", extremes(mine), name, seconds, op=MIN).wait()
    if all_equal(least):
        return Compared([value], own.size)
    handle = _meet(own, "allgather", mine[:1], f"{name} (digests)", seconds)
    first, of = index(handle.wait())
    here = np.flatnonzero(handle.rows())  # a rank that has joined has no value
    first = here[first]
    if own.size != len(here):
        of, found = np.full(own.size, NOBODY), of
        of[here] = found
    packed = np.frombuffer(pickle.dumps(value) if own.rank in first else b"", np.uint8)
    values = _meet(own, "allgather", packed, f"{name} (values)", seconds)
    return Compared(_unpack_rows(own, name, values, values.wait()), own.size, of)


def same(what: str, said: Compared[Any]) -> Any:
    """Return the common value of all ranks.

    :param what: the beginning of the error
    :raises MismatchError: the values differ; the text names the first rank that differs from rank 0
    """
    if not said.alike:
        first, other = said.values[:2]
        raise errors.MismatchError(f"{what} {first}, rank {said.first(1)} says {other}")
    return said.values[0]


def exchange(own: _core.Set, name: str, data: bytes, seconds: float | None) -> np.ndarray:
    """Exchange a few bytes; for ranks that make something together. See `compare`.

    :param data: as many bytes on all ranks
    :returns: the bytes of all ranks, 1-d
    """
    gathered: np.ndarray = _meet(own, "allgather", np.frombuffer(data, np.uint8), name, seconds).wait()
    return gathered


def _meet(
    own: _core.Set, operation: str, data: np.ndarray, name: str, seconds: float | None, **options: Any
) -> _core.Handle:
    """Run an operation to its end, or raise a StartError that names the missing ranks."""
    handle = own.collective(operation, data, name, None, True, **options)
    limit = None if seconds is None else time.monotonic() + seconds
    try:
        handle.wait(seconds)
    except TimeoutError:
        if limit is None or time.monotonic() < limit:  # a signal's handler has raised it
            raise
        report = own.loop.last_report()
        who = report if repr(name) in report else "no report yet: HPCCOLL_STALL_WARNING is longer than that"
        what = name.removeprefix("hpccoll.")
        raise errors.StartError(
            f"{what}: not all ranks came within {seconds:g} s (HPCCOLL_START_TIMEOUT): {who}. Shut the World down: "
            "what this rank has asked for is still in flight"
        ) from None
    return handle


def gather(own: _core.Set, value: Any, root: int, name: str | None) -> list[Any] | None:
    """Collect one object of each rank of the process set on the root; a joined rank has none. None elsewhere."""
    root = _check_root(own, "gather", root, name, 2)
    call = _call("gather_object", name)
    data, refused = _try_to_pack(value, pickle.dumps)
    said = own.collective("allgather", data if refused else data[:0], _other(name), None, False, type_name=_PICKLED)
    handle = own.collective("gather", data, name, None, True, root=root, type_name=_PICKLED)
    received = _wait(own, call, handle, said)
    return _unpack_rows(own, call, handle, received) if own.rank == root else None


def scatter(own: _core.Set, values: Sequence[Any] | None, root: int, name: str | None) -> Any:
    """Give each rank of the process set one of the root's objects."""
    root = _check_root(own, "scatter", root, name, 2)
    call = _call("scatter_object", name)
    parts: list[np.ndarray] = []
    reason = nothing = np.empty(0, np.uint8)
    if own.rank == root:
        with _telling(own, "scatter", name, 2):
            packed = [_try_to_pack(value, pickle.dumps) for value in _one_for_each(values, own.size)]
        parts = [part for part, _ in packed]
        reason = next((part for part, refused in packed if refused), nothing)
    said = own.collective("allgather", reason, _other(name), None, False, type_name=_PICKLED)
    splits = [len(part) for part in parts]
    data = np.concatenate([nothing, *parts])
    handle = own.collective("scatter", data, name, None, True, root=root, splits=splits, type_name=_PICKLED)
    received = _wait(own, call, handle, said)
    return _unpack(own, call, received, root)


def send(own: _core.Set, value: Any, dest: int, tag: int) -> None:
    """Send an object, or the reason why it has none, which both ranks raise."""
    data, refused = _try_to_pack(value, pickle.dumps)
    own.send(data, dest, tag, True, type_name=_PICKLED).wait()
    if refused:
        _unpack(own, f"send_object to rank {dest}", data, own.rank)


def receive(own: _core.Set, source: int, tag: int) -> tuple[Any, _core.Handle]:
    """Receive an object (None for PROC_NULL), and the handle of its message."""
    handle = own.recv_bytes(source, _PICKLED, tag, True)
    data = handle.wait()
    return (_unpack(own, f"recv_object with tag {handle.tag}", data, handle.peer) if len(data) else None), handle


def _check_root(own: _core.Set, operation: str, root: int, name: str | None, requests: int) -> int:
    """Return the root of a call with objects as a plain number, which has one text on all ranks.

    :param requests: those of the call, of which the other ranks must learn if this rank refuses it
    """
    check_inside(own, f"{operation}_object")
    with _telling(own, operation, name, requests):
        own.check_root(root)
        return operator.index(root)


@contextlib.contextmanager
def _telling(own: _core.Set, operation: str, name: str | None, requests: int) -> Iterator[None]:
    """Tell the other ranks if this rank refuses a call without a name here: they have begun its requests."""
    try:
        yield
    except Exception as error:
        if name is None:
            own.tell_refusal(operation, None, error, requests)
        raise


def _one_for_each(values: Any, size: int) -> list[Any]:
    """Return the objects of a root; `values` may be anything, such as a generator."""
    if not isinstance(values, Iterable):
        what = "None" if values is None else arrays.name_of(values)
    else:
        objects = list(values)
        if len(objects) == size:
            return objects
        what = f"{len(objects)} objects"
    raise errors.InvalidArgumentError(f"scatter_object of {what}: the root gives one for each of {size} ranks")


def _call(operation: str, name: str | None) -> str:
    """The beginning of an error."""
    return f"{operation} of {name or 'no name'}"


def _other(name: str | None) -> str | None:
    """The name of the second operation, for refusals."""
    return None if name is None else f"{name} (refused)"


def _wait(own: _core.Set, call: str, handle: _core.Handle, said: _core.Handle) -> np.ndarray:
    """Wait for the objects and for the refusals, which `said` collects. Ctrl-C ends the first wait without the second.

    :raises ObjectError: that of the first rank that could not pickle its object, on all ranks
    """
    received, failed = np.empty(0, np.uint8), None
    try:
        received = handle.wait()
    except errors.HpccollError as error:
        failed = error
    _unpack_rows(own, call, said, said.wait())
    if failed:
        raise failed
    return received


def _unpack_rows(own: _core.Set, call: str, handle: _core.Handle, received: np.ndarray) -> list[Any]:
    ends = np.cumsum(handle.rows())[:-1]
    parts = enumerate(np.split(received, ends))
    return [_unpack(own, call, part, rank) for rank, part in parts if len(part)]


def _pack(value: Any, dumps: Dumps) -> np.ndarray:
    """Return the pickle of `value` (1-d uint8), or the pickle of the reason why it cannot be pickled."""
    return _try_to_pack(value, dumps)[0]


def _try_to_pack(value: Any, dumps: Dumps) -> tuple[np.ndarray, bool]:
    """As _pack(), and whether it is the reason."""
    try:
        return np.frombuffer(dumps(value), np.uint8), False
    except Exception as error:  # noqa: BLE001 - the object's methods may raise any exception
        reason = _Refused(f"a {type(value).__qualname__} that pickle refuses: {_text_of(error)}")
        return np.frombuffer(pickle.dumps(reason), np.uint8), True


def _text_of(error: Exception) -> str:
    """The text of an exception, or its type: the object's methods, which raised it, may have made its text, too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return type(error).__qualname__


def _unpack(own: _core.Set, call: str, data: np.ndarray, rank: int) -> Any:
    """Return the object that `rank` pickled.

    :raises ObjectError: it could not be pickled, on all ranks with the same text, or it cannot be unpickled here
    """
    try:
        value = pickle.loads(data.data)
    except Exception as error:
        raise errors.ObjectError(
            f"{call}: rank {rank} has an object that rank {own.rank} cannot unpickle: {type(error).__name__}: "
            f"{_text_of(error)}"
        ) from error
    if isinstance(value, _Refused):
        raise errors.ObjectError(f"{call}: rank {rank} has {value}")
    return value
