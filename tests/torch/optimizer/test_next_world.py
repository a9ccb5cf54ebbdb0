# SPDX-License-Identifier: Apache-2.0
"""What was made in one World goes on in the next. A file of its own: the others share a World."""

import pytest

import hpccoll

pytestmark = pytest.mark.mpi


def test_an_optimizer_goes_on(pair):
    pairs = pair(), pair(options={"groups": 1})
    for one in pairs:
        one.train(2)
    hpccoll.shutdown()
    world = hpccoll.init(verbose=0)
    for one in pairs:
        one.world = world
        one.train(2, first=2)
        one.assert_equal(rtol=1e-5, atol=1e-6)
