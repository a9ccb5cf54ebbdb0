# SPDX-License-Identifier: Apache-2.0
"""What rank 0 gets of an exscan, with every reduction and in every form: docs/reductions.md."""

import numpy as np
import pytest

import hpccoll
from hpccoll import _core
from hpccoll.arrays import DTYPES
from hpccoll.reductions import Reduction
from hpccoll.user_reductions import UserReduction

DEFINED = [
    (dtype, op)
    for code, dtype in DTYPES.items()
    for op in Reduction
    if op not in (hpccoll.AVERAGE, hpccoll.ADASUM) and _core.reduction_defined(op.value, code)
]


def neutral(op, dtype):
    """What changes nothing, by the definition of the reduction."""
    if dtype.kind in "iu":
        least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
    else:
        least, largest = (False, True) if dtype.kind == "b" else (-np.inf, np.inf)
    all_bits = True if dtype.kind == "b" else np.invert(dtype.type(0)) if dtype.kind in "iu" else None
    return {
        hpccoll.MIN: largest, hpccoll.MAX: least, hpccoll.PRODUCT: 1, hpccoll.LAND: 1, hpccoll.BAND: all_bits,
    }.get(op, 0)  # fmt: skip


FORMS = {
    "blocking": hpccoll.World.exscan,
    "async": lambda w, x, op: w.exscan_async(x, op).wait(),
    "plan": lambda w, x, op: w.exscan_init(x, op)(),
    "out": lambda w, x, op: w.exscan(x, op, out=np.full_like(x, 1)),
    "in place": lambda w, x, op: w.exscan(x, op, out=x),
    "group": lambda w, x, op: w.exscan([x, x], op)[1],
}


@pytest.mark.parametrize("form", FORMS)
def test_rank_0_gets_of_an_exscan_what_changes_nothing(everywhere, form):
    def program(world):
        for dtype, op in DEFINED:
            got = FORMS[form](world, np.arange(5).astype(dtype), op)
            if world.rank == 0:
                assert (got == np.full(5, neutral(op, dtype), dtype)).all(), (dtype, op, got)

    everywhere(program)


EXSCANS = {
    "blocking": hpccoll.World.exscan,
    "async": lambda *arguments, **keywords: hpccoll.World.exscan_async(*arguments, **keywords).wait(),
}


@pytest.mark.parametrize("form", EXSCANS)
def test_rank_0_keeps_its_out_in_an_exscan(everywhere, form):
    """MPI 4.0, 6.11.2: the result of rank 0 is undefined; mpi4py's exscan of objects gives None."""

    def program(world):
        exscan, hypot, me = EXSCANS[form], UserReduction(np.hypot), world.rank
        x, out = np.full(3, 2.0), np.array([7.0, 8.0, 9.0])
        assert exscan(world, x, hypot, out=out) is out
        assert out.tolist() == ([7.0, 8.0, 9.0] if me == 0 else pytest.approx([2.0 * me**0.5] * 3))
        assert exscan(world, x, hypot, out=x) is x
        assert x.tolist() == pytest.approx([2.0 * max(me, 1) ** 0.5] * 3)
        assert (exscan(world, np.ones(2), hypot) is None) == (me == 0)

    everywhere(program)


@pytest.mark.parametrize("form", EXSCANS)
@pytest.mark.parametrize("kind", ["f4", "f8", "i2", "u8", "?"])
def test_rank_0_gets_the_last_pair_of_minloc_and_maxloc(everywhere, form, kind):
    def program(world):
        me, dtype = world.rank, np.dtype(kind)
        pairs = hpccoll.value_index(np.array([me, 9 - me]).astype(dtype), [me, me])
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        least = {"f": -np.inf, "b": False}.get(dtype.kind, limits and limits.min)
        largest = {"f": np.inf, "b": True}.get(dtype.kind, limits and limits.max)
        for op, last in ((hpccoll.MINLOC, largest), (hpccoll.MAXLOC, least)):
            out = np.zeros_like(pairs)
            before = EXSCANS[form](world, pairs, op)
            assert EXSCANS[form](world, pairs, op, out=out) is out
            assert (out == before).all()
            if me == 0:
                assert (before["value"] == last).all() and (before["index"] == np.iinfo(np.int64).max).all()
                assert (op.fold(before.copy(), pairs.copy()) == pairs).all()  # it changes nothing
            else:
                assert before["index"][0] < me

    everywhere(program)
