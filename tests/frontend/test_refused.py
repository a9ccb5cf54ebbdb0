# SPDX-License-Identifier: Apache-2.0
"""The contract of a front end: a call without a name that one rank refuses is an error of all; the next one matches."""

import pytest

import hpccoll
import hpccoll.horovod as hvd

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.usefixtures("job")]


@pytest.fixture
def pair(job):
    """Ranks that an Adasum may have: their number is a power of two."""
    if hvd.size() == 2:
        yield hvd.global_process_set
        return
    made = hvd.add_process_set([0, 1])
    yield made
    hvd.remove_process_set(made)


def wrong_calls(front, ops, pair):
    """Calls that are wrong in one argument, each beside the same call without that mistake."""
    adasum = {"op": hvd.Adasum, "process_set": pair}
    x, counts = front.tensor([1, 2, 3], "float32"), front.tensor([1, 2, 3], "int32")
    return {
        "operation": (lambda: ops.allreduce(x, op="sum"), lambda: ops.allreduce(x)),
        "factor": (lambda: ops.allreduce(x, prescale_factor="x"), lambda: ops.allreduce(x)),
        "compression": (lambda: ops.allreduce(x, compression="fp16"), lambda: ops.allreduce(x)),
        "root": (lambda: ops.broadcast(x, 99), lambda: ops.broadcast(x, 0)),
        "root of an object": (lambda: hvd.broadcast_object(1, 99), lambda: hvd.broadcast_object(1, 0)),
        "splits": (lambda: ops.alltoall(x, [99]), lambda: ops.alltoall(x, [3] + [0] * (hvd.size() - 1))),
        "group": (lambda: ops.grouped_allreduce(3), lambda: ops.grouped_allreduce([x, x])),
        "one of a group": (lambda: ops.grouped_allgather([x, None, x]), lambda: ops.grouped_allgather([x, x, x])),
        "all of a group": (
            lambda: ops.grouped_reducescatter([x, x], op="sum"), lambda: ops.grouped_reducescatter([x, x])
        ),
        "Adasum": (lambda: ops.allreduce(counts, **adasum), lambda: ops.allreduce(x, **adasum)),
        "Adasum of a group": (
            lambda: ops.grouped_allreduce([x, counts, x], **adasum),
            lambda: ops.grouped_allreduce([x, x, x], **adasum),
        ),
    }  # fmt: skip


def ended(ops, handle):
    """Wait for an asynchronous call; return its result."""
    return ops.synchronize(handle) if hasattr(ops, "synchronize") else handle.wait()


@pytest.mark.parametrize(
    "mistake",
    [
        "operation",
        "factor",
        "compression",
        "root",
        "root of an object",
        "splits",
        "group",
        "one of a group",
        "all of a group",
        "Adasum",
        "Adasum of a group",
    ],
)
def test_one_rank_refuses(front, mistake, pair):
    ops, members = front.operations, pair if mistake.startswith("Adasum") else hvd.global_process_set
    refuses = members.size() - 1
    wrong, right = wrong_calls(front, ops, pair)[mistake]
    for number in range(2):
        if not members.included():
            pass
        elif hvd.rank() == refuses:
            with pytest.raises(Exception) as told:
                wrong()
            assert "has refused" not in str(told.value)
        else:
            with pytest.raises(hpccoll.MismatchError, match=f"rank {refuses} has refused this call"):
                right()
        total = ops.allreduce(front.tensor([hvd.rank() + 1], "float32"), op=hvd.Sum)
        assert front.array(total)[0] == hvd.size() * (hvd.size() + 1) / 2, number


def test_all_ranks_refuse(front, pair):
    for wrong, _ in wrong_calls(front, front.operations, pair).values():
        with pytest.raises(Exception):  # noqa: B017 - InvalidArgumentError, or the framework's own
            wrong()
        total = front.operations.allreduce(front.tensor([hvd.rank() + 1], "float32"), op=hvd.Sum)
        assert front.array(total)[0] == hvd.size() * (hvd.size() + 1) / 2


def calls_with_wrong_values(front, ops):
    """Calls that are wrong in a value, each beside the same call without that mistake."""
    x, flags, one = (front.tensor(*given) for given in (([1, 2, 3], "float32"), ([True], "bool"), (1, "float32")))
    shared = [3] + [0] * (hvd.size() - 1)
    return {
        "dtype": (lambda: ops.allreduce(flags), lambda: ops.allreduce(x)),
        "dtype, async": (lambda: ops.allreduce_async(flags), lambda: ended(ops, ops.allreduce_async(x))),
        "dtype, empty name": (lambda: ops.allreduce(flags, name=""), lambda: ops.allreduce(x, name="")),
        "dtypes of a group": (lambda: ops.grouped_allreduce([x, flags]), lambda: ops.grouped_allreduce([x, x])),
        "dimensions": (lambda: ops.alltoall(one), lambda: ops.alltoall(x, shared)),
        "splits": (lambda: ops.alltoall(x, [99]), lambda: ops.alltoall(x, shared)),
        "operation": (lambda: ops.allreduce(x, op="sum"), lambda: ops.allreduce(x)),
        "root": (lambda: ops.broadcast(x, 99), lambda: ops.broadcast(x, 0)),
        "root of an object": (lambda: hvd.broadcast_object(1, 99), lambda: hvd.broadcast_object(1, 0)),
    }


@pytest.mark.parametrize(
    "mistake",
    ["dtype", "dtype, async", "dtype, empty name", "dtypes of a group", "dimensions", "splits", "operation", "root"],
)
def test_all_ranks_get_the_same_words(front, mistake):
    ops, refuses = front.operations, hvd.size() - 1
    calls = calls_with_wrong_values(front, ops)
    if "async" in mistake and not hasattr(ops, "allreduce_async"):
        return  # the front end has no asynchronous functions
    wrong, right = calls[mistake]
    with pytest.raises(Exception) as told:
        (wrong if hvd.rank() == refuses else right)()
    words = hpccoll.allgather_object(f"{type(told.value).__name__}: {told.value}")
    assert all(words[refuses] in text for text in words), words
    total = ops.allreduce(front.tensor([hvd.rank() + 1], "float32"), op=hvd.Sum)
    assert front.array(total)[0] == hvd.size() * (hvd.size() + 1) / 2
