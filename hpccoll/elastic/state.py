# SPDX-License-Identifier: Apache-2.0
"""The state of an elastic job: commit, restore, and transfer to new ranks.

A commit has a version: the generation that made it and its number. After a loss the remaining ranks take the newest
version of any of them (loop.py). If every step has an operation of all ranks, no rank is more than one commit ahead. A
state with values that differ between ranks (`sharded`) keeps two commits, and all ranks go back to the newest common
one. A commit needs only the memory of this process, and an interrupted sync does not change it. Each copy to which
restore() may go back is a commit with its own number, also if the program calls save() or sync() itself. So ranks with
the same version have the same state.
"""

import copy
import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import errors, inherited
from hpccoll.default_world import current, is_initialized, place
from hpccoll.elastic import versions
from hpccoll.elastic.commit_file import CommitFile
from hpccoll.elastic.interrupt import HostsUpdatedInterrupt
from hpccoll.elastic.sampler import ElasticSampler
from hpccoll.elastic.values import check_alike, checked_names, copied, form, has_form
from hpccoll.elastic.versions import NONE, Commit, Report, Version
from hpccoll.rendezvous import coordinator
from hpccoll.stopping import is_asked_to_stop

__all__ = ["ArrayState", "ObjectState", "State"]


class State:
    """The common state of all ranks. A subclass defines `save`, `restore` and `sync`."""

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
        :param every: rank 0 writes each `every`-th commit into the file; if that fails (a full disk), it prints a line
            on stderr, the job goes on, and the file keeps the older commit
        :raises InvalidArgumentError: `every` is no integer from 1
        """
        if not isinstance(every, (int, np.integer)) or every < 1:
            raise errors.InvalidArgumentError(
                f"every is {every!r}, and rank 0 writes each `every`-th commit: give an integer from 1"
            )
        self.source = 0
        """The rank that has the newest commit, from which sync() takes the state."""
        self.sharded: tuple[str, ...] = ()
        """Names of values that differ between ranks."""
        self._held = Report()
        self._synchronizing = False
        self._own_bcast, self._own_rank = bcast_object, get_rank
        self.path = Path(path) if path else None
        """The file for commits."""
        self._file = CommitFile(self.path) if self.path else None
        self._every = every
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()

    @property
    def version(self) -> Version:
        """The generation that made the last commit, and its number from 1. (0, 0): there is none."""
        return self._held.last.version

    # ---- methods for programs ---------------------------------------------------------------------------

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Register functions to call after the ranks have changed, before the state is synchronized.

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
        """Wait until no rank has samples left, and take the state of the rank that came last: it has made most steps.

        Call it on all ranks at the end of an epoch in which some ranks may make one step more than others. If the
        samples of an ElasticSampler of this state could not be divided evenly, its set_epoch() and the end of run()
        call it. What the ranks take counts as a commit.

        :raises UnsupportedError: the state has sharded values, which no other rank has
        """
        if self.sharded:
            raise errors.UnsupportedError(
                f"join: {', '.join(self.sharded)} differ between ranks, so all ranks must make the same steps: count "
                "them with ElasticSampler.steps() and make empty batches"
            )
        self.source = current().join()
        reports = self._reports()
        self._receive()
        self._save_numbered()
        generation, number = versions.newest(reports)
        self._held = Report(_commit((generation, number + 1)), since=self._held.since)

    # ---- for the loop ------------------------------------------------------------------------------------

    def save_commit(self) -> None:
        """Save the state as the next commit."""
        self._save_numbered()
        if self._file and self.version[1] % self._every == 0:
            rank = self._own_rank() if self._own_rank else int(place().rank)
            if rank == 0:
                self._file.write(self.version[1], self.committed())

    def synchronize(self) -> None:
        """Take the newest commit of any rank; it is sent unless all ranks have the same one.

        A sharded state takes the newest commit that is held by all ranks that took part in it.

        :raises MismatchError: the ranks have no such commit
        """
        reports = self._reports()
        if self.sharded:
            version = self._synchronize_shards(reports)
        else:
            version = versions.newest(reports)
            if version == NONE or any(report.last.version != version for report in reports):
                self.source = next(rank for rank, report in enumerate(reports) if report.last.version == version)
                self._receive()
                self._save_numbered()
            else:
                self.reset()
        generation, held = _generation(), self._held
        self._held = Report(_commit((generation, max(version[1], 1))), held.older, held.since or generation)

    def _reports(self) -> list[Report]:
        """Exchange what the ranks hold."""
        found = current().allgather(np.array([self._held.row()], np.int64), name="hpccoll.elastic.versions")
        return [Report.of([int(number) for number in row]) for row in found]

    def _synchronize_shards(self, reports: list[Report]) -> Version:
        """Go back to the common commit, and divide its shards among the current ranks."""
        version = versions.common(reports)
        if version is None:
            raise errors.MismatchError(versions.no_common(reports))
        if version == NONE:
            self.source = 0
            self._receive()
        else:
            found = [report.find(version) for report in reports]
            if self._held.find(version) == self._held.older:
                self.rollback()
                self.restore()
                self._held = Report(self._held.older, since=self._held.since)
            self.source, size = next((rank, commit.size) for rank, commit in enumerate(found) if commit)
            before = [commit.rank if commit else -1 for commit in found]
            if -1 in before:
                self._receive()
            if before != list(range(size)):
                self.reshard(before, size)
            self.reset()
        self._save_numbered()
        return version

    def _receive(self) -> None:
        """Take the state of the source, but do not change the commits: a loss may still interrupt synchronize()."""
        self._synchronizing = True
        try:
            self.sync()
        finally:
            self._synchronizing = False

    def _save_synced(self) -> None:
        """End a sync() that the program has called: restore() goes back to its result."""
        if not self._synchronizing:
            self._save_numbered()

    def _save_numbered(self) -> None:
        before = self._held
        self.save()
        if self._held is before:  # a subclass whose save() does not call this one, as for Horovod
            State.save(self)

    def begin(self) -> None:
        """Take the commit from the file, if there is one and nothing was committed yet.

        :raises InvalidArgumentError: the file would hold the shards of rank 0 only; or it cannot be read, or has the
            commit of another state
        """
        if self.path and self.sharded:
            raise errors.InvalidArgumentError(
                f"path={str(self.path)!r}: the file would hold rank 0's part of {', '.join(self.sharded)} alone; write "
                "them with hpccoll.io.save()"
            )
        found = self._file.read() if self._file and self.version == NONE else None
        if found:
            number, commit = found
            try:
                self.take(commit)
            except Exception as error:
                reason = str(error) if isinstance(error, errors.HpccollError) else f"{type(error).__name__}: {error}"
                raise errors.InvalidArgumentError(
                    f"the commit in {self.path} does not fit this state: {reason}; remove the file to begin anew"
                ) from error
            self._held = Report(Commit((0, number)))

    def end(self) -> None:
        """Wait for the ranks that may have one step more in the last epoch; called when the function has returned."""
        if not self.sharded:
            for sampler in self._samplers():
                sampler.end_epoch()

    def on_reset(self) -> None:
        """Note that the ranks have changed."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that the ranks are about to change, for programs that look at `_host_messages`."""
        self._host_messages.put((timestamp, update_res))

    # ---- for subclasses ------------------------------------------------------------------------------------

    def save(self) -> None:
        """Keep a copy of the state in host memory. A subclass makes the copy and calls this, which numbers it."""
        older = self._held.last if self.sharded else Commit()
        self._held = Report(_commit((_generation(), self.version[1] + 1)), older, self._held.since)

    def restore(self) -> None:
        """Go back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take the state of the rank `self.source`, without sharded values; all ranks call this together.

        restore() goes back to the result of sync(). A subclass need not save: run() saves after its call of sync().
        """
        raise NotImplementedError

    def rollback(self) -> None:
        """Forget the last copy: restore() goes back to the one before. A state with sharded values needs it."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no rollback(): sharded values need it")

    def reshard(self, before: list[int], size: int) -> None:
        """Divide sharded values among the current ranks; all ranks call this together, after a change.

        All ranks have the values of the same commit. The shard of a lost rank is gone: a program that cannot compute it
        again must keep a copy, as a sharded value of another rank.

        :param before: for each current rank, its rank when that commit was made; -1: it is new
        :param size: the number of ranks at that time
        :raises UnsupportedError: this class does not define it
        """
        raise errors.UnsupportedError(
            f"{type(self).__name__} defines no reshard(): there were {size} ranks, and the present {len(before)} had "
            f"the numbers {before} (-1: new); {', '.join(self.sharded)} must be dealt to them"
        )

    def reset(self) -> None:
        """Adapt to the new ranks; called after a change if sync() is not needed."""

    def committed(self) -> Any:
        """Give the last copy, for a file."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no committed() and take(): path= needs them")

    def take(self, commit: Any) -> None:  # noqa: ARG002 - for subclasses
        """Continue from the result of committed() in another run."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no committed() and take(): path= needs them")

    # ---- helpers -----------------------------------------------------------------------------------------

    def _samplers(self) -> list[ElasticSampler]:
        """The samplers that are values of this state."""
        return []

    def _end_epoch(self, sampler: ElasticSampler) -> None:
        """Join; a program with sharded values that counts its steps has made as many on every rank."""
        if not (self.sharded and sampler.counted):
            self.join()

    def _is_changing(self) -> bool:
        elastic = coordinator.of_process(inherited.environment())
        return elastic is not None and is_asked_to_stop(current())

    def _bcast_object(self, obj: Any) -> Any:
        """Give the source's object to all ranks."""
        if self._own_bcast:
            return self._own_bcast(obj, root_rank=self.source)
        return current().broadcast_object(obj, self.source, name="hpccoll.elastic.objects")


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
        sharded: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """Make an attribute of each object; see State for the other parameters.

        :param sharded: names of objects that differ between ranks; two commits of the state are kept then
        :raises InvalidArgumentError: no object has such a name
        """
        super().__init__(bcast_object, get_rank, path=path, every=every)
        self._names = list(objects)
        self.sharded = checked_names(ObjectState, sharded, objects)
        for name, value in objects.items():
            setattr(self, name, value)
        self._saved_state = self._copied_objects()
        self._older_state: dict[str, Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ElasticSampler):
            value.at_end = self._end_epoch
        super().__setattr__(name, value)

    def save(self) -> None:
        """See State: deep copies."""
        if self.sharded:
            self._older_state = self._saved_state
        self._saved_state = self._copied_objects()
        super().save()

    def restore(self) -> None:
        self._give(self._saved_state)

    def rollback(self) -> None:
        self._saved_state = self._older_state

    def sync(self) -> None:
        """See State; one broadcast sends all objects."""
        equal = [name for name in self._names if name not in self.sharded]
        self._give(self._bcast_object({name: form(getattr(self, name)) for name in equal}))
        self._save_synced()

    def reset(self) -> None:
        """See State: samplers divide their samples among the new ranks."""
        for sampler in self._samplers():
            sampler.reset()

    def _samplers(self) -> list[ElasticSampler]:
        return [value for name in self._names if isinstance(value := getattr(self, name), ElasticSampler)]

    def _copied_objects(self) -> dict[str, Any]:
        return {name: copied(name, getattr(self, name)) for name in self._names}

    def _give(self, forms: dict[str, Any]) -> None:
        for name, kept in forms.items():
            value, fresh = getattr(self, name, None), copy.deepcopy(kept)
            if value is not None and has_form(value):
                value.load_state_dict(fresh)
            else:
                setattr(self, name, fresh)

    def committed(self) -> Any:
        return self._saved_state

    def take(self, commit: Any) -> None:
        check_alike(commit, self._names)
        self._saved_state = commit
        ObjectState.restore(self)


class ArrayState(ObjectState):
    """Arrays, which keep their memory, and objects: `ArrayState(weights=np.zeros(10), step=0)`.

    A NumPy array among the arguments is an array of the state: it is copied and broadcast in place, so other references
    to it see the change. Its shape and dtype must not change. If the program assigns another array of that shape to the
    attribute, the next commit copies it into the old array. A sharded array may be replaced by one of another shape,
    which then is the array of the state.
    """

    def __init__(self, *, path: str | Path = "", every: int = 1, sharded: Iterable[str] = (), **values: Any) -> None:
        """Make an attribute of each value; see State and ObjectState for the other parameters."""
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        names = checked_names(ObjectState, sharded, values)
        objects = {name: value for name, value in values.items() if name not in arrays}
        super().__init__(path=path, every=every, sharded=[name for name in names if name in objects], **objects)
        self.sharded = names
        self._arrays: dict[str, np.ndarray[Any, Any]] = arrays
        self._copies = {name: array.copy() for name, array in arrays.items()}
        self._older_copies: dict[str, np.ndarray[Any, Any]] = {}
        for name, array in arrays.items():
            setattr(self, name, array)

    def save(self) -> None:
        super().save()
        if self.sharded:
            self._copies, self._older_copies = self._older_copies, self._copies
        for name, array in self._arrays.items():
            now = getattr(self, name)
            if now is not array:
                self._put(name, now)
            if name in self._copies and self._copies[name].shape == now.shape:
                np.copyto(self._copies[name], now)
            else:
                self._copies[name] = now.copy()

    def restore(self) -> None:
        super().restore()
        for name, kept in self._copies.items():
            self._put(name, kept)

    def rollback(self) -> None:
        super().rollback()
        self._copies, self._older_copies = self._older_copies, self._copies

    def sync(self) -> None:
        """See State: a broadcast per array, in place."""
        handles = [
            current().broadcast_async(array, self.source, name=f"hpccoll.elastic.{name}", out=array)
            for name, array in self._arrays.items()
            if name not in self.sharded
        ]
        for handle in handles:
            handle.wait()
        super().sync()

    def committed(self) -> Any:
        return super().committed(), self._copies

    def take(self, commit: Any) -> None:
        objects, arrays = commit
        for name, array in arrays.items():
            here = self._arrays.get(name)
            if here is None or (here.shape, here.dtype) != (array.shape, array.dtype):
                have = "no such array" if here is None else f"{here.dtype}{list(here.shape)}"
                raise errors.InvalidArgumentError(
                    f"{name!r} is {array.dtype}{list(array.shape)} there, and {have} here"
                )
        check_alike(arrays, self._arrays)
        super().take(objects)
        for name, array in arrays.items():
            self._put(name, array)
        ArrayState.save(self)

    def _put(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Set the value of an array, in place unless the shape differs."""
        if name in self.sharded and value.shape != self._arrays[name].shape:
            self._arrays[name] = value.copy()
        else:
            np.copyto(self._arrays[name], value)
        setattr(self, name, self._arrays[name])


def _commit(version: Version) -> Commit:
    return Commit(version, *((current().rank, current().size) if is_initialized() else (-1, 0)))


def _generation() -> int:
    elastic = coordinator.of_process(inherited.environment())
    return elastic.generation if elastic else 0
