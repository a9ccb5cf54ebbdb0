# SPDX-License-Identifier: Apache-2.0
"""What an elastic job commits, restores, and gives to new ranks.

A commit has a version: the generation that made it and its number. The ranks that go on take the newest version that
any of them has (loop.py): in a step that holds an operation of all ranks, no rank is further than one commit ahead.
A commit is made of what this process holds alone, and a sync that a loss cuts short leaves it as it was.
"""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import collectives, config, errors
from hpccoll.elastic import durable
from hpccoll.elastic.interrupt import HostsUpdatedInterrupt
from hpccoll.elastic.sampler import ElasticSampler
from hpccoll.rendezvous import coordinator
from hpccoll.world import current

__all__ = ["ArrayState", "ObjectState", "State", "Version"]

Version = tuple[int, int]
"""The generation that made a commit, and its number from 1. (0, 0): there is none."""


class State:
    """What all ranks have in common. A class of your own defines `save`, `restore` and `sync`."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        *,
        path: str | Path = "",
        every: int = 1,
    ) -> None:
        """Begin without a commit.

        :param bcast_object: gives an object of one rank to all, as `hvd.broadcast_object`; default: that of hpccoll
        :param get_rank: this process's rank, as `hvd.rank`; default: that of the default World
        :param path: a file for commits; if it is there, the state begins with the commit in it. It is read by pickle
        :param every: rank 0 writes every so many commits into the file
        """
        self.source = 0
        """The rank that has the newest commit, from which sync() takes the state."""
        self.version: Version = (0, 0)
        self._own_bcast, self._own_rank = bcast_object, get_rank
        self.path = Path(path) if path else None
        """The file for commits."""
        self._every = every
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp = 0.0

    # ---- what a program calls --------------------------------------------------------------------------

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Have functions called after the ranks have changed, before the state is synchronized.

        :param callbacks: without arguments, in this order
        """
        self._reset_callbacks.extend(callbacks)

    def commit(self) -> None:
        """Save the state, and leave the loop if the ranks are about to change; call it between two steps.

        :raises HostsUpdatedInterrupt: the ranks are about to change; on all ranks after the same step
        """
        self.save_commit()
        if self._is_changing():
            raise HostsUpdatedInterrupt

    def check_host_updates(self) -> None:
        """Leave the loop if the ranks are about to change. It sends no message and does not wait.

        Call it after an operation for which every rank has waited. If the loop is left, the state is saved first, so
        that no step is lost.

        :raises HostsUpdatedInterrupt: the ranks are about to change; on all ranks after the same step
        """
        if self._is_changing():
            self.save_commit()
            raise HostsUpdatedInterrupt

    def join(self) -> None:
        """Wait until all ranks have no more samples, and take the state of those that have made most steps.

        Call it on all ranks at the end of an epoch in which some ranks may make one step more than others. An
        ElasticSampler of this state does so in set_epoch(), if its samples could not be dealt evenly.
        """
        collectives.join()
        self.synchronize()

    # ---- for the loop ------------------------------------------------------------------------------------

    def save_commit(self) -> None:
        """Save the state as the next commit."""
        self.save()
        self.version = (_generation(), self.version[1] + 1)
        if self.path and self.version[1] % self._every == 0 and self._rank() == 0:
            durable.write(self.path, self.version[1], self.committed())

    def synchronize(self) -> None:
        """Take the newest commit that any rank has; it is sent unless all ranks have the same one."""
        own = np.array([self.version], np.int64)
        found = collectives.allgather(own, name="hpccoll.elastic.versions")
        versions: list[Version] = [(int(generation), int(number)) for generation, number in found]
        newest = max(versions)
        if newest == (0, 0) or any(version != newest for version in versions):
            self.source = versions.index(newest)
            self.sync()
            self.save()
        else:
            self.reset()
        self.version = (_generation(), max(newest[1], 1))

    def begin(self) -> None:
        """Take the commit from the file, if there is one and nothing was committed yet."""
        found = durable.read(self.path) if self.path and self.version == (0, 0) else None
        if found:
            number, commit = found
            self.take(commit)
            self.version = (0, number)

    def on_reset(self) -> None:
        """Tell the state that the ranks have changed."""
        self._last_updated_timestamp = 0.0
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that the ranks are about to change, for programs that look at `_host_messages`."""
        self._host_messages.put((timestamp, update_res))

    # ---- what a class of its own defines -------------------------------------------------------------------

    def save(self) -> None:
        """Keep a copy of the state in host memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take the state of the rank `self.source`; all ranks call this together."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to the new ranks: called after a change, and where sync() is not needed."""

    def committed(self) -> Any:
        """Give the last copy, for a file."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no committed() and take(): path= needs them")

    def take(self, commit: Any) -> None:  # noqa: ARG002 - for those who override it
        """Go on from what committed() gave in another run."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no committed() and take(): path= needs them")

    # ---- small things ------------------------------------------------------------------------------------

    def _is_changing(self) -> bool:
        elastic = coordinator.of_process(config.environment())
        return elastic is not None and current().core.preempted()

    def _rank(self) -> int:
        return self._own_rank() if self._own_rank else int(current().rank)

    def _bcast_object(self, obj: Any) -> Any:
        """Give the source's object to all ranks."""
        if self._own_bcast:
            return self._own_bcast(obj, root_rank=self.source)
        return collectives.broadcast_object(obj, self.source, name="hpccoll.elastic.objects")


class ObjectState(State):
    """Objects that pickle takes, as attributes: `ObjectState(epoch=0, batch=0)`.

    An object with the methods state_dict() and load_state_dict(), as an ElasticSampler, stays the same object.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        *,
        path: str | Path = "",
        every: int = 1,
        **objects: Any,
    ) -> None:
        """Make an attribute of each object; see State for the other parameters."""
        super().__init__(bcast_object, get_rank, path=path, every=every)
        self._names = list(objects)
        for name, value in objects.items():
            setattr(self, name, value)
            if isinstance(value, ElasticSampler):
                value.at_end = self.join
        self._saved_state: dict[str, Any] = {}
        ObjectState.save(self)

    def save(self) -> None:
        """See State: deep copies."""
        self._saved_state = {name: copy.deepcopy(_form(getattr(self, name))) for name in self._names}

    def restore(self) -> None:
        """See State."""
        self._give(self._saved_state)

    def sync(self) -> None:
        """See State: one object that holds all of them."""
        self._give(self._bcast_object({name: _form(getattr(self, name)) for name in self._names}))

    def reset(self) -> None:
        """See State: samplers deal to the new ranks."""
        for name in self._names:
            if isinstance(value := getattr(self, name), ElasticSampler):
                value.reset()

    def _give(self, forms: dict[str, Any]) -> None:
        for name, form in forms.items():
            value, form = getattr(self, name, None), copy.deepcopy(form)
            if value is not None and _has_form(value):
                value.load_state_dict(form)
            else:
                setattr(self, name, form)

    def committed(self) -> Any:
        """See State."""
        return self._saved_state

    def take(self, commit: Any) -> None:
        """See State."""
        self._saved_state = commit
        ObjectState.restore(self)


class ArrayState(ObjectState):
    """Arrays, which keep their place in memory, and objects: `ArrayState(weights=np.zeros(10), step=0)`.

    An argument that is a NumPy array is an array of the state: it is copied and broadcast as such, in place, so that
    other names of it see the change. Its shape and dtype stay as they are; an attribute that is replaced by another
    array of that shape is copied into the old one at the next commit.
    """

    def __init__(self, *, path: str | Path = "", every: int = 1, **values: Any) -> None:
        """Make an attribute of each value; see State for the other parameters."""
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        super().__init__(path=path, every=every, **{n: v for n, v in values.items() if n not in arrays})
        self._arrays: dict[str, np.ndarray[Any, Any]] = arrays
        self._copies = {name: array.copy() for name, array in arrays.items()}
        for name, array in arrays.items():
            setattr(self, name, array)

    def save(self) -> None:
        """See State."""
        super().save()
        for name, array in self._arrays.items():
            now = getattr(self, name)
            if now is not array:
                np.copyto(array, now)
                setattr(self, name, array)
            np.copyto(self._copies[name], array)

    def restore(self) -> None:
        """See State."""
        super().restore()
        self._put(self._copies)

    def sync(self) -> None:
        """See State: a broadcast per array, in place."""
        super().sync()
        handles = [
            collectives.broadcast_async(array, self.source, name=f"hpccoll.elastic.{name}", out=array)
            for name, array in self._arrays.items()
        ]
        for handle in handles:
            handle.wait()

    def committed(self) -> Any:
        """See State."""
        return super().committed(), self._copies

    def take(self, commit: Any) -> None:
        """See State."""
        objects, arrays = commit
        super().take(objects)
        self._put(arrays)
        ArrayState.save(self)

    def _put(self, values: dict[str, np.ndarray[Any, Any]]) -> None:
        for name, array in self._arrays.items():
            np.copyto(array, values[name])
            setattr(self, name, array)


def _has_form(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _form(value: Any) -> Any:
    return value.state_dict() if _has_form(value) else value


def _generation() -> int:
    elastic = coordinator.of_process(config.environment())
    return elastic.generation if elastic else 0
