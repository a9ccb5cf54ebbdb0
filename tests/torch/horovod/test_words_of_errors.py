# SPDX-License-Identifier: Apache-2.0
"""Errors name the functions and the arguments that a program with PyTorch knows, and the World goes on."""

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1)]
X = torch.ones(4)

WRONG = {
    r"^allreduce_ of an unnamed tensor: prescale_factor is 'a'": lambda: hvd.allreduce_(X, prescale_factor="a"),
    r"^allreduce of w: Average of bool is not defined": lambda: hvd.allreduce(X.bool(), name="w"),
    r"^allreduce of w: Min of complex64": lambda: hvd.allreduce(X.to(torch.complex64), op=hvd.Min, name="w"),
    r"^grouped_allreduce_ of .*: a group has at least one tensor": lambda: hvd.grouped_allreduce_([]),
    r"^alltoall of .*: .* \(the rows of the tensor\)": lambda: hvd.alltoall(X, [1] * 99),
    r"^alltoall_async of .*: .* dimension, the tensor has none": lambda: hvd.alltoall_async(torch.tensor(1.0)),
    r"^reducescatter of .*: a tensor without": lambda: hvd.reducescatter(torch.tensor(1.0)),
    r"^broadcast_ of .*: root_rank is 99": lambda: hvd.broadcast_(X, 99),
    r"^allgather of .*: a list is no tensor": lambda: hvd.allgather([1]),
    r"^add_process_set of \[0, 99\]": lambda: hvd.add_process_set([0, 99]),
}


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("said", WRONG)
def test_errors_in_the_words_of_the_program(said):
    with pytest.raises(ValueError, match=said) as error:
        WRONG[said]()
    for other in ("hpccoll.", "AVERAGE", "subset", " x ", "prescale is"):
        assert other not in str(error.value)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
