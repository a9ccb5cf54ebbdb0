# SPDX-License-Identifier: Apache-2.0
"""Each wrong argument of a front end's functions is one error, which names the argument, before anything is sent."""

import pytest

import hpccoll.horovod as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]

NO_GROUP = "tensors is 3: a group is a list"
NO_NAME = "name is 3: a name is a str"
NO_AVERAGE = "average is 'x': it is True or False"


def test_arguments(front):
    ops, x = front.operations, front.tensor([[1.0, 2.0], [3.0, 4.0]])
    wrong = {
        "op is 9": lambda: ops.allreduce(x, op=9),
        "op and average": lambda: ops.allreduce(x, average=True, op=hvd.Sum),
        "ADASUM is for the allreduce of": lambda: ops.reducescatter(x, op=hvd.Adasum),
        "allreduce of weights: a list is no": lambda: ops.allreduce([1.0], name="weights"),
        "root_rank is 99": lambda: ops.broadcast(x, 99),
        "no rows": lambda: ops.reducescatter(front.tensor(1.0)),
        "reduce of weights: ADASUM is for the allreduce of": lambda: ops.reduce(
            x, op=hvd.Adasum, root_rank=0, name="weights"
        ),
        "gather of an unnamed tensor: root_rank is 99": lambda: ops.gather(x, 99),
        "scatter of one: .* at least one dimension": lambda: ops.scatter(front.tensor(1.0), 0, name="one"),
        "the tensor is not sparse: use allreduce": lambda: ops.sparse_allreduce_async(x, "table", hvd.Sum),
        "prescale_factor is 'a': a factor is a number": lambda: ops.allreduce(x, prescale_factor="a"),
        "postscale_factor is None: a factor is": lambda: ops.allreduce(
            front.tensor([1], "int32"), postscale_factor=None
        ),
    }
    for text, call in wrong.items():
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize("end", ["", "_async"])
def test_a_group_is_a_list(front, end):
    for name in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
        with pytest.raises(ValueError, match=NO_GROUP):
            getattr(front.operations, name + end)(3)
    with pytest.raises(ValueError, match=NO_GROUP):
        getattr(front.operations, f"grouped_allreduce{end}_")(3)


@pytest.mark.parametrize("end", ["", "_async"])
def test_a_name_is_a_text(front, end):
    x = front.tensor([1.0])
    names = ("allreduce", "allgather", "alltoall", "reducescatter")
    for name, given in ((name, x) for name in names):
        with pytest.raises(ValueError, match=NO_NAME):
            getattr(front.operations, name + end)(given, name=3)
        if name != "alltoall":
            with pytest.raises(ValueError, match=NO_NAME):
                getattr(front.operations, f"grouped_{name}{end}")([given], name=3)
    for name in ("broadcast", "gather", "scatter"):
        with pytest.raises(ValueError, match=NO_NAME):
            getattr(front.operations, name + end)(x, 0, name=3)
    with pytest.raises(ValueError, match=NO_NAME):
        getattr(front.operations, "reduce" + end)(x, root_rank=0, name=3)


def test_average_is_a_truth_value(front):
    x = front.tensor([1.0])
    for name in ("allreduce", "allreduce_", "allreduce_async", "allreduce_async_"):
        with pytest.raises(ValueError, match=NO_AVERAGE):
            getattr(front.operations, name)(x, average="x")
        with pytest.raises(ValueError, match=NO_AVERAGE):
            getattr(front.operations, f"grouped_{name}")([x], average="x")
