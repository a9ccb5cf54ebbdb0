# SPDX-License-Identifier: Apache-2.0
"""Ranks that run out of data: every reduction goes on right, and unnamed operations match again afterwards."""

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product], ids=lambda op: op.name)
def test_joined_ranks_change_no_reduction(op):
    """Rank r makes r + 1 steps, so that only the last rank makes the last one."""
    n = hvd.size()
    for step in range(hvd.rank() + 1):
        there = n - step
        want = {hvd.Sum: 2 * there, hvd.Average: 2 * there / n, hvd.Product: 2**there}.get(op, 2)
        for dtype in (torch.float32, torch.bfloat16):
            got = hvd.allreduce(torch.full((3,), 2, dtype=dtype), op=op)
            torch.testing.assert_close(got, torch.full((3,), want, dtype=dtype), rtol=1e-2, atol=0)
    assert hvd.join() == n - 1


def test_gathers_of_those_who_are_left():
    n, me = hvd.size(), hvd.rank()
    if me > 0 or n == 1:
        left = list(range(min(1, n - 1), n))
        assert hvd.allgather(torch.tensor([me])).tolist() == left
        assert hvd.reducescatter(torch.ones(n), op=hvd.Sum).tolist() == [len(left)]
        assert hvd.alltoall(torch.full((n,), me)).tolist() == left
        assert hvd.broadcast(torch.tensor([me]), n - 1).tolist() == [n - 1]
        hvd.barrier()
    hvd.join()


def test_allgather_after_a_join():
    """Where Horovod's automatic names differ between the ranks by then."""
    for _ in range(3 * hvd.rank()):
        hvd.allreduce(torch.ones(2))
    hvd.join(device=0)
    assert hvd.allgather(torch.tensor([hvd.rank()])).tolist() == list(range(hvd.size()))


def test_derivatives_after_a_join():
    """The ranks have made different numbers of calls without a name by then; docs/gradients.md has the gradients."""
    n, root = hvd.size(), float(hvd.rank() == 0)
    for _ in range(3 * hvd.rank()):
        hvd.allreduce(torch.ones(2))
    hvd.join()
    for operation, want in (
        (lambda x: hvd.allreduce(x, op=hvd.Sum), n),
        (lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[0], n),
        (hvd.allgather, 1),
        (lambda x: hvd.grouped_allgather([x, x])[0], 1),
        (lambda x: hvd.broadcast(x, 0), root),
        (hvd.alltoall, 1),
        (lambda x: hvd.scatter(x, 0), root),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum), n),
    ):
        x = torch.ones(n, requires_grad=True)
        operation(x).sum().backward()
        assert x.grad.tolist() == [want] * n


def test_adasum_after_a_join():
    n, me = hvd.size(), hvd.rank()
    if n & (n - 1):
        return  # tests/frontend/test_adasum.py has it on ranks that are threads
    for _ in range(me):
        hvd.allreduce(torch.ones(2), op=hvd.Adasum)
    hvd.join()
    x = torch.eye(n)[me].requires_grad_()  # orthogonal vectors are added
    total = hvd.allreduce(x, op=hvd.Adasum)
    assert total.tolist() == [1.0] * n
    (total * x.detach()).sum().backward()  # and so are their gradients
    assert x.grad.tolist() == [1.0] * n


def test_adasum_with_joined_ranks():
    n, me = hvd.size(), hvd.rank()
    if n & (n - 1) == 0:
        if me == n - 1:
            got = hvd.allreduce(torch.arange(5.0), op=hvd.Adasum, name="adasum")
            torch.testing.assert_close(got, torch.arange(5.0))
        hvd.join()
