# SPDX-License-Identifier: Apache-2.0
"""Random wrong calls of every operation: each raises before anything is sent, and the next right call is right."""

import copy
import pickle
import random

import numpy as np
import pytest
from test_out import OPERATIONS, ROOTED, WRONG, X, expected

import hpccoll
from hpccoll import testing

REDUCING = ("allreduce", "reduce", "reducescatter", "scan", "exscan")
ARGUMENTS = {
    "name": [3, "", b"x", "unnamed call 0", "n" * 5000],
    "x": ["text", object(), X.astype(object), np.ma.masked_array(X)],
    "out": [lambda right, spoil=spoil: spoil(right) for _, _, spoil in WRONG.values()],
}
OF_ROOTED = {"root": [-1, 99, None, 0.5]}
BYTES = X.astype(">f8")  # moves as bytes where nothing is reduced
OF_REDUCING = {"op": [99, -1, "sum", None, hpccoll.BAND], "prescale": ["a", None], "postscale": [None]}


def wrong_calls(operation):
    """Each argument of the operation with each value that it cannot have."""
    table = ARGUMENTS | (OF_ROOTED if operation in ROOTED else {}) | (OF_REDUCING if operation in REDUCING else {})
    if operation in REDUCING:
        table |= {"x": [*ARGUMENTS["x"], BYTES]}
    if operation in ("alltoall", "scatter"):
        table |= {"splits": [[1], [99, -87], "ab", [0.5, 1], 7]}
    return [(argument, value) for argument, values in table.items() for value in values]


def call(operation, world, wrong=None):
    arguments = {"x": X, "name": "x"} | ({"root": 0} if operation in ROOTED else {})
    if wrong:
        argument, value = wrong
        arguments[argument] = value(np.zeros_like(expected(operation, world))) if argument == "out" else value
    got = getattr(world, operation)(arguments.pop("x"), **arguments)
    return got[0] if operation == "alltoall" else got


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_calls_send_nothing(threads, operation, ranks):
    def program(world):
        chance = random.Random(f"{operation} {world.rank}")
        calls = wrong_calls(operation)
        chance.shuffle(calls)
        for at, wrong in enumerate(calls):
            if world.rank == 0:  # the root, which has an input and a result of every operation
                asked = world.stats()["requests"]
                with pytest.raises(hpccoll.HpccollError):
                    call(operation, world, wrong)
                assert world.stats()["requests"] == asked, wrong
            if at % 5 == 0:
                got = call(operation, world)
                assert got is None or np.array_equal(got, expected(operation, world)), wrong

    testing.run(threads(ranks, nodes="" if ranks == 2 else "2+1"), program)


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_world_cannot_be_pickled_or_copied(threads, way):
    (world,) = threads(1)
    with pytest.raises(TypeError, match="a World cannot be pickled or copied"):
        way(world)
