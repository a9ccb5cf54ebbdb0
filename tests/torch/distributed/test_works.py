# SPDX-License-Identifier: Apache-2.0
"""Work objects and futures: what they say, when, and from which thread."""

import gc
import threading
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpccoll.torch.distributed.work import FORGETFUL

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("group")]


@pytest.fixture
def late() -> Iterator[Any]:
    """A work that the other ranks begin only after rank 0's test; None on them."""
    x, word = torch.ones(2), torch.zeros(1)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        yield work
        for other in range(1, dist.get_world_size()):
            dist.send(word, other)
        work.wait()
    else:
        yield None
        dist.recv(word, 0)
        dist.all_reduce(x)
    assert (x == dist.get_world_size()).all()


def test_a_work_tells_how_it_went() -> None:
    x = torch.full((3,), 2.0)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() is True
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0] is x


def test_a_future_gives_the_tensors_and_runs_callbacks() -> None:
    xs = [torch.full((3,), float(i)) for i in range(8)]
    futures = [dist.all_reduce(x, async_op=True).get_future() for x in xs]
    doubled = [future.then(lambda f: f.value()[0] * 2) for future in futures]
    for i, future in enumerate(doubled):
        assert (future.wait() == 2 * i * dist.get_world_size()).all()


def test_a_callback_may_wait_for_another_collective() -> None:
    def again(future: torch.futures.Future[Any]) -> torch.Tensor:
        (x,) = future.value()
        inner: torch.Tensor = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0]).wait()
        return inner

    x = torch.ones(2)
    dist.all_reduce(x, async_op=True).get_future().then(again).wait()
    assert (x == dist.get_world_size() ** 2).all()


def test_futures_need_few_threads() -> None:
    """Not one each: two are enough, a few more come where the system stops one in the middle."""
    xs = [torch.ones(3) for _ in range(60)]
    futures = [dist.all_reduce(x, async_op=True).get_future() for x in xs]
    torch.futures.wait_all(futures)
    assert sum(thread.name == "hpccoll futures" for thread in threading.enumerate()) < 30


def test_a_dropped_work_still_delivers() -> None:
    out = torch.zeros(dist.get_world_size(), 2)
    dist.all_gather(list(out), torch.full((2,), 1.0 + dist.get_rank()), async_op=True)
    dist.barrier()
    last = torch.ones(1)
    dist.all_reduce(last)
    limit = threading.Event()
    while not out.all() and not limit.wait(0.001):
        pass
    assert torch.equal(out[:, 0], torch.arange(1.0, dist.get_world_size() + 1))


@pytest.mark.timeout(60)
def test_wait_tensor_waits_for_a_work_in_flight() -> None:
    """Also if the program has dropped the work. torch registers the works of its own backends if it is asked to."""
    from torch.distributed import _functional_collectives as functional

    ask = getattr(functional, "allow_inflight_collective_as_graph_input_ctx", None)
    if ask is None:
        return  # before torch 2.6
    size = dist.get_world_size()
    x, rows = torch.ones(2), [torch.zeros(3) for _ in range(size)]
    dist.barrier()
    if dist.get_rank() == 0:
        threading.Event().wait(0.2)
    with ask():
        dist.all_reduce(x, async_op=True)
        dist.all_gather(rows, torch.ones(3), async_op=True)
    gc.collect()
    assert torch.equal(functional.wait_tensor(x), torch.full((2,), float(size)))
    assert all(torch.equal(functional.wait_tensor(row), torch.ones(3)) for row in rows)


@pytest.mark.mpi(min_size=2)
def test_a_wait_that_is_too_long_raises(late: Any) -> None:
    if late is not None:
        assert not late.is_completed()
        with pytest.raises(dist.DistBackendError, match=r"allreduce of process group \S+: timeout after 0.01 s"):
            late.wait(timedelta(milliseconds=10))
        assert not late.is_completed()


@pytest.mark.mpi(min_size=2)
def test_a_group_has_a_timeout() -> None:
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2), group)  # to meet, the ranks may have needed longer
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        with pytest.raises(RuntimeError, match=r"timeout after 2 s"):
            work.get_future().wait()
        with pytest.raises(dist.DistBackendError, match=r"timeout after 2 s"):
            work.wait()
        assert not work.is_success()
        assert "timeout" in str(work.exception())
    dist.barrier()
    group.abort()


@pytest.mark.mpi(min_size=2)
def test_a_future_brings_an_error() -> None:
    future = dist.all_reduce(torch.ones(1 + dist.get_rank()), async_op=True).get_future()
    with pytest.raises(RuntimeError, match="allreduce"):
        future.wait()


def test_a_result_that_torch_cannot_write_is_an_error_and_later_futures_end() -> None:
    """Elements of an expanded tensor share memory, so torch refuses to copy into it."""
    work = dist.all_reduce(torch.ones(1).expand(3), async_op=True)
    with pytest.raises(RuntimeError, match=r"allreduce of process group .*: unsupported operation"):
        work.get_future().wait()
    with pytest.raises(dist.DistBackendError, match="unsupported operation"):
        dist.all_reduce(torch.ones(1).expand(3))
    x = torch.ones(2)
    dist.all_reduce(x, async_op=True).get_future().wait()
    assert (x == dist.get_world_size()).all()


def average(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    x = bucket.buffer() / group.size()
    return dist.all_reduce(x, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("hook", [None, average])
def test_backward_brings_an_error(hook: Any) -> None:
    """The reducer takes the value of a future in C++."""
    group = dist.new_group()
    model = DistributedDataParallel(torch.nn.Linear(3, 2), process_group=group)
    if hook is not None:
        model.register_comm_hook(group, hook)
    if dist.get_rank() == 0:
        group.set_timeout(timedelta(milliseconds=20))
        with pytest.raises(RuntimeError, match=r"allreduce of process group \S+: timeout after 0.02 s"):
            model(torch.ones(4, 3)).sum().backward()
    dist.barrier()
    group.abort()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("asked", [False, True])
def test_the_error_of_a_dropped_work_is_told_once(asked: bool) -> None:
    """Also where nobody has waited: hpccoll's thread has settled the work for its future, say."""
    x = torch.ones(2 + (dist.get_rank() == 1))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        assert not asked or "shape differs" in str(work.exception())
        del work
        gc.collect()
        dist.barrier()
    texts = [str(one.message) for one in seen]
    expected = 0 if asked or FORGETFUL else 1
    assert len(texts) == expected, texts
    assert all("MismatchError: allreduce" in text for text in texts)
