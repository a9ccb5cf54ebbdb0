# SPDX-License-Identifier: Apache-2.0
"""An optimizer that was made in one World goes on in the next. A file of its own: the others share a World."""

from typing import Any

import numpy as np
import pytest

import hpccoll.horovod as hvd

pytestmark = pytest.mark.mpi(min_size=1)


@pytest.mark.parametrize("groups", [None, 1])
def test_an_optimizer_goes_on(front: Any, groups: int | None) -> None:
    hvd.init()
    named = {name: front.parameter(np.zeros(3)) for name in "ab"}
    optimizer = front.optimizer(named, groups=groups)
    for step in range(1, 4):
        optimizer.zero_grad()
        for parameter in named.values():
            front.backward(parameter, np.full(3, hvd.rank() + 1))
        optimizer.step()
        for parameter in named.values():
            want = np.full(3, -step * (hvd.size() + 1) / 2)
            np.testing.assert_allclose(front.array(front.adapter.values(parameter)), want)
        hvd.shutdown()
        hvd.init()
    hvd.shutdown()
