# SPDX-License-Identifier: Apache-2.0
"""Data loaders: the batches of a loop, and the thread that reads them ahead."""

import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from hpccoll.data import AsyncDataLoaderMixin, BaseDataLoader, data_loader_base


class Loader(BaseDataLoader):
    """Gives its batches in each epoch; an exception among them is raised if its class is Broken."""

    def __init__(self, batches: Iterable[Any], name: str = "") -> None:
        self.batches, self.name = list(batches), name
        self.epochs = self.read = self.ended = 0

    def __len__(self) -> int:
        return len(self.batches)

    def _iterate(self) -> Iterator[Any]:
        self.epochs += 1
        try:
            for batch in self.batches:
                if isinstance(batch, Broken):
                    raise batch
                self.read += 1
                yield batch
        finally:
            self.ended += 1


class Broken(BaseException):
    pass


class Ahead(AsyncDataLoaderMixin, Loader):
    pass


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("batches of")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []
    assert not data_loader_base._OPEN


def eventually(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("size", [0, 1, 2, 64])
@pytest.mark.parametrize("number", [0, 1, 500])
def test_a_loop_has_the_batches_of_one_epoch_in_their_order(size: int, number: int) -> None:
    loader = Ahead(size, False, range(number), name="mine")
    assert (len(loader), loader.name, loader.async_loader_queue_size) == (number, "mine", size)
    for epoch in (1, 2, 3):
        assert list(loader) == list(range(number))
        assert (loader.epochs, loader.ended) == (epoch, epoch)


def test_every_object_may_be_a_batch() -> None:
    batches = [None, ValueError("a batch"), (), StopIteration(), 0]
    assert list(Ahead(batches=batches, async_loader_queue_size=2)) == batches


@pytest.mark.parametrize("size", [0, 3])
def test_the_loop_processes_batches_in_its_own_thread(size: int) -> None:
    class Doubled(Ahead):
        def _process_batch(self, batch: int) -> tuple[int, threading.Thread]:
            return 2 * batch, threading.current_thread()

    assert list(Doubled(size, batches=range(3))) == [(2 * one, threading.current_thread()) for one in range(3)]


@pytest.mark.parametrize("size", [1, 3])
def test_a_thread_reads_as_many_batches_ahead_as_the_queue_holds(size: int) -> None:
    loader = Ahead(size, batches=range(100))
    loop = iter(loader)
    assert loader.epochs == 0  # nothing is read before the loop begins
    for taken in range(1, 5):
        next(loop)
        most = taken + size + 1  # one more waits for its place
        eventually(lambda: loader.read == most)  # noqa: B023 - called at once
        time.sleep(0.01)
        assert loader.read == most
    loader.close_async_loader()


@pytest.mark.parametrize("size", [0, 1, 64])
def test_an_exception_reaches_the_loop_after_the_batches_before_it(size: int) -> None:
    loader = Ahead(size, batches=[0, 1, Broken("no disk")])
    for _ in range(2):
        got = []
        with pytest.raises(Broken, match="no disk") as raised:
            got.extend(loader)
        assert got == [0, 1]
        assert raised.traceback[-1].name == "_iterate"
    loader.batches.pop()
    assert list(loader) == [0, 1]


@pytest.mark.parametrize("size", [0, 1, 64])
def test_a_loop_that_is_left_ends_its_thread_and_the_next_one_begins_again(size: int) -> None:
    loader = Ahead(size, batches=range(200))
    for epoch in (1, 2, 3):
        for batch in loader:
            if batch == 3:
                break
        assert (loader.epochs, loader.ended, threads()) == (epoch, epoch, [])
    with pytest.raises(ZeroDivisionError):
        for batch in loader:
            _ = 1 / (2 - batch)
    gc.collect()
    assert list(loader) == list(range(200))


def test_a_failure_in_what_nobody_takes_is_not_told() -> None:
    loader = Ahead(8, batches=[0, 1, Broken()])
    loop = iter(loader)
    assert next(loop) == 0
    eventually(lambda: loader.ended)
    loader.close_async_loader()
    assert list(loop) == []


def test_closing_ends_the_loops_of_this_loader_alone() -> None:
    loader, other = Ahead(2, batches=range(100)), Ahead(2, batches=range(10))
    loader.close_async_loader()
    loops = [iter(loader), iter(loader)]
    assert [next(loop) for loop in loops] == [0, 0]
    kept = iter(other)
    assert next(kept) == 0
    loader.close_async_loader()
    assert loader.ended == 2
    assert [list(loop) for loop in loops] == [[], []]
    assert list(kept) == list(range(1, 10))
    loader.close_async_loader()
    assert list(loader) == list(range(100))


def test_closing_ends_a_loop_that_waits_in_another_thread() -> None:
    going_on, got = threading.Event(), []

    class Slow(AsyncDataLoaderMixin, BaseDataLoader):
        def _iterate(self) -> Iterator[int]:
            yield 1
            going_on.wait(20)
            yield 2

    loader = Slow(1)

    def consume() -> None:
        for batch in loader:
            got.append(batch)  # noqa: PERF402 - extend() asks for the length

    consumer = threading.Thread(target=consume)
    consumer.start()
    eventually(lambda: got)
    closer = threading.Thread(target=loader.close_async_loader)
    closer.start()
    time.sleep(0.01)
    going_on.set()
    closer.join(20)
    consumer.join(20)
    assert not closer.is_alive() and not consumer.is_alive()
    assert got == [1]


def test_a_loader_travels_by_pickle_also_in_the_middle_of_a_loop() -> None:
    loader = Ahead(4, batches=range(3))
    loop = iter(loader)
    next(loop)
    assert list(pickle.loads(pickle.dumps(loader))) == [0, 1, 2]
    assert list(loop) == [1, 2]


@pytest.mark.parametrize(("size", "error"), [(-1, ValueError), ("64", TypeError), (0.5, TypeError), (None, TypeError)])
def test_a_wrong_size_is_named(size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^async_loader_queue_size={size!r}"):
        Ahead(size, batches=[])


def test_a_class_without_its_methods_names_them() -> None:
    class Empty(BaseDataLoader):
        pass

    class EmptyAhead(AsyncDataLoaderMixin, Empty):
        pass

    for loader in (Empty(), EmptyAhead()):
        with pytest.raises(NotImplementedError, match=r"^Empty.* does not define __len__"):
            len(loader)
        with pytest.raises(NotImplementedError, match=r"^Empty.* does not define _iterate"):
            next(iter(loader))


def test_debug_tells_when_a_thread_begins_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(Ahead(2, True, range(3))) == [0, 1, 2]
    assert capsys.readouterr().out.splitlines() == [
        "Ahead: the thread that reads batches begins", "Ahead: the thread that reads batches ends after 3 batches"
    ]  # fmt: skip


AT_EXIT = """
import os, sys, time, warnings
from hpccoll.data import AsyncDataLoaderMixin, BaseDataLoader

class Loader(AsyncDataLoaderMixin, BaseDataLoader):
    def __init__(self, sleeps):
        super().__init__(async_loader_queue_size=1)
        self.sleeps = sleeps
    def _iterate(self):
        yield from (0, 1, 2)
        time.sleep(self.sleeps)
        try:
            while True:
                yield 3
        finally:
            print("closed", flush=True)

waits, reads = iter(Loader(0)), iter(Loader(3600))
assert [next(waits) for _ in range(5)] == [0, 1, 2, 3, 3]
assert [next(reads) for _ in range(3)] == [0, 1, 2]
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
child = os.fork()
if not child:
    try:
        next(waits)
    except RuntimeError as error:
        print(error, flush=True)
    sys.exit()  # ends the child as the parent ends
assert os.waitpid(child, 0)[1] == 0
print("parent", child, flush=True)
"""


def test_the_end_of_a_process_waits_for_no_batch() -> None:
    """One thread waits for a place in its queue, one is inside of `_iterate()`, which is in the parent alone."""
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    told, parent, closed = done.stdout.splitlines()
    assert told.startswith("process ")
    assert told.endswith(" reads the batches of this loop over Loader: begin a new loop")
    assert parent.startswith("parent ")
    assert closed == "closed"
