# SPDX-License-Identifier: Apache-2.0
"""Unnamed calls that a front end refuses before they become requests: the other ranks get an error and do not wait.

Such calls match by their order, or by their place in a program. So a refused call counts, and this rank's next call
matches the next call of the others. The core reports the refusals of its own callers (ext/cython/refusals.pxi); this
module reports those of a front end, also where the core has refused, with the text that the program gets. A call with
a name can be repeated under its name, so its refusal is not reported.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from hpccoll import _core, errors
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.frontend.reductions import Adasum

__all__ = ["each", "in_order", "tells"]

P = ParamSpec("P")
T = TypeVar("T")
Naming = Callable[[str, ProcessSet], str | None]
_GROUPS_OF_REQUESTS = ("allgather", "reducescatter")
"""Operations whose groups are as many requests as tensors; a group of another one is one request, but for Adasum."""


def tells(function: Callable[P, T], name_unnamed: Naming | None = None) -> Callable[P, T]:
    """Make an operation report to the other ranks an error that only this rank has.

    :param function: called like the operation: "grouped_allreduce_async_"; with a `name` and a `process_set`
    :param name_unnamed: returns the name that a request without one has at this place in a program, or None where
        requests match by their order. Without it the front end's method of this name is used, if it has one
    """
    operation = function.__name__.rstrip("_").removesuffix("_async")
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        known = _core.failures()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if _core.failures() == known and (given := _given(signature, args, kwargs)) is not None:
                own = getattr(given.get("self"), "name_unnamed", _by_order)
                _tell(operation, given, name_unnamed or own, error)
            raise

    return call


def _given(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by name; None where the operation has no such arguments."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    return bound.arguments


def _by_order(operation: str, process_set: ProcessSet) -> None:
    del operation, process_set


def _tell(operation: str, arguments: dict[str, Any], name_unnamed: Naming, error: Exception) -> None:
    if arguments.get("name") not in (None, ""):  # as in names.request()
        return
    with contextlib.suppress(errors.HpccollError, ValueError):  # there is no World, or this rank is not in the set
        process_set = arguments.get("process_set", global_process_set)
        core = world_of(process_set).core
        single, whole, requests = _requests(operation, arguments)
        names = [name_unnamed(whole, process_set) for _ in range(requests)]
        if None in names:
            core.tell_refusal(single, None, error, requests)
        else:
            for name in names:
                core.tell_refusal(single, name, error)


def _requests(operation: str, arguments: dict[str, Any]) -> tuple[str, str, int]:
    """Return the operation of a call's requests, its name in request names, and their number."""
    single = operation.removeprefix("grouped_")
    if operation == "sparse_allreduce":
        return "allgather", "allgather", 2  # indices and values
    if operation == "broadcast_object":
        return "broadcast", "broadcast_object", 1
    tensors = arguments.get("tensors")
    number = len(tensors) if isinstance(tensors, Sequence) else 1
    if single != operation and single in _GROUPS_OF_REQUESTS:
        return single, single, number
    whole = f"grouped_{single}" if arguments.get("group") else operation
    return single, whole, number if arguments.get("op") is Adasum else 1


def each(
    begin: Callable[..., Any], members: Sequence[str | None], tensors: Sequence[Any], process_set: ProcessSet,
    *arguments: Any, **options: Any,
) -> list[Any]:  # fmt: skip
    """Begin one request per tensor of a group; if one is refused, the later ones are refused, too.

    :param begin: a method of Requests
    :param members: the names of the tensors
    :param arguments: of `begin`, after the name and the tensor and before the process set
    :returns: their handles
    """
    started: list[Any] = []
    core = world_of(process_set).core
    with in_order(core, members):
        try:
            for name, tensor in zip(members, tensors, strict=True):
                started.append(begin(name, tensor, *arguments, process_set, **options))
        except Exception as error:
            for _ in members[len(started) + 1 :] if None in members else ():
                core.tell_refusal(begin.__name__, None, error)
            with contextlib.suppress(errors.HpccollError):
                wait_for_all(started)
            raise
    return started


@contextlib.contextmanager
def in_order(core: _core.Set, members: Sequence[str | None]) -> Iterator[None]:
    """Number the requests of a group one after the other where they have no names, even if the first ends at once."""
    if None not in members:
        yield
        return
    _core.hold_order(core)
    try:
        yield
    finally:
        _core.release_order(core)
