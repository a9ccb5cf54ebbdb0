# SPDX-License-Identifier: Apache-2.0
"""Operations outside of compiled programs: they run at once, on arrays whose values are known."""

import dataclasses
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpccoll import _core, compression, errors, programs
from hpccoll.collectives import Handle
from hpccoll.default_world import current, is_initialized, when_made
from hpccoll.jax import names, threads
from hpccoll.jax.call import MESSAGES, Call
from hpccoll.jax.internals import enable_x64, wait_for_programs
from hpccoll.reductions import Reduction
from hpccoll.worlds import World

__all__ = ["Begun", "begin", "open_gate", "refuse_other_thread", "run", "run_traced"]

_sets: weakref.WeakValueDictionary[int, World] = weakref.WeakValueDictionary()
programs.waits.append(wait_for_programs)


class _Traced:
    """The rank and the size of the last default World, which programs contain."""

    place: tuple[int, int] | None = None


def _forget_programs(world: World) -> None:
    """Make JAX trace all programs again if rank or size have changed: the factor of a mean, shapes and roots follow."""
    place = world.rank, world.size
    if _Traced.place not in (None, place):
        jax.clear_caches()
    _Traced.place = place


when_made.append(_forget_programs)
if is_initialized():
    _forget_programs(current())


def open_gate(world: World) -> int:
    """Register the process set of a World for compiled programs; return its number."""
    number = world.core.open_gate(world is current())
    if number:
        _sets[number] = world
    return number


def _world_of(call: Call) -> World:
    world = current() if call.set == 0 else _sets.get(call.set)
    if world is None:
        raise errors.ShutDownError("the process set of this call has ended")
    return world


def _host(x: Any) -> np.ndarray:
    """Return the values in host memory; an array that is already there is not copied."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        raise errors.UnsupportedError("an array that lies on several processes: hpccoll.jax takes those of this one")
    if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1:
        raise errors.UnsupportedError(
            f"an array on {len(x.sharding.device_set)} devices: one process drives one device with hpccoll.jax; use "
            "jax.device_put(x, jax.devices()[0])"
        )
    return np.asarray(x)


def _given_back(values: np.ndarray) -> jax.Array:
    """Return values as an array of JAX of their dtype.

    A program may have arrays of 64 bits that it made while jax_enable_x64 was on. Where it is off, jax.numpy would cut
    them to 32 bits without a word.
    """
    if jax.dtypes.canonicalize_dtype(values.dtype) == values.dtype:
        return jnp.asarray(values)
    with enable_x64(True):
        return jnp.asarray(values)


@dataclasses.dataclass
class Begun:
    """An operation in flight."""

    call: Call
    handles: list[Handle]
    received: np.ndarray | None = None

    def wait(self) -> list[jax.Array]:
        """Wait for the operation; return its results on this rank."""
        results = [handle.wait() for handle in self.handles]
        if self.received is not None:
            return [_given_back(self.received)]
        result = results[0][0] if self.call.operation == "alltoall" else results[0]
        if result is None:
            return []
        return [_given_back(array) for array in (result if self.call.group else [result])]

    @property
    def ticket(self) -> jax.Array:
        """The ticket of the call, in the format of ext/xla/xla.c. Read it after wait()."""
        numbers = [handle.number for handle in reversed(self.handles)]
        if len(numbers) == 1:
            numbers = [numbers[0] % (1 << 32), numbers[0] >> 32]
        return jnp.asarray(np.array(numbers, np.uint32))


def begin(
    call: Call, arrays: Sequence[Any], name: str | None, *, waits: bool = False, of: tuple[int, int] = (0, 0)
) -> Begun:
    """Begin an operation after the operations of all programs that this thread has started.

    :param name: the name of the call; None: calls match by their order
    :param waits: the caller will wait at once
    :param of: for the derivative of a sendrecv, the ticket of the differentiated call
    """
    wait_for_programs()
    core, given = _world_of(call).core, [_host(x) for x in arrays]
    if call.operation == "barrier":
        return Begun(call, [core.collective("barrier", None, name, None, waits)])
    if call.operation in MESSAGES:
        return _begin_messages(core, call, given, of)
    x: Any = given if call.group else given[0]
    wire = {known.dtype_code: known for known in (compression.FP16, compression.BF16)}.get(call.wire)
    op, splits = Reduction(call.reduction), None if call.splits is None else list(call.splits)
    handle = core.collective(
        call.operation, x, name, None, waits, op, call.root, splits, call.prescale, call.postscale, wire
    )
    return Begun(call, [handle])


def _begin_messages(core: _core.Set, call: Call, given: Sequence[np.ndarray], of: tuple[int, int]) -> Begun:
    begun = Begun(call, [])
    send_follows, receive_follows = _follows(call, *of)
    if call.received is not None:
        source, tag = (call.root, call.tag) if call.operation == "recv" else (call.source, call.source_tag)
        begun.received = np.empty(*call.received)
        begun.handles.append(core.recv(begun.received, source, tag, follows=receive_follows))
    if given:
        begun.handles.append(core.send(given[0], call.root, call.tag, follows=send_follows))
    return begun


def _follows(call: Call, sent: int, received: int) -> tuple[int, int]:
    """Return the numbers by which the messages of a derivative match. ext/xla/xla.c computes the same numbers.

    :param sent: the number of the message that the differentiated sendrecv has sent; 0: there is none
    :param received: the number of the message that it has received; 0: there is none
    :returns: the number for the message that the derivative sends, and for the one that it receives
    """
    if call.back:
        return 2 * received, 2 * sent
    return 2 * sent + 1 if sent else 0, 2 * received + 1 if received else 0


def _refused(call: Call, name: str, other: threading.Thread) -> errors.InvalidArgumentError:
    """Make the error of a derivative that two threads apply, in an order that ranks cannot match; tell the others."""
    here = threading.current_thread().name
    error = errors.InvalidArgumentError(
        f"{call.operation} {name!r}: thread {other.name!r} has applied this derivative before, and thread {here!r} "
        "applies it again: which application comes first is known in one thread only. Apply it there, or call jax.vjp "
        "in each thread"
    )
    if call.operation not in MESSAGES:
        _world_of(call).core.tell_refusal(call.operation, name, error)
    return error


def run(call: Call, arrays: Sequence[Any], name: str | None) -> list[jax.Array]:
    """Run an operation; return its results on this rank."""
    return begin(call, arrays, name, waits=True).wait()


def _entry(ticket: Any) -> tuple[int, int]:
    low, high = np.asarray(ticket).reshape(-1, 2)[0]  # vmap repeats the ticket
    return int(low), int(high)


def refuse_other_thread(call: Call, ticket: Any) -> None:
    """Note that this thread applies a derivative of the call with this ticket.

    :raises InvalidArgumentError: another thread, which still runs, applied it before; all ranks get the error
    """
    other = threads.other_at_ticket(ticket, call.name)
    if other is not None:
        low, high = _entry(ticket)
        raise _refused(call, names.of_entry(call.name, low | high << 32), other)


def _refuse_other_place(call: Call, name: str) -> None:
    """Refuse a derivative of a call that was made while the World had other ranks, as ext/gate does in programs.

    :raises InvalidArgumentError: this process was another rank, or there were more or fewer; all ranks get the error
    """
    world = _world_of(call)
    if (call.rank, call.size) == (world.rank, world.size):
        return
    error = errors.InvalidArgumentError(
        f"{call.operation} {name!r}: its derivative was made on rank {call.rank} of {call.size}, and this process "
        f"is rank {world.rank} of {world.size} now: call jax.vjp anew"
    )
    if call.operation not in MESSAGES:
        world.core.tell_refusal(call.operation, name, error)
    raise error


def run_traced(call: Call, arrays: Sequence[Any]) -> list[jax.Array]:
    """Run an operation that JAX evaluates outside of a program; return its results, and its ticket if it is needed.

    :param arrays: also numbers and arrays of NumPy, as jax.vjp gets them, which JAX would convert
    """
    arrays = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in arrays]
    low, high = 0, 0
    if call.follows:
        *arrays, ticket = arrays
        refuse_other_thread(call, ticket)
        low, high = _entry(ticket)
    name = names.of_entry(call.name, low | high << 32)
    if call.follows:
        _refuse_other_place(call, name)
    begun = begin(call, arrays, name, waits=True, of=(low, high))
    results = begun.wait()
    return [*results, begun.ticket] if call.tells else results
