# SPDX-License-Identifier: Apache-2.0
"""The contract of a front end, part 2: gradients of an optimizer with rate 1, on ranks that differ and that do not."""

import gc
from typing import Any

import numpy as np
import pytest

import hpccoll
import hpccoll.horovod as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]


def mean() -> float:
    """The mean over the ranks of rank + 1."""
    return (hvd.size() + 1) / 2


def close(front: Any, tensor: Any, want: Any) -> None:
    got = front.array(tensor)
    np.testing.assert_allclose(got, np.broadcast_to(np.asarray(want, got.dtype), got.shape), rtol=1e-6)


def gradient(front: Any, parameter: Any) -> Any:
    return front.adapter.gradient(parameter)


def parameters(front: Any, *names: str) -> dict[str, Any]:
    return {name: front.parameter(np.zeros(3)) for name in names}


# ---- what is reduced ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 1}, {"groups": 2}, {"groups": 9}, {"predivide": 4.0}, {"groups": 2, "predivide": 4.0}],
    ids=str,
)
def test_steps(front, options):
    """Whatever the order of backward passes on each rank."""
    named = parameters(front, *"abc")
    optimizer = front.optimizer(named, **options)
    for step in (1, 2):
        optimizer.zero_grad()
        for name in "abc" if hvd.rank() % 2 else "cab":
            front.backward(named[name], np.full(3, hvd.rank() + 1))
        optimizer.step()
        for parameter in named.values():
            close(front, front.adapter.values(parameter), -mean() * step)


def test_lists_of_groups(front):
    named = parameters(front, *"abc")
    optimizer = front.optimizer(named, groups=[[named["c"], named["a"]]])
    for at, parameter in enumerate(named.values()):
        front.backward(parameter, np.full(3, (hvd.rank() + 1) * at))
    optimizer.step()
    for at, parameter in enumerate(named.values()):
        close(front, gradient(front, parameter), mean() * at)


@pytest.mark.parametrize("groups", [None, 1])
def test_passes_add_up(front, groups):
    named = parameters(front, "a", "b")
    optimizer = front.optimizer(named, passes=3, groups=groups, op=hvd.Sum)
    for passes in (3, 2):  # fewer than announced are reduced, too
        optimizer.zero_grad()
        for _ in range(passes):
            for parameter in named.values():
                front.backward(parameter, np.full(3, hvd.rank() + 1))
        optimizer.synchronize()
        for parameter in named.values():
            close(front, gradient(front, parameter), passes * mean() * hvd.size())


@pytest.mark.mpi(min_size=2)
def test_a_pass_too_many_is_refused(front):
    named = parameters(front, "a")
    optimizer = front.optimizer(named)
    front.backward(named["a"], np.ones(3))
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
        front.backward(named["a"], np.ones(3))
    try:
        optimizer.synchronize()
    except AssertionError as error:  # where the framework counts changes
        assert "was changed while it was being reduced" in str(error)


@pytest.mark.parametrize("how", ["fp16", "a user's"])
@pytest.mark.parametrize("groups", [None, 1])
def test_compression(front, how, groups):
    class Halves(front.compression.none):
        @staticmethod
        def compress(tensor):
            return front.adapter.scale(tensor, 0.5), None

        @staticmethod
        def decompress(tensor, ctx):
            return front.adapter.scale(tensor, 2.0)

    named = parameters(front, "a", "b")
    compressor = Halves if how == "a user's" else front.compression.fp16
    optimizer = front.optimizer(named, compression=compressor, groups=groups, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        for parameter in named.values():
            front.backward(parameter, np.full(3, hvd.rank() + 1))
        optimizer.synchronize()
        for parameter in named.values():
            close(front, gradient(front, parameter), mean() * hvd.size())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_types(front, dtype):
    if dtype not in front.dtypes:
        return
    named = {"a": front.parameter(np.zeros(3), dtype), "b": front.parameter(np.zeros(2))}
    optimizer = front.optimizer(named, groups=1, compression=front.compression.fp16, op=hvd.Sum)
    for parameter in named.values():
        front.backward(parameter, np.full(front.adapter.shape(front.adapter.values(parameter)), 2))
    optimizer.synchronize()
    for parameter in named.values():
        close(front, gradient(front, parameter), 2 * hvd.size())
    assert front.adapter.dtype(gradient(front, named["a"])) == dtype


PLACES = {
    "plain": lambda x: x,
    "in a part": lambda x: np.concatenate([x, x, x])[len(x) : 2 * len(x)],
    "transposed": lambda x: np.asfortranarray(x),
    "with gaps": lambda x: np.stack([x, x], axis=-1)[..., 0],
}


@pytest.mark.parametrize("compression", ["none", "fp16"])
@pytest.mark.parametrize("groups", [None, 1])
def test_gradients_lie_anywhere(front, compression, groups):
    """Each place after each other one, and twice: what is known of the memory is found out anew."""
    parameter = front.parameter(np.zeros((6, 4)))
    how = {"compression": getattr(front.compression, compression), "groups": groups}
    optimizer = front.optimizer({"it": parameter}, **how)
    values = np.arange(24.0, dtype=np.float32).reshape(6, 4)
    for before in PLACES.values():
        for after in PLACES.values():
            for place in (before, after, after):
                given = place(values * (hvd.rank() + 1))
                tensor = given if front.name == "numpy" else front.torch.from_numpy(given)
                front.adapter.set_gradient(parameter, tensor)
                optimizer.synchronize()
                close(front, gradient(front, parameter), values * mean())


def test_the_last_optimizer_listens(front):
    named = parameters(front, "a")
    first, second = front.optimizer(named), front.optimizer(named, op=hvd.Sum)
    front.backward(named["a"], np.ones(3))
    second.synchronize()
    close(front, gradient(front, named["a"]), hvd.size())
    assert first is not second


def test_a_model_outlives_its_optimizer(front):
    named = parameters(front, "a")
    optimizer = front.optimizer(named)
    del optimizer
    gc.collect()
    for _ in range(3):
        front.backward(named["a"], np.ones(3))
    close(front, gradient(front, named["a"]), 3)


# ---- ranks that differ -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"passes": 2}], ids=str)
def test_a_rank_without_a_gradient_brings_zeros(front, options):
    named = parameters(front, "everywhere", "somewhere")
    optimizer = front.optimizer(named, **options)
    for step in (1, 2, 3):
        optimizer.zero_grad()
        front.backward(named["everywhere"], np.ones(3))
        if hvd.rank() == hvd.size() - 1:
            front.backward(named["somewhere"], np.full(3, hvd.size()))
        optimizer.step()
        for parameter in named.values():
            close(front, front.adapter.values(parameter), -step)


def test_a_rank_without_any_gradient(front):
    named = parameters(front, "a", "b")
    optimizer = front.optimizer(named)
    for step in (1, 2):
        optimizer.zero_grad()
        if hvd.rank() == 0:
            front.backward(named["a"], np.full(3, hvd.size()))
        optimizer.step()
        close(front, front.adapter.values(named["a"]), -step)


def table(front: Any, **options: Any) -> tuple[Any, Any]:
    """A parameter of ten rows, and its optimizer."""
    parameter = front.parameter(np.ones((10, 3)))
    return parameter, front.optimizer({"table": parameter}, **options)


def rows(front: Any, *chosen: int) -> Any:
    """A sparse gradient of ones in these rows."""
    return front.sparse([[row] for row in chosen], np.ones((len(chosen), 3)), (10, 3))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=str)
def test_sparse_gradients(front, op):
    parameter, optimizer = table(front, op=op)
    for _ in range(2):
        front.adapter.set_gradient(parameter, rows(front, hvd.rank(), hvd.rank(), 9))
        optimizer.synchronize()
        assert front.adapter.is_sparse(gradient(front, parameter))
        want = np.zeros((10, 3))
        want[: hvd.size()] += 2
        want[9] += hvd.size()
        close(front, gradient(front, parameter), want / (hvd.size() if op is hvd.Average else 1))


def test_sparse_gradients_made_dense(front):
    """They come back sparse; also on a rank that lacks the gradient, if it was sparse before; not if it is dense."""
    for groups in (None, 1):
        parameter, optimizer = table(front, sparse_as_dense=True, groups=groups)
        for step in range(3):
            lacks = step == 1 and hvd.rank() == hvd.size() - 1
            front.adapter.set_gradient(parameter, None if lacks else rows(front, hvd.rank()))
            optimizer.synchronize()
            want = np.zeros((10, 3))
            want[: hvd.size() - (step == 1)] = 1 / hvd.size()
            if hvd.size() > 1:
                close(front, gradient(front, parameter), want)
                assert front.adapter.is_sparse(gradient(front, parameter))
        front.adapter.set_gradient(parameter, front.tensor(np.ones((10, 3))))
        optimizer.synchronize()
        close(front, gradient(front, parameter), np.ones((10, 3)))
        assert not front.adapter.is_sparse(gradient(front, parameter))


@pytest.mark.mpi(min_size=2)
def test_a_sparse_gradient_that_a_rank_lacks(front):
    """In the first step the last rank cannot know that the gradient is sparse elsewhere; later it does."""
    parameter, optimizer = table(front)
    for _ in range(2):
        lacks = hvd.rank() == hvd.size() - 1
        front.adapter.set_gradient(parameter, None if lacks else rows(front, 4))
        optimizer.synchronize()
        assert front.adapter.is_sparse(gradient(front, parameter))
        want = np.zeros((10, 3))
        want[4] = (hvd.size() - 1) / hvd.size()
        close(front, gradient(front, parameter), want)


@pytest.mark.mpi(min_size=2)
def test_sparse_and_dense_do_not_mix(front):
    """All ranks get the same error, and the job goes on."""
    parameter, optimizer = table(front)
    front.adapter.set_gradient(parameter, rows(front, 1) if hvd.rank() else front.tensor(np.ones((10, 3))))
    with pytest.raises(hpccoll.MismatchError, match="table") as caught:
        optimizer.step()
    assert len(set(hvd.allgather_object(str(caught.value)))) == 1


@pytest.mark.mpi(min_size=2)
def test_sparse_gradients_that_are_refused(front):
    for options, text in (
        ({"groups": 1}, "the gradient of table is sparse, and it is in a group"),
        ({"op": hvd.Max}, "the gradient of table is sparse: Sum or Average only"),
    ):
        parameter = front.parameter(np.ones((10, 3)))
        named = {"table": parameter, "other": front.parameter(np.ones(1))}
        optimizer = front.optimizer(named, **options)
        front.adapter.set_gradient(parameter, rows(front, 1))
        with pytest.raises(hpccoll.UnsupportedError, match=text):
            optimizer.synchronize()


@pytest.mark.mpi(min_size=2)
def test_other_shapes_are_one_error_for_all(front):
    named = {"odd": front.parameter(np.zeros(3 + hvd.rank() % 2)), "even": front.parameter(np.zeros(2))}
    optimizer = front.optimizer(named)
    front.backward(named["odd"], np.ones(3 + hvd.rank() % 2))
    front.backward(named["even"], np.ones(2))
    with pytest.raises(hpccoll.MismatchError, match=r"gradient\.odd"):
        optimizer.step()
    close(front, gradient(front, named["even"]), 1)


@pytest.mark.mpi(min_size=2)
def test_other_groups_are_one_error_for_all(front):
    named = parameters(front, "a", "b")
    pair = list(named.values())
    with pytest.raises(hpccoll.MismatchError, match=r"groups: rank 0 has .* where rank 1 has"):
        front.optimizer(named, groups=[pair if hvd.rank() == 0 else pair[::-1]])
    with pytest.raises(hpccoll.MismatchError, match=r"groups: rank 0 has .* where rank 1 has"):
        front.optimizer(parameters(front, "a", "b" if hvd.rank() == 0 else "c"), groups=1)


@pytest.mark.mpi(min_size=2)
def test_the_order_of_parameters_may_differ_in_numbered_groups(front):
    named = parameters(front, *("abcde" if hvd.rank() == 0 else "edcba"))
    optimizer = front.optimizer(named, groups=2)
    for name, parameter in named.items():
        front.backward(parameter, np.full(3, "abcde".index(name)))
    optimizer.step()
    for name, parameter in named.items():
        close(front, front.adapter.values(parameter), -"abcde".index(name))


def test_process_sets(front, ranks):
    named = parameters(front, "a")
    optimizer = front.optimizer(named, op=hvd.Sum, process_set=ranks)
    front.backward(named["a"], np.full(3, hvd.rank() + 1))
    optimizer.synchronize()
    close(front, gradient(front, named["a"]), sum(rank + 1 for rank in ranks.ranks))
    for process_set in map(hvd.process_set_by_id, hvd.process_set_ids()):
        if not process_set.included():  # a rank outside of it steps alone
            named = parameters(front, "a")
            optimizer = front.optimizer(named, process_set=process_set)
            front.backward(named["a"], np.full(3, hvd.rank() + 1))
            optimizer.step()
            close(front, front.adapter.values(named["a"]), -(hvd.rank() + 1))


def test_adasum(front):
    """The Adasum of equal changes is that change."""
    named = parameters(front, "a")
    if hvd.size() & (hvd.size() - 1):
        return
    optimizer = front.optimizer(named, op=hvd.Adasum)
    for step in (1, 2):
        optimizer.zero_grad()
        front.backward(named["a"], [1.0, 2.0, 3.0])
        optimizer.step()
        close(front, front.adapter.values(named["a"]), np.array([-1.0, -2.0, -3.0]) * step)


# ---- arguments ---------------------------------------------------------------------------------------


def test_wrong_arguments(front):
    named = parameters(front, "a", "b")
    a, b = named.values()
    for options, text in (
        ({"op": hvd.Sum, "predivide": 2.0}, "predivide_factor not supported"),
        ({"predivide": -1.0}, "a positive number"),
        ({"passes": 0}, "backward_passes_per_step is 0"),
        ({"groups": -1}, "should be a positive integer"),
        ({"groups": 0}, "should be a positive integer"),
        ({"groups": [["a"]]}, "must consist of"),
        ({"groups": [[a, b], [a]]}, "only appear once"),
        ({"groups": [[a, front.parameter(np.zeros(3))]]}, "is none of the variables"),
    ):
        with pytest.raises(ValueError, match=text):
            front.optimizer(named, **options)
