# SPDX-License-Identifier: Apache-2.0
"""States and the sampler, in one process."""

import random
import re
import resource
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpccoll
from hpccoll import default_rendezvous, elastic
from hpccoll.elastic import versions
from hpccoll.elastic.commit_file import CommitFile
from hpccoll.elastic.versions import Commit, Report
from hpccoll.launch_protocol import Place
from hpccoll.rendezvous import newcomer


def test_objects_go_back_to_the_commit() -> None:
    state = elastic.ObjectState(epoch=0, seen=[1])
    state.seen.append(2)
    state.save()
    state.seen.append(3)
    state.epoch = 5
    state.restore()
    assert (state.epoch, state.seen) == (0, [1, 2])
    state.seen.append(4)  # what was restored is not what is kept
    state.restore()
    assert state.seen == [1, 2]


def test_a_value_that_cannot_be_kept_is_named() -> None:
    said = "the state cannot keep 'guard', a lock: cannot pickle '_thread.lock' object. Leave it out"
    with pytest.raises(hpccoll.ObjectError, match=said):
        elastic.ObjectState(step=0, guard=threading.Lock())


def test_arrays_keep_their_place() -> None:
    weights = np.zeros(3)
    state = elastic.ArrayState(weights=weights, step=0)
    weights += 1
    state.save()
    state.weights = state.weights + 1  # another array
    state.restore()
    assert state.weights is weights and weights.tolist() == [1, 1, 1]
    state.weights = np.full(3, 7.0)
    state.save()
    assert state.weights is weights and weights.tolist() == [7, 7, 7]


def test_a_commit_takes_no_fresh_memory() -> None:
    """The copies have places of their own: no page is mapped and zeroed for each commit."""
    state = elastic.ArrayState(weights=np.ones(1 << 20), block=np.ones(1 << 20), sharded=["block"])
    for _ in range(3):
        state.save()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        state.save()
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert pages < 20 * 4, f"{pages} page faults in 20 commits of 16 MiB"  # fresh memory: 8 at least, in huge pages


def test_sharded_values_have_two_commits() -> None:
    state = elastic.ArrayState(block=np.zeros(2), step=0, sharded=["block"])
    state.save()
    for step in (1, 2):
        state.block = np.full(2 + step, float(step))  # a sharded array may have another size
        state.step = step
        state.save()
    state.block += 5
    state.rollback()
    state.restore()
    assert state.block.tolist() == [1.0] * 3 and state.step == 1
    state.save()
    state.restore()
    assert state.block.tolist() == [1.0] * 3


def test_what_sharded_values_do_not_allow(tmp_path: Path) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match="has no blocks, only block, step"):
        elastic.ArrayState(block=np.zeros(2), step=0, sharded=["blocks"])
    state = elastic.ObjectState(block=1, sharded=["block"], path=tmp_path / "commit")
    with pytest.raises(hpccoll.InvalidArgumentError, match="rank 0's part of block alone"):
        state.begin()
    with pytest.raises(hpccoll.UnsupportedError, match="all ranks must make the same steps"):
        state.join()
    with pytest.raises(hpccoll.UnsupportedError, match=r"defines no reshard\(\): there were 3 ranks"):
        state.reshard([0, 2], 3)


def test_ranks_without_a_common_commit_are_told() -> None:
    ahead, behind = (
        Report(Commit((1, number), rank, 2), Commit((1, number - 1), rank, 2), 1) for rank, number in ((0, 9), (1, 6))
    )
    assert versions.common([ahead, behind]) is None and versions.newest([ahead, behind]) == (1, 9)
    assert versions.common([ahead, Report(Commit((1, 8), 1, 2), since=1), Report()]) == (1, 8)


def test_the_next_run_begins_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "commit"

    def train(state: elastic.ArrayState, until: int) -> None:
        while state.step < until:
            state.weights += hpccoll.allreduce(np.ones(2), name="ones")
            state.step += 1
            state.commit()

    for until in (4, 8):
        state = elastic.ArrayState(weights=np.zeros(2), step=0, path=path, every=2)
        elastic.run(train)(state, until)
        hpccoll.shutdown()
    assert state.step == 8 and state.weights.tolist() == [8, 8]
    again = elastic.ArrayState(weights=np.zeros(2), step=0, path=path)
    again.begin()
    assert again.step == 7 and again.version == (0, 8)  # what the run began with was its first commit
    written = path.read_bytes()
    for at in range(len(written)):
        path.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        with pytest.raises(
            hpccoll.InvalidArgumentError, match=r"no commit can be read: .*commit .*(damaged|checksums)"
        ):
            elastic.ArrayState(weights=np.zeros(2), step=0, path=path).begin()
    for at in (0, 1, len(written) - 1):
        path.write_bytes(written[:at])
        with pytest.raises(hpccoll.InvalidArgumentError, match="does not end with its checksums"):
            elastic.ObjectState(path=path).begin()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"w": np.zeros(2)}, r"'weights' is float64\[2\] there, and no such array here"),
        ({"weights": np.zeros(3)}, r"'weights' is float64\[2\] there, and float64\[3\] here"),
        ({"weights": np.zeros((3, 2))}, r"'weights' is float64\[2\] there, and float64\[3, 2\] here"),
        ({"weights": np.zeros(2, np.float32)}, r"'weights' is float64\[2\] there, and float32\[2\] here"),
        ({"weights": np.zeros(2), "momentum": np.zeros(2)}, "it has other values: momentum only here"),
        ({"weights": np.zeros(2), "seed": 1, "epoch": 0}, "it has other values: epoch, seed only here"),
        ({}, "ValueError"),
    ],
)
def test_the_file_of_another_state_is_refused(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    """NumPy would fill an array of 3 rows with the 2 values of the file."""
    path = tmp_path / "commit"
    elastic.run(lambda state: state.commit())(elastic.ArrayState(weights=np.ones(2), step=3, path=path))
    hpccoll.shutdown()
    if not other:
        CommitFile(path).write(1, (1, 2, 3))
    state = elastic.ArrayState(step=0, path=path, **other)
    with pytest.raises(hpccoll.InvalidArgumentError, match=f"the commit in .*commit does not fit this state: {words}"):
        state.begin()
    assert state.step == 0


def test_a_file_without_a_value_of_the_state_is_refused(tmp_path: Path) -> None:
    """The value began anew beside the others of the file, and one that only the file has became a stray attribute."""
    torch = pytest.importorskip("torch")
    hvd = pytest.importorskip("hpccoll.torch")
    net = torch.nn.Linear(2, 1)
    path = tmp_path / "commit"
    elastic.run(lambda state: state.commit())(hvd.elastic.TorchState(model=net, step=3, path=path))
    hpccoll.shutdown()
    with pytest.raises(hpccoll.InvalidArgumentError, match="it has other values: optimizer only here"):
        hvd.elastic.TorchState(net, torch.optim.SGD(net.parameters(), 0.1), step=0, path=path).begin()
    with pytest.raises(hpccoll.InvalidArgumentError, match="it has other values: step only there; epoch only here"):
        hvd.elastic.TorchState(net, epoch=0, path=path).begin()


def test_a_scheduler_of_the_given_optimizer_sets_the_rate_after_a_restore() -> None:
    """PyTorch makes new groups when it loads, and the scheduler set the rate in the old ones."""
    torch = pytest.importorskip("torch")
    hvd = pytest.importorskip("hpccoll.torch")
    hvd.init()
    net = torch.nn.Linear(2, 1)
    given = torch.optim.SGD(net.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(given, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(given, net.named_parameters())
    for kept in (optimizer, given):
        state = hvd.elastic.TorchState(net, kept)
        state.restore()
        rate = given.param_groups[0]["lr"]
        given.step()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == rate / 2
        state.restore()
        assert optimizer.param_groups[0]["lr"] == given.param_groups[0]["lr"] == rate
    hvd.shutdown()


def test_a_restored_optimizer_goes_on_as_if_nothing_had_happened() -> None:
    """Fused optimizers go through a parameter and its state as they lie in memory: a copy keeps that order."""
    torch = pytest.importorskip("torch")
    hvd = pytest.importorskip("hpccoll.torch")

    def steps(before: int, after: int) -> Any:
        torch.manual_seed(1)
        net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
        state = hvd.elastic.TorchState(net, optimizer)
        for step in range(before + after):
            if step == before:
                state.save()
                state.save()  # into the memory of the first one
                state.restore()
            x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            net(x.to(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()]

    torch.testing.assert_close(steps(2, 2), steps(4, 0), rtol=1e-6, atol=1e-7)


def test_a_restored_optimizer_keeps_the_types_of_its_state() -> None:
    torch = pytest.importorskip("torch")
    hvd = pytest.importorskip("hpccoll.torch")
    net = torch.nn.Linear(2, 1).bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    exact = torch.tensor([[0.1, 0.2]])  # as a float32 copy of bfloat16 weights
    optimizer.state[net.weight]["copy"] = exact.clone()
    state = hvd.elastic.TorchState(net, optimizer)
    for _ in range(2):
        state.restore()
        torch.testing.assert_close(optimizer.state[net.weight]["copy"], exact, rtol=0, atol=0)
        optimizer.state[net.weight]["copy"].zero_()  # what was restored is not what is kept


def test_a_file_that_cannot_be_read_or_counted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match=f"no commit can be read from {tmp_path}: Is a directory"):
        elastic.ObjectState(path=tmp_path).begin()
    for every in (0, -1, 2.0):
        with pytest.raises(hpccoll.InvalidArgumentError, match=f"every is {every}, and .* integer from 1"):
            elastic.ArrayState(path=tmp_path, every=every)


def test_a_full_disk_ends_no_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is said once, with bytes; the file keeps the commit that it has, until one can be written again."""
    path = tmp_path / "commit"
    state = elastic.ArrayState(weights=np.zeros(30_000), step=0, path=path, every=2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = []

    @elastic.run
    def train(state: elastic.ArrayState) -> None:
        while state.step < 12:
            full = 4 <= state.step < 8
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000 if full else limits[0], limits[1]))
            state.step += 1
            state.commit()
            again = elastic.ArrayState(weights=np.zeros(30_000), step=0, path=path)
            again.begin()
            kept.append(again.step)

    try:
        train(state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        hpccoll.shutdown()
    assert kept == [1, 1, 3, 3, 3, 3, 3, 3, 9, 9, 11, 11]
    assert [file.name for file in tmp_path.iterdir()] == ["commit"]
    lines = [line for line in capfd.readouterr().err.splitlines() if "commit" in line]
    assert len(lines) == 2, lines
    assert "commit 6 was not written" in lines[0] and "File too large" in lines[0], lines
    assert re.search(r"it takes 235 KiB, [0-9.]+ .iB are free there", lines[0]), lines
    assert "commit 10 was written" in lines[1], lines


def test_a_job_that_is_not_elastic_raises_what_it_cannot_mend() -> None:
    @elastic.run
    def lose(state: elastic.State) -> None:
        raise hpccoll.PeerLostError("rank 1 (h2) was lost: as this test says")

    with pytest.raises(hpccoll.PeerLostError) as raised:
        lose(elastic.ObjectState())
    assert "start it with `hpccoll run --min-np`" in raised.value.__notes__[0]
    hpccoll.shutdown()


@pytest.mark.parametrize("seed", range(40))
def test_each_sample_once_however_the_ranks_change(seed: int) -> None:
    draw = random.Random(seed)
    count, batch, epoch = draw.randint(1, 200), draw.randint(1, 7), draw.randint(0, 3)
    taken: Counter[int] = Counter()
    told = {"epoch": epoch, "processed_num": 0}
    while told["processed_num"] < count:
        size = draw.randint(1, 5)
        ranks = [elastic.ElasticSampler(range(count), seed=seed) for _ in range(size)]
        for rank, sampler in enumerate(ranks):
            sampler.epoch, sampler.processed_num = told["epoch"], told["processed_num"]
            sampler.deal(rank, size)
        steps = {sampler.steps(batch) for sampler in ranks}
        for step in range(draw.randint(1, steps.pop())):
            batches = [list(sampler)[step * batch : (step + 1) * batch] for sampler in ranks]
            taken.update(index for one in batches for index in one)
            for sampler, one in zip(ranks, batches, strict=True):
                sampler.record_batch(step, draw.choice((batch, len(one))))  # a batch may be shorter, or empty
        assert len({sampler.processed_num for sampler in ranks}) == 1
        told = ranks[0].state_dict()
        assert told["processed_num"] == taken.total()
    assert taken == Counter(range(count))


def test_the_samplers_epochs() -> None:
    sampler = elastic.ElasticSampler(range(10), seed=1)
    first = list(sampler)
    sampler.record_batch(0, 4)
    sampler.set_epoch(0)
    assert list(sampler) == first[4:]  # the same epoch goes on
    sampler.set_epoch(1)
    assert sorted(sampler) == list(range(10)) and list(sampler) != first
    assert list(elastic.ElasticSampler(range(5), shuffle=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("told", "resets"), [((2, 3), ["callback"]), ((0, 1), [])])
def test_a_program_learns_if_init_has_told_a_new_rank_other_numbers(
    told: tuple[int, int], resets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new rank is told its place before it is in; run() calls the callbacks if it has got another one."""
    place, seen = Place(*told, local_rank=1, local_size=2, cross_rank=0, cross_size=1), []
    monkeypatch.setattr(default_rendezvous, "apart", lambda: newcomer.Apart(place))
    hpccoll.init(nodes="2")  # of a job; a World of one rank has one node
    try:
        assert (hpccoll.rank(), hpccoll.size(), hpccoll.local_rank(), hpccoll.cross_size()) == (*told, 1, 1)
        assert hpccoll.allreduce(np.ones(1)).tolist() == [1.0] and hpccoll.world().size == 1
        state = elastic.ArrayState(sampler=elastic.ElasticSampler(range(4)))
        state.register_reset_callbacks([lambda: seen.append("callback")])
        before = hpccoll.world()
        monkeypatch.setattr(default_rendezvous, "apart", lambda: None)
        assert elastic.run(lambda _state: hpccoll.world() is not before)(state)
        assert seen == resets and (hpccoll.rank(), hpccoll.size()) == (0, 1)
    finally:
        hpccoll.shutdown()
