# SPDX-License-Identifier: Apache-2.0
"""Process groups: some of the ranks, in any order, several at once, and what names them."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from hpccoll import errors

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


def test_more_groups_than_there_can_be_are_refused() -> None:
    made = []
    with pytest.raises(Exception, match="all 127 process sets"):
        for _ in range(130):
            made.append(dist.new_group())  # noqa: PERF401
    for group in made:
        dist.destroy_process_group(group)
    assert len(made) > 100


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


def test_monitored_barrier_is_refused_by_name() -> None:
    refusals = (ValueError, NotImplementedError)  # torch's own, before 2.15, or ours
    with pytest.raises(refusals, match=r"GLOO|hpccoll has no"):
        dist.monitored_barrier()
    whole = dist.group.WORLD
    with pytest.raises(NotImplementedError, match="hpccoll has no monitored_barrier"):
        whole.monitored_barrier()


def test_other_memory_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match="nothing for meta"):
        dist.group.WORLD._get_backend(torch.device("meta"))
