# SPDX-License-Identifier: Apache-2.0
"""The plan of a gradient step: names, groups, factors, and what stays on its rank."""

from types import SimpleNamespace

import pytest

import hpccoll
import hpccoll.horovod as hvd
from hpccoll.frontend.compression import NoneCompressor
from hpccoll.frontend.gradient_step import GradientStep, Kind, either_groups, gradient_step
from hpccoll.frontend.groups import Variables

A, B, C, D = (SimpleNamespace(name=name, shape=(2,)) for name in "abcd")
VARIABLES = Variables("tf.Variable", lambda one: hasattr(one, "shape"))
DENSE, SPARSE, NONE, LARGEST = Kind.DENSE, Kind.SPARSE, Kind.NONE, Kind.LARGEST


class Half(NoneCompressor):
    """A program's own."""


def plan(step, kinds, local=(), variables=(A, B, C, D)):
    return step.plan(variables, kinds, lambda places: [variables[at].name for at in places], local)


def sent(step, *arguments, **options):
    """The members of each operation, its name up to the digest, and whether it stays sparse."""
    made = plan(step, *arguments, **options).sent
    return [(one.members, one.call.name.split(" (")[0], one.sparse) for one in made]


def test_each_gradient_is_an_operation_of_its_own():
    step = GradientStep("tape", compression=Half, postscale=3.0)
    whole = plan(step, [DENSE, NONE, SPARSE, DENSE])
    assert [one.members for one in whole.sent] == [(0,), (3,), (2,)]
    assert [one.call.name for one in whole.sent] == ["a", "d", "c"]
    assert [one.sparse for one in whole.sent] == [False, False, True]
    assert {(one.call.op, one.call.postscale, one.call.group) for one in whole.sent} == {(hvd.Average, 3.0, False)}
    assert {one.compression for one in whole.sent} == {Half}
    assert whole.divided == []


def test_a_sparse_gradient_is_in_no_group():
    step = GradientStep("tape", groups=1)
    kinds = [DENSE, SPARSE, DENSE, DENSE]
    assert sent(step, kinds) == [((0, 2, 3), "a and 2 more", False), ((1,), "b", True)]
    step = GradientStep("tape", groups=1, sparse_as_dense=True)
    assert sent(step, kinds) == [((0, 1, 2, 3), "a and 3 more", False)]


def test_lists_of_variables():
    step = GradientStep("tape", groups=[[C, A], [B]])
    assert sent(step, [DENSE] * 4) == [((2, 0), "c and 1 more", False), ((1,), "b", False), ((3,), "d", False)]


@pytest.mark.parametrize("groups", [1, 2, [[A]], [[A, B]]])
def test_a_variable_that_is_there_twice_has_two_gradients(groups):
    made = plan(GradientStep("tape", groups=groups), [DENSE] * 3, variables=(A, A, B)).sent
    assert sorted(at for one in made for at in one.members) == [0, 1, 2]


def test_what_stays_on_its_rank_is_divided():
    whole = plan(GradientStep("tape"), [DENSE, NONE, SPARSE, DENSE], {id(A), id(B), id(C)})
    assert [one.members for one in whole.sent] == [(3,)]
    assert whole.divided == [0, 2]  # the mean over n ranks divides by n, and there is no gradient of b
    assert plan(GradientStep("tape", scales_local=False), [DENSE] * 4, {id(A)}).divided == []


def test_ranges_get_their_largest_as_it_is():
    step = GradientStep("tape", compression=Half, postscale=4.0, groups=1)
    (first, second) = plan(step, [DENSE, LARGEST, LARGEST, DENSE]).sent
    assert (first.members, first.call.op, first.call.postscale) == ((0, 3), hvd.Average, 4.0)
    assert (second.members, second.call.op, second.call.postscale) == ((1, 2), hvd.Max, 1.0)
    assert second.compression is NoneCompressor


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("job")
def test_a_rank_outside_keeps_all():
    first = hvd.add_process_set([0])
    whole = plan(GradientStep("tape", process_set=first), [DENSE] * 4, {id(A)})
    assert [one.members for one in whole.sent] == ([(1,), (2,), (3,)] if hvd.rank() == 0 else [])
    assert whole.divided == ([0] if hvd.rank() == 0 else [])
    hvd.remove_process_set(first)


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(("first", "others"), [(1, 3), (4, 6)])  # 6 groups of 4 gradients are 4, too
def test_other_numbers_of_groups_are_named(first, others):
    step = GradientStep(f"tape of {first}", groups=first if hvd.rank() == 0 else others)
    with pytest.raises(hpccoll.MismatchError, match=f"rank 0 has '{first} groups' where rank 1 has '{others} groups'"):
        plan(step, [DENSE] * 4)


def checked(**options):
    given = {
        "op": hvd.Average, "compression": NoneCompressor, "predivide": 1.0, "groups": None, "sparse_as_dense": False,
        "process_set": hvd.global_process_set,
    }  # fmt: skip
    return gradient_step("tape", VARIABLES, **given | options)


def test_a_factor_before_the_sum_and_its_reciprocal_after_it_are_none():
    """1 / 49 * 49 is not 1 in floating-point numbers, and a sparse gradient has no factors."""
    step = checked(predivide=49.0, factor=2)
    assert (step.prescale, step.postscale) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": hvd.Sum, "predivide": 2.0}, "not supported with op != Average: it is 2, and op is SUM"),
        ({"predivide": 0.0}, r"gradient_predivide_factor is 0\.0: a positive number"),
        ({"predivide": float("nan")}, "gradient_predivide_factor is nan"),
        ({"predivide": "2"}, "gradient_predivide_factor is '2'"),
        ({"op": 77}, "op is 77"),
        ({"compression": 16}, "compression is 16"),
        ({"groups": 0}, r"positive integer or a list of list of tf\.Variable"),
        ({"process_set": [0]}, r"process_set is \[0\]"),
    ],
)
def test_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        checked(**options)


def test_the_old_name_of_groups():
    assert either_groups(0, [[A]]) == [[A]]
    with pytest.warns(DeprecationWarning, match="num_groups is the old name of groups"):
        assert either_groups(3, None) == 3
