# SPDX-License-Identifier: Apache-2.0
"""Errors name the functions and the arguments that a program with PyTorch knows, and the World goes on."""

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1)]
X = torch.ones(4)


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(X.clone())], lr=1)


WRONG = {
    r"^allreduce_ of an unnamed tensor: prescale_factor is 'a'": lambda: hvd.allreduce_(X, prescale_factor="a"),
    r"^allreduce of w: Average of bool is not defined": lambda: hvd.allreduce(X.bool(), name="w"),
    r"^allreduce of w: Min of complex64": lambda: hvd.allreduce(X.to(torch.complex64), op=hvd.Min, name="w"),
    r"^grouped_allreduce_ of .*: a group has at least one tensor": lambda: hvd.grouped_allreduce_([]),
    r"^alltoall of .*: splits has 99 counts, not \d \(one per rank\)": lambda: hvd.alltoall(X, [1] * 99),
    r"^alltoall_async of an unnamed tensor: it needs at least one dimension, the tensor has none$": (
        lambda: hvd.alltoall_async(torch.tensor(1.0))
    ),
    "^allreduce of big: prescale_factor is 1": lambda: hvd.allreduce(X, name="big", prescale_factor=10**400),
    "^grouped_allreduce_ of twice: tensor 1 of the group shares memory with another one's result: each result needs": (
        lambda: hvd.grouped_allreduce_([X, X], name="twice")
    ),
    r"^reducescatter of .*: a tensor without": lambda: hvd.reducescatter(torch.tensor(1.0)),
    r"^broadcast_ of .*: root_rank is 99": lambda: hvd.broadcast_(X, 99),
    r"^allgather of .*: a list is no tensor": lambda: hvd.allgather([1]),
    "^compression is 3: use Compression.none, ": lambda: hvd.allreduce(X, compression=3),
    "^compression is 4: use": lambda: hvd.grouped_allreduce([X], compression=4),
    "^compression is 'fp16': use": lambda: hvd.reducescatter(X, compression="fp16"),
    "^compression is None: use": lambda: hvd.DistributedOptimizer(sgd(), compression=None),
    "process_set is 3: use": lambda: hvd.allreduce(X, process_set=3),
    "^process_set is None: use": lambda: hvd.remove_process_set(None),
    "^process_set is 5: use": lambda: hvd.DistributedOptimizer(sgd(), process_set=5),
    "^optimizer is 3: give": lambda: hvd.DistributedOptimizer(3),
    "^optimizer is 4: give": lambda: hvd.broadcast_optimizer_state(4, root_rank=0),
    "^named_parameters is 3: give": lambda: hvd.DistributedOptimizer(sgd(), named_parameters=3),
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


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("job")
def test_memory_in_flight_in_the_words_of_the_program():
    x = torch.ones(3)
    first = hvd.allreduce_async_(x, name="held") if hvd.rank() == 0 else None  # the others begin it later
    if hvd.rank() == 0:
        said = "^allreduce_async_ of again: the tensor shares memory with a tensor of allreduce 'allreduce.held', which"
        with pytest.raises(ValueError, match=said):
            hvd.allreduce_async_(x, name="again")
    hvd.barrier()
    assert hvd.synchronize(first or hvd.allreduce_async_(x, name="held")).tolist() == [1, 1, 1]


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("job")
def test_gradients_in_one_memory_in_the_words_of_the_program():
    """The optimizer reduces them as one group."""
    one, two = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([one, two], lr=1.0), named_parameters=[("one", one), ("two", two)], groups=1
    )
    one.grad = two.grad = torch.ones(2)
    said = (
        r"^allreduce of gradient\.one and 1 more \(.*\): tensor 1 of the group shares memory with another one's result"
    )
    with pytest.raises(ValueError, match=said):
        optimizer.step()
