# SPDX-License-Identifier: Apache-2.0
"""What only PyTorch's tensors can be. tests/frontend/test_operations.py has the operations of every front end."""

import numpy as np
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


@pytest.mark.parametrize(
    "form",
    [list, tuple, np.array, lambda splits: np.array(splits, np.uint8), lambda splits: np.array(splits)[::-1][::-1]],
)
def test_splits_are_any_sequence_of_numbers(form, ranks):
    """Horovod takes what torch.tensor(splits, dtype=torch.int32) does, and gives back int32."""
    n = ranks.size()
    splits = form([r + 1 for r in range(n)])
    mine, rows = ranks.rank() + 1, n * (n + 1) // 2
    x = torch.arange(rows) + 100 * hvd.rank()
    expected = torch.cat([torch.arange(mine * (mine - 1) // 2, mine * (mine + 1) // 2) + 100 * r for r in ranks.ranks])
    for output, received in (
        hvd.alltoall(x, splits, process_set=ranks),
        hvd.synchronize(hvd.alltoall_async(x, splits, process_set=ranks)),
    ):
        assert torch.equal(output, expected)
        assert received.dtype == torch.int32 and received.tolist() == [mine] * n
    share = hvd.scatter(torch.arange(rows), ranks.ranks[0], splits, process_set=ranks)
    assert torch.equal(share, expected[:mine] - 100 * ranks.ranks[0])


def test_splits_that_are_no_whole_numbers_are_refused():
    for splits in (np.ones(hvd.size()), [1.0] * hvd.size()):
        with pytest.raises(ValueError, match="splits is not a list of integers"):
            hvd.alltoall(torch.ones(hvd.size()), splits)
