# SPDX-License-Identifier: Apache-2.0
"""A second request under a name that is in flight is refused by the call itself; the first one goes on."""

from collections.abc import Callable, Iterator

import pytest
import torch
from mpi4py import MPI

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(60)]

ASYNCHRONOUS: dict[str, Callable[[torch.Tensor], int]] = {
    "allreduce_async": lambda x: hvd.allreduce_async(x, name="twice"),
    "allreduce_async_": lambda x: hvd.allreduce_async_(x, name="twice"),
    "grouped_allreduce_async": lambda x: hvd.grouped_allreduce_async([x, x.clone()], name="twice"),
    "grouped_allreduce_async_": lambda x: hvd.grouped_allreduce_async_([x, x.clone()], name="twice"),
    "allgather_async": lambda x: hvd.allgather_async(x, name="twice"),
    "grouped_allgather_async": lambda x: hvd.grouped_allgather_async([x, x], name="twice"),
    "broadcast_async": lambda x: hvd.broadcast_async(x, 0, name="twice"),
    "broadcast_async_": lambda x: hvd.broadcast_async_(x, 0, name="twice"),
    "alltoall_async": lambda x: hvd.alltoall_async(x, name="twice"),
    "reducescatter_async": lambda x: hvd.reducescatter_async(x, name="twice"),
    "grouped_reducescatter_async": lambda x: hvd.grouped_reducescatter_async([x, x], name="twice"),
    "reduce_async": lambda x: hvd.reduce_async(x, root_rank=0, name="twice"),
    "gather_async": lambda x: hvd.gather_async(x, 0, name="twice"),
    "scatter_async": lambda x: hvd.scatter_async(x, 0, name="twice"),
}


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def rows() -> torch.Tensor:
    return torch.arange(hvd.size() * 2.0).view(hvd.size(), 2) + hvd.rank()


@pytest.mark.parametrize("operation", ASYNCHRONOUS)
def test_the_call_refuses_and_the_first_goes_on(operation: str) -> None:
    begin = ASYNCHRONOUS[operation]
    wanted = hvd.synchronize(begin(rows()))
    for early in range(hvd.size()):  # its request stays in flight, as the others have none yet
        first = begin(rows()) if hvd.rank() == early else None
        if first is not None:
            with pytest.raises(ValueError, match=r"twice.*: a request of this name is in flight"):
                begin(rows())
        MPI.COMM_WORLD.Barrier()
        got = hvd.synchronize(begin(rows()) if first is None else first)
        assert repr(got) == repr(wanted)


def test_sparse() -> None:
    entries = rows().to_sparse()
    first = hvd.sparse_allreduce_async(entries, "twice", hvd.Sum) if hvd.rank() == 0 else None
    if first:
        with pytest.raises(ValueError, match="twice"):
            hvd.sparse_allreduce_async(entries, "twice", hvd.Sum)
    MPI.COMM_WORLD.Barrier()
    wait = first or hvd.sparse_allreduce_async(entries, "twice", hvd.Sum)
    assert torch.equal(wait().to_dense(), hvd.allreduce(rows(), op=hvd.Sum))


def test_adasum() -> None:
    if hvd.size() & (hvd.size() - 1):
        with pytest.raises(NotImplementedError, match="power of two"):
            hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum)
        return
    first = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum) if hvd.rank() == 0 else None
    if first is not None:
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum)
    MPI.COMM_WORLD.Barrier()
    one = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum) if first is None else first
    assert hvd.synchronize(one).tolist() == [1.0] * 3


def test_other_operations_and_process_sets_have_names_of_their_own() -> None:
    """One name serves an allreduce, a group, a broadcast and a process set's allreduce at once."""
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    x = torch.ones(2)
    handles = [
        hvd.allreduce_async(x, name="shared", op=hvd.Sum),
        hvd.grouped_allreduce_async([x], name="shared", op=hvd.Sum),
        hvd.broadcast_async(x, 0, name="shared"),
        hvd.allgather_async(x, name="shared"),
        hvd.allreduce_async(x, name="shared", op=hvd.Sum, process_set=sets[hvd.rank()]),
    ]
    results = [hvd.synchronize(handle) for handle in handles]
    assert results[0].tolist() == results[1][0].tolist() == [hvd.size()] * 2
    assert results[4].tolist() == [1.0, 1.0]
    for one in sets:
        hvd.remove_process_set(one)


def test_a_name_is_free_when_its_request_is_finished() -> None:
    """The program need not call synchronize() for that."""
    for _ in range(3):
        handle = hvd.allreduce_async(torch.ones(2), name="again")
        while not hvd.poll(handle):
            pass
