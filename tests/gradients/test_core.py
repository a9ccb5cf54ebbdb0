# SPDX-License-Identifier: Apache-2.0
"""The core by itself, on NumPy arrays: what a framework without hooks, tensors or autograd would do with it."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpccoll
from hpccoll import compression, testing
from hpccoll.gradients import (
    Item,
    Piece,
    Recipe,
    Reducer,
    SparseLayout,
    check_names,
    in_groups,
    in_parts,
    one_each,
)

NAMES = ["a", "b", "c", "d", "e"]


def everywhere(program, n=3):
    return testing.make_and_run(n, program, nodes="2+1" if n == 3 else "")


class Framework:
    """Arrays instead of gradients."""

    def __init__(self, world, items, passes=1, **recipe):
        self.arrays = [np.full(4, float(world.rank), np.float32) for _ in NAMES]
        self.recipe = Recipe(world, **recipe)
        self.started, self.finished = [], []
        self.reducer = Reducer(items, passes, self.start)

    def start(self, item):
        self.started.append(item.name)
        handles = self.recipe.start(item.name, [Piece(self.arrays[m], True) for m in item.members])

        def finish():
            for handle in handles:
                handle.wait()
            self.finished.append(item.name)

        return handles, finish


def test_items_start_when_their_last_pass_is_done_and_finish_together():
    def program(world):
        mine = Framework(world, in_groups(NAMES, [[1, 3]], world), passes=2)
        order = [0, 1, 3, 2, 0, 1, 2, 3] if world.rank else [3, 2, 1, 0, 3, 2, 1, 0]
        for member in order:
            mine.reducer.computed(member)
        assert sorted(mine.started) == ["gradient.a", "gradient.b and 1 more", "gradient.c"]
        assert mine.reducer.pending
        mine.reducer.synchronize(lambda member: True)
        assert sorted(mine.finished) == sorted([*mine.started])
        assert mine.started[-1] == "gradient.e"  # nobody computed it
        assert not mine.reducer.pending
        for x in mine.arrays:
            np.testing.assert_array_equal(x, np.full(4, 1, np.float32))

    everywhere(program)


def test_what_is_not_wanted_is_left_out():
    def program(world):
        mine = Framework(world, one_each(NAMES), op=hpccoll.SUM)
        mine.reducer.computed(0)
        mine.reducer.synchronize(lambda member: member < 2)
        assert mine.started == ["gradient.a", "gradient.b"]
        np.testing.assert_array_equal(mine.arrays[1], np.full(4, 3, np.float32))
        np.testing.assert_array_equal(mine.arrays[2], np.full(4, world.rank, np.float32))

    everywhere(program)


def test_one_failure_leaves_nothing_in_flight():
    def program(world):
        mine = Framework(world, one_each(NAMES))
        mine.arrays[1] = np.zeros(3 + world.rank, np.float32)
        for member in range(5):
            mine.reducer.computed(member)
        with pytest.raises(hpccoll.MismatchError, match=r"gradient\.b"):
            mine.reducer.synchronize(lambda member: True)
        assert len(mine.finished) == 4
        mine.arrays[1] = np.ones(3, np.float32)
        mine.reducer.synchronize(lambda member: True)
        assert len(mine.finished) == 9

    everywhere(program)


def test_a_name_twice_is_refused_once():
    """Nothing is agreed before somebody waits, so the first of the two is in flight when the second comes."""

    def program(world):
        mine = Framework(world, [Item("a", (0,)), Item("twice", (1,)), Item("twice", (2,)), Item("d", (3,))])
        for member in range(4):
            mine.reducer.computed(member)
        with pytest.raises(hpccoll.DuplicateNameError, match="twice"):
            mine.reducer.synchronize(lambda member: True)
        assert mine.finished == ["a", "twice", "d"]
        assert [float(x[0]) for x in mine.arrays[:4]] == [1.0, 1.0, world.rank, 1.0]

    testing.make_and_run(3, program, nodes="2+1", raise_window=5.0)


def test_what_cannot_be_started_leaves_the_others_in_order():
    def program(world):
        mine = Framework(world, one_each(NAMES), op=hpccoll.SUM)
        mine.arrays[2] = np.zeros(4, "M8[s]")
        for member in (0, 1, 3):
            mine.reducer.computed(member)
        with pytest.raises(hpccoll.UnsupportedError, match="datetime64"):
            mine.reducer.computed(2)
        mine.reducer.computed(4)
        mine.arrays[2] = np.full(4, 7, np.float32)  # synchronize() starts what is not on its way
        mine.reducer.synchronize(lambda member: True)
        assert [float(x[0]) for x in mine.arrays] == [3.0, 3.0, 21.0, 3.0, 3.0]

    everywhere(program)


def test_gradients_of_several_threads():
    """A framework may compute in a thread a device."""

    def program(world):
        names = [f"n{i}" for i in range(60)]
        arrays = [np.full(10, float(i), np.float32) for i in range(60)]
        recipe = Recipe(world, op=hpccoll.SUM)

        def start(item):
            handle = recipe.start_one(item.name, arrays[item.members[0]], True)

            def finish():
                handle.wait()

            return (handle,), finish

        reducer = Reducer([Item(name, (i,)) for i, name in enumerate(names)], 1, start)
        workers = [
            threading.Thread(target=lambda t=t: [reducer.computed(m) for m in range(t, 60, 3)])
            for t in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        reducer.synchronize(lambda member: True)
        assert [float(x[0]) for x in arrays] == [3.0 * i for i in range(60)]

    everywhere(program)


def test_a_pass_too_many_and_changes_on_the_way():
    def program(world):
        mine = Framework(world, one_each(NAMES))
        mine.reducer.computed(0)
        with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
            mine.reducer.computed(0)
        with pytest.raises(AssertionError, match="being reduced"):
            mine.reducer.set_passes(2)
        with pytest.raises(AssertionError, match="being reduced"):
            mine.reducer.add([Item("late", (5,))])
        mine.reducer.abandon()
        assert not mine.reducer.pending
        with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
            mine.reducer.set_passes(0)

    everywhere(program)


def test_a_round_more():
    """What is started again is awaited after all else."""
    log = []

    def start(item):
        log.append(f"start {item.name}")

        def again():
            log.append(f"again {item.name}")
            return (), lambda: log.append(f"finish {item.name}")

        return (), again

    reducer = Reducer([Item("x", (0,)), Item("y", (1,))], 1, start)
    reducer.synchronize(lambda member: True)
    assert log == ["start x", "start y", "again x", "again y", "finish x", "finish y"]


def test_parts_follow_the_first_rank():
    def program(world):
        names = NAMES if world.rank == 0 else NAMES[::-1]
        items = in_parts(names, [names.index(name) for name in "edca"], 2, world)
        return [(item.name, [names[m] for m in item.members]) for item in items]

    for said in everywhere(program):
        assert said == [
            ("gradient.e and 1 more", ["e", "d"]), ("gradient.c and 1 more", ["c", "a"]), ("gradient.b", ["b"])
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([[0, 2]], r"rank 0 has 'a b' where rank 1 has 'a c'"),
        ([[0, 1], [2, 3]], r"rank 0 has 'c' where rank 1 has 'c d'"),
    ],
)
def test_groups_that_differ_are_said_on_every_rank(others, text):
    def program(world):
        with pytest.raises(hpccoll.MismatchError, match=text) as caught:
            in_groups(NAMES, [[0, 1]] if world.rank == 0 else others, world)
        return str(caught.value)

    assert len(set(everywhere(program))) == 1


def test_names():
    check_names(NAMES)
    with pytest.raises(ValueError, match="Found duplicates: a, b"):
        check_names(["a", "b", "c", "b", "a"])


def test_recipes():
    def program(world):
        wide, narrow = np.full(5, 1.0, np.float32), np.full(5, world.rank, np.int32)
        recipe = Recipe(world, hpccoll.SUM, compression=compression.FP16)
        for handle in recipe.start("mixed", [Piece(wide, True), Piece(narrow, False)]):
            handle.wait()
        assert (wide == 3).all()
        assert (narrow == 3).all()
        large = np.full(5, 6e4, np.float32)  # the sum is beyond float16
        divided = Recipe(world, predivide=3.0, compression=compression.FP16)
        for handle in divided.start("large", [Piece(large, True)]):
            handle.wait()
        np.testing.assert_allclose(large, 6e4, rtol=1e-3)
        with pytest.raises(ValueError, match="not supported with op != Average"):
            Recipe(world, hpccoll.SUM, predivide=2.0)
        with pytest.raises(ValueError, match="not positive"):
            Recipe(world, predivide=0.0)

    everywhere(program)


@given(
    n=st.integers(0, 5), dimensions=st.integers(1, 3), row=st.lists(st.integers(0, 3), max_size=2),
    dtype=st.sampled_from(["f4", "f8", "i2", "c16"]),
)  # fmt: skip
def test_sparse_rows_go_round(n, dimensions, row, dtype):
    layout = SparseLayout(dimensions, tuple(row), np.dtype(dtype))
    rng = np.random.default_rng(n)
    indices = rng.integers(0, 1 << 40, (dimensions, n))
    values = rng.integers(-100, 100, (n, *row)).astype(dtype)
    rows = layout.pack(indices, values)
    assert rows.shape[1:] == layout.nothing().shape[1:]
    for got, want in zip(
        layout.unpack(np.concatenate([layout.nothing(), rows])), (indices, values), strict=True
    ):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
