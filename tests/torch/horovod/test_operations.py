# SPDX-License-Identifier: Apache-2.0
"""What only PyTorch's tensors can be. tests/frontend/test_operations.py has the operations of every front end."""

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]


def test_lazy_tensors(ranks):
    """Expanded, conjugated, negated: bits in memory that are not the values."""
    n = ranks.size()
    row = torch.ones(3).expand(2, 3)
    assert torch.equal(hvd.allgather(row, process_set=ranks), torch.ones(2 * n, 3))
    conjugate = torch.tensor([1 + 2j]).conj()
    assert torch.equal(hvd.allreduce(conjugate, process_set=ranks), torch.tensor([1 - 2j]))
    negated = torch.tensor([1 + 2j]).conj().imag
    assert negated.is_neg()
    assert torch.equal(hvd.allreduce(negated, op=hvd.Sum, process_set=ranks), torch.tensor([-2.0 * n]))


def test_autograd_sees_changes_in_place():
    """backward() through values that an operation has overwritten is refused."""
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    with torch.no_grad():
        hvd.allreduce_(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_group_of_no_tensors_has_no_rows():
    assert hvd.grouped_reducescatter([]) == hvd.grouped_allgather([]) == []
    assert hvd.synchronize(hvd.grouped_reducescatter_async([])) == []
