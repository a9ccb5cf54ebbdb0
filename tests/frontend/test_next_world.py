# SPDX-License-Identifier: Apache-2.0
"""An optimizer that was made in one World goes on in the next. A file of its own: the others share a World."""

from typing import Any

import numpy as np
import pytest

import hpccoll.horovod as hvd
from hpccoll import default_rendezvous
from hpccoll.launch_protocol import Place
from hpccoll.rendezvous import newcomer

pytestmark = pytest.mark.mpi(min_size=1)


@pytest.mark.parametrize("groups", [None, 1])
def test_an_optimizer_goes_on(front: Any, groups: int | None) -> None:
    hvd.init()
    named = {name: front.parameter(np.zeros(3)) for name in "ab"}
    optimizer = front.optimizer(named, groups=groups)
    for step in range(1, 4):
        check_step(front, named, optimizer, step)
        hvd.shutdown()
        hvd.init()
    hvd.shutdown()


@pytest.mark.parametrize("groups", [None, 1])
def test_an_optimizer_of_a_new_rank_goes_on_with_the_others(
    front: Any, groups: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Horovod's elastic programs make it after init(), where a new rank is alone still."""
    with monkeypatch.context() as patch:
        patch.setattr(default_rendezvous, "apart", lambda: newcomer.Apart(Place(1, 2, 1, 2, 0, 1)))
        hvd.init()
        named = {name: front.parameter(np.zeros(3)) for name in "ab"}
        optimizer = front.optimizer(named, groups=groups)
        hvd.shutdown()
    hvd.init()
    check_step(front, named, optimizer, 1)
    hvd.shutdown()


def check_step(front: Any, named: dict[str, Any], optimizer: Any, step: int) -> None:
    """Make a step with the rank's number plus one as gradients; each step takes their mean from the parameters."""
    optimizer.zero_grad()
    for parameter in named.values():
        front.backward(parameter, np.full(3, hvd.rank() + 1))
    optimizer.step()
    for parameter in named.values():
        want = np.full(3, -step * (hvd.size() + 1) / 2)
        np.testing.assert_allclose(front.array(front.adapter.values(parameter)), want)
