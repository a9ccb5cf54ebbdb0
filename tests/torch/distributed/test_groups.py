# SPDX-License-Identifier: Apache-2.0
"""Process groups: some of the ranks, in any order, several at once, and what names them."""

from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from hpccoll import errors
from hpccoll.torch.distributed import by_name
from hpccoll.torch.distributed.process_group import ProcessGroup

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("group")]


def sum_in(group: dist.ProcessGroup) -> int:
    x = torch.tensor([1 << dist.get_rank()])
    dist.all_reduce(x, group=group)
    return int(x)


def test_the_default_group_says_what_it_is() -> None:
    whole = dist.group.WORLD
    assert whole is not None
    assert dist.get_backend() == "hpccoll"
    assert whole.name() == "hpccoll"
    assert (whole.rank(), whole.size()) == (dist.get_rank(), dist.get_world_size())
    assert whole.group_name == dist.distributed_c10d._get_process_group_name(whole)


def test_some_ranks_in_any_order() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    members = list(range(size - 1, -1, -2))
    some = dist.new_group(members)
    if rank in members:
        assert sum_in(some) == sum(1 << r for r in members)
        x = torch.tensor([float(rank)])
        dist.broadcast(x, src=members[-1], group=some)
        assert x.item() == members[-1]
        dist.destroy_process_group(some)
    else:
        assert some is dist.GroupMember.NON_GROUP_MEMBER
    dist.barrier()


def test_groups_that_only_their_members_make() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    members = [r for r in range(size) if r % 2 == rank % 2]
    mine = dist.new_group(members, use_local_synchronization=True)
    assert sum_in(mine) == sum(1 << r for r in members)
    dist.destroy_process_group(mine)


def test_groups_with_others_one_after_another() -> None:
    """A rank may go on to its next group while another is still about to leave the last one."""
    size, rank = dist.get_world_size(), dist.get_rank()
    if size % 2:
        return
    for i in range(60):
        members = [r for r in range(size) if (r % 2 == rank % 2 if i % 2 else r // 2 == rank // 2)]
        mine = dist.new_group(members, use_local_synchronization=True)
        assert sum_in(mine) == sum(1 << r for r in members)
        dist.destroy_process_group(mine)


def test_subgroups() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    if size % 2:
        return
    mine, every = dist.new_subgroups(2)
    assert sum_in(mine) == 0b11 << rank // 2 * 2
    assert len(every) == size // 2
    dist.destroy_process_group(mine)


def test_several_groups_at_once() -> None:
    groups = [dist.new_group() for _ in range(4)]
    xs = [torch.full((2,), float(i)) for i in range(4)]
    order = range(4) if dist.get_rank() % 2 else range(3, -1, -1)
    works = [dist.all_reduce(xs[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    assert all((x == i * dist.get_world_size()).all() for i, x in enumerate(xs))
    for group in groups:
        dist.destroy_process_group(group)


def test_a_mesh_of_two_dimensions() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    if size % 2:
        return
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("outer", "inner"))
    assert sum_in(mesh.get_group("inner")) == 0b11 << rank // 2 * 2
    assert sum_in(mesh.get_group("outer")) == sum(1 << r for r in range(size) if r % 2 == rank % 2)


@pytest.mark.slow
def test_more_groups_than_there_can_be_are_refused() -> None:
    made = []
    with pytest.raises(Exception, match="all 127 process sets"):
        for _ in range(130):
            made.append(dist.new_group())  # noqa: PERF401
    for group in made:
        dist.destroy_process_group(group)
    assert len(made) > 100


@pytest.mark.slow
def test_a_destroyed_group_is_followed_by_another() -> None:
    """Also where the program still holds it."""
    made = []
    for _ in range(130):
        made.append(dist.new_group([0]))
        if dist.get_rank() == 0:
            dist.destroy_process_group(made[-1])
    assert sum_in(dist.group.WORLD) == (1 << dist.get_world_size()) - 1


@pytest.mark.parametrize("backend", ["cpu:hpccoll,cuda:nccl", "cpu:gloo,cuda:hpccoll", "cuda:hpccoll"])
def test_a_part_of_a_group_is_refused(backend: str) -> None:
    with pytest.raises(errors.UnsupportedError, match="cannot be one part of a process group"):
        dist.new_group(backend=backend)


def test_host_and_device_may_both_be_named() -> None:
    both = dist.new_group(backend="cpu:hpccoll,cuda:hpccoll")
    assert sum_in(both) == (1 << dist.get_world_size()) - 1
    dist.destroy_process_group(both)


def test_a_group_of_another_backend_beside_ours() -> None:
    x = torch.ones(1)
    beside = dist.new_group(backend="gloo")
    dist.all_reduce(x, group=beside)
    assert x == dist.get_world_size()
    dist.destroy_process_group(beside)
    del beside  # before x: torch 2.4 and 2.6 may else wait for gloo's threads, and these for the GIL


def test_a_monitored_barrier_names_who_did_not_come() -> None:
    """In gloo's words. A rank that comes later has an error, too, and the next barrier is one of all again."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    missing = list(range(1, size))
    for wait_all_ranks in (False, True):
        if rank == 0 and missing:
            named = missing if wait_all_ranks else missing[:1]
            who = f"Rank{'s' * (len(named) > 1)} {', '.join(map(str, named))}"
            with pytest.raises(RuntimeError, match=rf"^\[Rank 0\]: {who} failed to pass monitoredBarrier in 200 ms$"):
                dist.monitored_barrier(timeout=timedelta(seconds=0.2), wait_all_ranks=wait_all_ranks)
        dist.barrier()
        if rank:
            with pytest.raises(RuntimeError, match="but received errors while waiting for send/recv from rank 0: "):
                dist.group.WORLD.monitored_barrier(timedelta(seconds=0.1))
        dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)


def test_whoever_comes_to_a_monitored_barrier_learns_who_did_not() -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if last == 0:
        return
    some = dist.new_group()
    if rank < last:
        with pytest.raises(RuntimeError, match=rf"\[Rank {rank}\]: .*Rank {last} failed to pass monitoredBarrier"):
            dist.monitored_barrier(some, timedelta(seconds=0.5))
    dist.barrier()
    dist.destroy_process_group(some)


def test_messages_of_a_monitored_barrier_meet_no_receive_of_the_program() -> None:
    """Not even one of any rank and any tag that is open before the barrier."""
    some = dist.new_group()
    assert isinstance(some, ProcessGroup)
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if last == 0:
        return
    got = np.zeros(1, np.uint8)
    receive = some.world.recv_async(got) if rank == 0 else None
    dist.monitored_barrier(some, timedelta(seconds=60))
    if rank == last:
        some.world.send(np.full(1, 7, np.uint8), 0, tag=3)
    if receive is not None:
        receive.wait(60)
        assert (got[0], receive.peer, receive.tag) == (7, last, 3)
    dist.barrier()
    dist.destroy_process_group(some)


def test_a_group_is_split() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    evens, odds = list(range(0, size, 2)), list(range(1, size, 2))
    mine = dist.split_group(split_ranks=[part for part in (evens[::-1], odds) if part])
    assert mine is not None
    assert sum_in(mine) == sum(1 << r for r in (odds if rank % 2 else evens))
    assert dist.get_process_group_ranks(mine) == (odds if rank % 2 else evens)
    assert (dist.split_group(mine, [[0]]) is None) == (mine.rank() > 0)
    with pytest.raises(ValueError, match="are not different ranks"):
        dist.split_group(split_ranks=[[0, size]])


def test_ranks_that_are_in_different_numbers_of_groups_split_one() -> None:
    """They are the ranks whose groups of members only get different names from torch."""
    size, rank = dist.get_world_size(), dist.get_rank()
    dist.new_group([0])
    for _ in range(2):
        mine = dist.split_group(split_ranks=[list(range(size))])
        assert mine is not None
        assert sum_in(mine) == (1 << size) - 1
        part = dist.split_group(mine, [[size - 1, 0]] if size > 1 else [[0]])
        assert (part is None) == (rank not in (0, size - 1))
        assert part is None or sum_in(part) == 1 << (size - 1) | 1


def test_dtensor_sends_each_shard_once() -> None:
    """On the host torch gathered everything everywhere, because gloo had no alltoall."""
    size, rank = dist.get_world_size(), dist.get_rank()
    x = torch.arange(4.0 * size * 2 * size).view(2 * size, 4 * size)
    rows = distribute_tensor(x, init_device_mesh("cpu", (size,)), [Shard(0)])
    by_name.serve_dtensor()
    with CommDebugMode() as counted:
        columns = rows.redistribute(placements=[Shard(1)])
    assert torch.equal(columns.to_local(), x[:, 4 * rank : 4 * rank + 4])
    expected = {torch.ops._dtensor.shard_dim_alltoall: 1} if size > 1 else {}
    assert {op: n for op, n in counted.get_comm_counts().items() if n} == expected


def test_other_memory_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match="nothing for meta"):
        dist.group.WORLD._get_backend(torch.device("meta"))
