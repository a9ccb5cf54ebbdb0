# SPDX-License-Identifier: Apache-2.0
"""Gradients of NumPy variables over Worlds of threads: buckets, failures, and how values are combined."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_front_end import ADAPTER, Variable

import hpccoll
from hpccoll import compression, testing
from hpccoll.frontend.buckets import Bucket, buckets_in_parts, buckets_of_groups, check_names, one_bucket_each
from hpccoll.frontend.gradients import Gradients
from hpccoll.frontend.process_sets import global_process_set
from hpccoll.frontend.reduction_spec import BucketEntry, ReductionSpec
from hpccoll.frontend.sparse import SparseLayout

NAMES = ["a", "b", "c", "d", "e"]


def everywhere(program, n=3):
    return testing.make_and_run(n, program, nodes="2+1" if n == 3 else "")


class Model:
    """Five variables whose gradients are the rank."""

    def __init__(self, world, buckets, passes=1, **spec):
        self.variables = [Variable(np.zeros(4, np.float32)) for _ in NAMES]
        for variable in self.variables:
            variable.gradient = np.full(4, world.rank, np.float32)
        spec = ReductionSpec(world, **spec)
        self.gradients = Gradients(ADAPTER, self.variables, NAMES, buckets, spec, global_process_set, passes)

    def compute(self, *members):
        """Announce gradients as they are."""
        for member in members:
            self.variables[member].add_gradient(0)

    def firsts(self):
        return [float(variable.gradient[0]) for variable in self.variables]


def test_buckets_in_any_order_of_computation():
    def program(world):
        model = Model(world, buckets_of_groups(NAMES, [[1, 3]], world), passes=2)
        model.compute(*([0, 1, 3, 2, 0, 1, 2, 3] if world.rank else [3, 2, 1, 0, 3, 2, 1, 0]))
        assert model.gradients.active
        model.gradients.synchronize()
        assert not model.gradients.active
        assert model.firsts() == [1.0] * 5  # nobody computed the last one

    everywhere(program)


def test_what_wants_no_gradient_is_left_out():
    def program(world):
        model = Model(world, one_bucket_each(NAMES), op=hpccoll.SUM)
        model.variables[2].trainable, model.variables[2].gradient = False, None
        model.compute(0)
        model.gradients.synchronize()
        assert model.variables[2].gradient is None
        assert float(model.variables[1].gradient[0]) == 3.0

    everywhere(program)


def test_one_failure_leaves_nothing_in_flight():
    def program(world):
        model = Model(world, one_bucket_each(NAMES))
        model.variables[1].gradient = np.zeros(3 + world.rank, np.float32)
        model.compute(*range(5))
        with pytest.raises(hpccoll.MismatchError, match=r"gradient\.b"):
            model.gradients.synchronize()
        assert [model.firsts()[i] for i in (0, 2, 3, 4)] == [1.0] * 4
        model.variables[1].gradient = np.full(3, 3 * world.rank, np.float32)
        model.gradients.synchronize()
        assert model.firsts() == [1.0, 3.0, 1.0, 1.0, 1.0]

    everywhere(program)


def test_a_name_twice_is_refused_once():
    """Nothing is agreed before somebody waits, so the first of the two is in flight when the second comes."""

    def program(world):
        buckets = [Bucket("a", (0,)), Bucket("twice", (1,)), Bucket("twice", (2,)), Bucket("d", (3,))]
        model = Model(world, buckets)
        model.compute(*range(4))
        with pytest.raises(hpccoll.DuplicateNameError, match="twice"):
            model.gradients.synchronize()
        assert model.firsts()[:4] == [1.0, 1.0, world.rank, 1.0]

    testing.make_and_run(3, program, nodes="2+1", raise_window=5.0)


def test_what_cannot_be_started_leaves_the_others_in_order():
    def program(world):
        model = Model(world, one_bucket_each(NAMES), op=hpccoll.SUM)
        model.variables[2].gradient = np.zeros(4, np.longdouble)
        model.compute(0, 1, 3)
        with pytest.raises(hpccoll.UnsupportedError, match=r"the gradient of c: .*(float128|longdouble)"):
            model.compute(2)
        model.compute(4)
        model.variables[2].gradient = np.full(4, 7, np.float32)  # synchronize() starts what is not on its way
        model.gradients.synchronize()
        assert model.firsts() == [3.0, 3.0, 21.0, 3.0, 3.0]

    everywhere(program)


def test_gradients_of_several_threads():
    """A framework may compute in one thread per device."""

    def program(world):
        variables = [Variable(np.zeros(10, np.float32)) for _ in range(60)]
        names = [f"n{i}" for i in range(60)]
        spec = ReductionSpec(world, op=hpccoll.SUM)
        gradients = Gradients(ADAPTER, variables, names, one_bucket_each(names), spec, global_process_set)
        workers = [
            threading.Thread(target=lambda t=t: [variables[m].add_gradient(np.full(10, m)) for m in range(t, 60, 3)])
            for t in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        gradients.synchronize()
        assert [float(v.gradient[0]) for v in variables] == [3.0 * i for i in range(60)]

    everywhere(program)


def test_abandoned_gradients_are_waited_for():
    def program(world):
        model = Model(world, one_bucket_each(NAMES), op=hpccoll.SUM)
        model.compute(*range(5))
        model.gradients.abandon()
        assert not model.gradients.active
        model.gradients.set_passes(2)
        model.gradients.synchronize()
        assert model.firsts() == [9.0] * 5  # reduced twice

    everywhere(program)


def test_parts_follow_the_first_rank():
    def program(world):
        names = NAMES if world.rank == 0 else NAMES[::-1]
        buckets = buckets_in_parts(names, [names.index(name) for name in "edca"], 2, world)
        assert [bucket.name[:12] for bucket in buckets] == ["gradient.e a", "gradient.c a", "gradient.b"]
        assert [[names[m] for m in bucket.members] for bucket in buckets] == [["e", "d"], ["c", "a"], ["b"]]
        return tuple(bucket.name for bucket in buckets)

    assert len(set(everywhere(program))) == 1


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([[0, 2]], r"rank 0 has 'a b' where rank 1 has 'a c'"),
        ([[0, 1], [2, 3]], r"rank 0 has 'c' where rank 1 has 'c d'"),
    ],
)
def test_groups_that_differ_are_reported_on_every_rank(others, text):
    def program(world):
        with pytest.raises(hpccoll.MismatchError, match=text) as caught:
            buckets_of_groups(NAMES, [[0, 1]] if world.rank == 0 else others, world)
        return str(caught.value)

    assert len(set(everywhere(program))) == 1


def test_names():
    check_names(NAMES)
    with pytest.raises(ValueError, match="Found duplicates: a, b"):
        check_names(["a", "b", "c", "b", "a"])


def test_reduction_specs():
    def program(world):
        wide, narrow = np.full(5, 1.0, np.float32), np.full(5, world.rank, np.int32)
        spec = ReductionSpec(world, hpccoll.SUM, compression=compression.FP16)
        for handle in spec.start("mixed", [BucketEntry(wide, True), BucketEntry(narrow, False)]):
            handle.wait()
        assert (wide == 3).all()
        assert (narrow == 3).all()
        large = np.full(5, 6e4, np.float32)  # the sum is beyond float16
        narrowed = ReductionSpec(world, compression=compression.FP16)
        for handle in narrowed.start("large", [BucketEntry(large, True)]):
            handle.wait()
        np.testing.assert_allclose(large, 6e4, rtol=1e-3)

    everywhere(program)


@settings(deadline=None)
@given(
    n=st.integers(0, 5), dimensions=st.integers(1, 3), row=st.lists(st.integers(0, 3), max_size=2),
    dtype=st.sampled_from(["f4", "f8", "i2", "c16"]),
)  # fmt: skip
def test_sparse_entries_go_round(n, dimensions, row, dtype):
    layout = SparseLayout(dimensions, tuple(row), np.dtype(dtype), dtype)
    rng = np.random.default_rng(n)
    indices = rng.integers(0, 1 << 40, (n, dimensions))
    values = rng.integers(-100, 100, (n, *row)).astype(dtype)
    rows = layout.pack(indices, values)
    assert rows.shape[1:] == layout.nothing().shape[1:]
    for got, want in zip(layout.unpack(np.concatenate([layout.nothing(), rows])), (indices, values), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
