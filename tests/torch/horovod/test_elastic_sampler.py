# SPDX-License-Identifier: Apache-2.0
"""The sampler of hvd.elastic gives every rank as many samples, as Horovod's and torch's DistributedSampler do."""

import math

import pytest
import torch.utils.data

import hpccoll
import hpccoll.torch as hvd

SIZES = (1, 2, 3, 5, 8)


def of_rank(sampler: hvd.elastic.ElasticSampler, rank: int, size: int) -> list[int]:
    sampler.deal(rank, size)
    return list(sampler)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 7, 24, 65])
def test_the_ranks_get_what_a_distributed_sampler_gives(count: int, size: int) -> None:
    sampler = hvd.elastic.ElasticSampler(range(count), shuffle=False)
    for rank in range(size):
        expected = torch.utils.data.DistributedSampler(range(count), size, rank, shuffle=False)  # type: ignore[arg-type]
        assert of_rank(sampler, rank, size) == list(expected)
        assert len(sampler) == math.ceil(count / size)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_left_is_divided_in_the_same_way_after_a_change(size: int) -> None:
    before = [hvd.elastic.ElasticSampler(range(65), seed=3) for _ in range(4)]
    for rank, sampler in enumerate(before):
        sampler.deal(rank, 4)
    taken = {index for sampler in before for index in list(sampler)[:6]}
    for sampler in before:
        sampler.record_batch(0, 6)
    told = before[1].state_dict()
    after = hvd.elastic.ElasticSampler(range(65), seed=3)
    after.load_state_dict(told)
    ranks = [of_rank(after, rank, size) for rank in range(size)]
    assert {len(one) for one in ranks} == {math.ceil(41 / size)}
    assert {index for one in ranks for index in one} == set(range(65)) - taken


def test_an_epoch_of_which_nothing_is_left() -> None:
    sampler = hvd.elastic.ElasticSampler(range(5))
    sampler.deal(0, 2)
    sampler.record_batch(0, 3)  # of each rank, one sample twice
    assert [of_rank(sampler, rank, 3) for rank in range(3)] == [[], [], []]
    sampler.set_epoch(1)
    assert sorted(of_rank(sampler, 0, 1)) == list(range(5))


@pytest.mark.mpi(min_size=2)
def test_all_ranks_make_as_many_steps(job: None) -> None:
    """Batches of 4, of which the ranks would have one more and one less: 4 samples each, and one more sample."""
    dataset = torch.utils.data.TensorDataset(torch.arange(4 * hvd.size() + 1))
    sampler = hvd.elastic.ElasticSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler)
    steps = hvd.allgather_object(len(loader))
    assert steps == [2] * hvd.size()
    for at, (batch,) in enumerate(loader):
        hvd.allreduce(batch.sum(), name="loss")
        sampler.record_batch(at, 4)
    assert hvd.allreduce(torch.ones(()), name="validation", op=hvd.Sum) == hvd.size()
    sampler.set_epoch(1)
    assert hvd.allgather_object(sampler.processed_num) == [0] * hvd.size()


@pytest.mark.mpi(min_size=2)
def test_hpccolls_own_sampler_gives_each_sample_once(job: None) -> None:
    own = hpccoll.elastic.ElasticSampler(range(4 * hvd.size() + 1))
    assert sorted(index for one in hvd.allgather_object(list(own)) for index in one) == list(range(4 * hvd.size() + 1))
