# SPDX-License-Identifier: Apache-2.0
"""The register of process sets: numbers, members, what is refused; and init() with sets and communicators."""

import numpy as np
import pytest
from mpi4py import MPI

import hpccoll.horovod as hvd
from hpccoll.frontend.process_sets import world_of

pytestmark = [pytest.mark.mpi(min_size=1)]


@pytest.fixture(autouse=True)
def ended():
    yield
    hvd.shutdown()


def total(process_set: hvd.ProcessSet) -> list[int]:
    return world_of(process_set).allgather(np.array([hvd.rank()])).tolist()


def test_the_global_process_set():
    everyone = hvd.global_process_set
    assert everyone.process_set_id == 0
    assert (everyone.size(), everyone.rank(), everyone.included()) == (None, None, None)
    hvd.init()
    assert (everyone.size(), everyone.rank(), everyone.included()) == (hvd.size(), hvd.rank(), True)
    assert everyone.ranks == list(range(hvd.size()))
    assert not hvd.remove_process_set(everyone)


@pytest.mark.mpi(min_size=2)
def test_add_and_remove():
    hvd.init(process_sets="dynamic")
    first = hvd.add_process_set([0])
    rest = hvd.add_process_set(hvd.ProcessSet(range(1, hvd.size())))
    assert [first.process_set_id, rest.process_set_id] == [1, 2]
    assert hvd.process_set_ids() == [0, 1, 2]
    assert hvd.process_set_by_id(2) is rest
    mine, other = (first, rest) if hvd.rank() == 0 else (rest, first)
    assert (mine.included(), other.included()) == (True, False)
    assert (mine.rank(), mine.size()) == (max(hvd.rank() - 1, 0), len(mine.ranks))
    assert total(mine) == mine.ranks
    hvd.barrier(process_set=mine)
    assert hvd.broadcast_object(hvd.rank(), mine.ranks[-1], process_set=mine) == mine.ranks[-1]
    assert hvd.allgather_object(hvd.rank(), process_set=mine) == mine.ranks
    with pytest.raises(ValueError, match=f"does not contain rank {hvd.rank()}"):
        total(other)
    with pytest.raises(ValueError, match="does not contain"):
        other.rank()
    with pytest.raises(ValueError, match=f"root_rank is {other.ranks[0]}"):
        hvd.broadcast_object(1, other.ranks[0], process_set=mine)
    assert hvd.remove_process_set(first)
    assert first.process_set_id is None
    assert first.size() is None
    with pytest.raises(ValueError, match="not registered"):
        total(first)
    with pytest.raises(ValueError, match="no process set 1"):
        hvd.process_set_by_id(1)
    assert hvd.add_process_set(first).process_set_id == 3  # numbers are not used again


@pytest.mark.mpi(min_size=3)
def test_wrong_process_sets_are_refused():
    hvd.init()
    pair = hvd.add_process_set([1, 0])
    assert pair.ranks == [0, 1]
    for wrong, text in (
        ([0, 1], "of these ranks already"),
        (pair, "registered already"),
        (range(hvd.size()), "already"),
        ([0, hvd.size()], "needs different ranks"),
        ([], "needs different ranks"),
        ([0.5], "global ranks"),
        (7, "global ranks"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.add_process_set(wrong)
    with pytest.raises(RuntimeError, match=r"rank 0 says .* rank 1 says"):
        hvd.add_process_set([min(hvd.rank(), 1)])
    sets = [hvd.add_process_set([0]), hvd.add_process_set([1])]
    with pytest.raises(RuntimeError, match="rank 0 says process set 2, rank 1 says 3"):
        hvd.remove_process_set(sets[min(hvd.rank(), 1)])
    assert hvd.remove_process_set(sets[0])


@pytest.mark.mpi(min_size=2)
def test_by_communicator():
    """Each rank names the communicator that it is in: several sets, one number."""
    split = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
    parity = hvd.ProcessSet(split)
    hvd.init(MPI.COMM_WORLD, process_sets=[parity])
    assert parity.process_set_id == 1
    assert parity.ranks == list(range(hvd.rank() % 2, hvd.size(), 2))
    assert total(parity) == parity.ranks
    split.Free()


@pytest.mark.mpi(min_size=2)
def test_init_with_some_ranks():
    if MPI.COMM_WORLD.rank == 0:
        with pytest.raises(ValueError, match=r"rank 0 of MPI\.COMM_WORLD is not in it"):
            hvd.init(comm=[1])
    else:
        hvd.init(comm=list(range(1, MPI.COMM_WORLD.size)))
        assert (hvd.rank(), hvd.size()) == (MPI.COMM_WORLD.rank - 1, MPI.COMM_WORLD.size - 1)
        assert total(hvd.global_process_set) == list(range(hvd.size()))


def test_again():
    old = hvd.ProcessSet([0])
    for _ in range(3):
        hvd.init(process_sets=[old] if MPI.COMM_WORLD.size > 1 else None)
        hvd.init()
        with pytest.raises(ValueError, match="initialised already"):
            hvd.init(comm=[0])
        assert hvd.is_initialized()
        assert total(hvd.global_process_set) == list(range(hvd.size()))
        hvd.shutdown()
        assert not hvd.is_initialized()
        assert old.process_set_id is None


def test_who_and_what():
    hvd.init()
    assert hvd.local_size() == len([h for h in hvd.allgather_object(hvd.cross_rank()) if h == hvd.cross_rank()])
    assert 0 <= hvd.local_rank() < hvd.local_size()
    assert hvd.cross_size() >= 1
    assert hvd.is_homogeneous() == (len(set(hvd.allgather_object(hvd.local_size()))) == 1)
    assert hvd.mpi_built()
    assert hvd.mpi_enabled()
    assert hvd.mpi_threads_supported() == (MPI.Query_thread() == MPI.THREAD_MULTIPLE)
    assert not any((hvd.gloo_built(), hvd.gloo_enabled(), hvd.ddl_built(), hvd.ccl_built(), hvd.rocm_built()))
    assert hvd.nccl_built() == 0
