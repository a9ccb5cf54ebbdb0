# SPDX-License-Identifier: Apache-2.0
"""All classes of states on several ranks: every sequence of their calls (sequences.py)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sequences

import hpccoll
from hpccoll import elastic

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    hpccoll.init(verbose=0)
    yield
    hpccoll.shutdown()


def check(state: Any, write: Any, read: Any, length: int = 3) -> None:
    sequences.check(state, hpccoll.rank(), hpccoll.size(), write, read, length)


@pytest.mark.parametrize("sharded", [(), ("mine",)])
def test_objects(sharded: tuple[str, ...]) -> None:
    sampler = elastic.ElasticSampler(range(1000))
    state = elastic.ObjectState(step=0, seen=[0], sampler=sampler, mine=0, sharded=sharded)

    def write(number: int) -> None:
        state.step = state.seen[0] = state.mine = number
        sampler.load_state_dict({"epoch": number, "processed_num": number})

    def read() -> dict[str, Any]:
        assert state.sampler is sampler
        return {"step": state.step, "seen": state.seen, "mine": state.mine, "sampler": sampler.processed_num}

    check(state, write, read, length=4)


@pytest.mark.parametrize("sharded", [(), ("mine", "own")])
def test_arrays(sharded: tuple[str, ...]) -> None:
    arrays = {"weights": np.zeros(3), "one": np.zeros(()), "none": np.zeros((0, 2)), "mine": np.zeros((2, 3)).T}
    state = elastic.ArrayState(**arrays, step=0, own=0, sharded=sharded)

    def write(number: int) -> None:
        for name in arrays:
            getattr(state, name)[...] = number
        state.step = state.own = number

    def read() -> dict[str, Any]:
        assert all(getattr(state, name) is array for name, array in arrays.items())
        return {name: np.copy(getattr(state, name)) for name in (*arrays, "step", "own")}

    check(state, write, read)


@pytest.mark.parametrize("sharded", [(), ("mine", "own")])
def test_torch(sharded: tuple[str, ...]) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'hpccoll[torch]'")
    import hpccoll.torch as hvd

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    mine = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model, optimizer, mine=mine, step=0, own=0, sharded=sharded)

    def tensors() -> dict[str, list[Any]]:
        momenta = [entry["momentum_buffer"] for entry in optimizer.state_dict()["state"].values()]
        return {"model": [*model.state_dict().values(), *momenta], "mine": list(mine.state_dict().values())}

    def write(number: int) -> None:
        for values in tensors().values():
            for tensor in values:
                tensor.fill_(number)
        optimizer.param_groups[0]["lr"] = state.step = state.own = number

    def read() -> dict[str, Any]:
        numbers = {name: np.concatenate([t.flatten().numpy() for t in values]) for name, values in tensors().items()}
        return {**numbers, "optimizer": optimizer.param_groups[0]["lr"], "step": state.step, "own": state.own}

    check(state, write, read)


class OfHorovod(elastic.State):
    """A class as programs for Horovod have it: it calls none of the methods of State that it defines."""

    def __init__(self) -> None:
        super().__init__()
        self.value = self.kept = hpccoll.rank()

    def save(self) -> None:
        self.kept = self.value

    def restore(self) -> None:
        self.value = self.kept

    def sync(self) -> None:
        self.value = hpccoll.broadcast_object(self.value, self.source)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("make", [lambda: elastic.ObjectState(value=hpccoll.rank()), OfHorovod])
def test_the_ranks_go_on_from_a_copy_that_one_of_them_has_made(make: Any) -> None:
    """Where a loss cuts a step short, some ranks have called save() or sync(), and others have not."""
    state = make()
    state.synchronize()
    ahead = hpccoll.size() - 1
    for method in ("commit",) if make is OfHorovod else ("save", "commit"):
        state.value += 1 + hpccoll.rank()
        if hpccoll.rank() == ahead:
            getattr(state, method)()
        state.restore()
        before = hpccoll.allgather_object(state.value)
        state.synchronize()
        live = hpccoll.allgather_object(state.value)
        state.restore()
        kept = hpccoll.allgather_object(state.value)
        assert before[ahead] != before[0]
        assert live == kept == [before[ahead]] * hpccoll.size(), method


@pytest.mark.parametrize("commits", [True, False])
def test_ranks_without_samples_wait_in_each_epoch(commits: bool) -> None:
    """Rank 0 alone has a sample; the others take its state, whether it has been committed or not."""
    sampler = elastic.ElasticSampler(range(1), shuffle=False)
    state = elastic.ArrayState(weights=np.zeros(2), epoch=0, sampler=sampler)

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        for state.epoch in range(3):
            sampler.set_epoch(state.epoch)
            for step, _ in enumerate(sampler):
                state.weights += hpccoll.allreduce(np.ones(2), name="ones")
                sampler.record_batch(step, 1)
                if commits:
                    state.commit()

    train(state)
    assert state.weights.tolist() == [3, 3]
    state.weights += 1
    state.restore()
    assert state.weights.tolist() == [3, 3] or hpccoll.size() == 1  # nobody waits for a single rank


def test_ranks_that_count_their_steps_make_as_many() -> None:
    """Shards stay where they are, so no rank may wait for another one; ranks out of samples make empty batches."""
    count, batch = 2 * hpccoll.size() + 1, 2
    sampler = elastic.ElasticSampler(range(count), shuffle=False)
    state = elastic.ArrayState(total=np.zeros(1), block=np.zeros(2), epoch=0, sampler=sampler, sharded=["block"])

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        for state.epoch in range(3):
            sampler.set_epoch(state.epoch)
            mine = list(sampler)
            for step in range(sampler.steps(batch)):
                own = np.array([float(sum(mine[step * batch : (step + 1) * batch]))])
                state.total += hpccoll.allreduce(own, name="own")
                sampler.record_batch(step, batch)
                state.commit()

    train(state)
    assert state.total.tolist() == [3 * sum(range(count))]
    if hpccoll.size() > 1:
        with pytest.raises(hpccoll.UnsupportedError, match="all ranks must make the same steps"):
            sampler.set_epoch(3)
            sampler.set_epoch(4)  # the steps of epoch 3 were not counted


def test_a_sampler_of_another_epoch_waits_as_well() -> None:
    """A program may give each epoch another dataset."""
    state = elastic.ArrayState(total=np.zeros(1), sampler=elastic.ElasticSampler(range(1), shuffle=False))

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        for count in (1, hpccoll.size() + 1):
            state.sampler = elastic.ElasticSampler(range(count), shuffle=False)
            for step, _ in enumerate(state.sampler):
                state.total += hpccoll.allreduce(np.ones(1), name="one")
                state.sampler.record_batch(step, 1)
            state.sampler.end_epoch()

    train(state)
    assert state.total.tolist() == [hpccoll.size() + 2]


@pytest.mark.parametrize("name", ["commit", "version", "source", "join"])
def test_a_value_is_not_named_like_a_method(name: str) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match=f"an attribute '{name}' of its own: choose another name"):
        elastic.ObjectState(step=0, **{name: 1})
    with pytest.raises(hpccoll.InvalidArgumentError, match="of its own"):
        elastic.ArrayState(step=0, **{name: np.zeros(1)})
