# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with op=Adasum: see hpccoll.frontend.deltas."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hpccoll.frontend.deltas import Deltas
from hpccoll.frontend.reducer import check_passes
from hpccoll.torch.horovod.attributes import Attributes

__all__ = ["AdasumSteps"]


class AdasumSteps(Attributes):
    """The methods that DistributedOptimizer puts before those of the optimizer's class for op=Adasum."""

    _deltas: Deltas[torch.Tensor, torch.Tensor]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes per step.

        :param passes: backward passes per step
        :raises InvalidArgumentError: (a ValueError) it is not 1 or more
        """
        check_passes(passes)
        self._passes = passes

    def reduce_added(self, parameters: Sequence[torch.Tensor], names: Sequence[str], first: int) -> None:
        del first
        self._deltas.add(parameters, names)

    def synchronize(self) -> None:
        """Do nothing: gradients are never reduced."""

    def skip_synchronize(self) -> Any:
        """Refuse, as in Horovod.

        :raises AssertionError: always
        """
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step as the optimizer does with this rank's gradients, and combine the changes of all ranks.

        :param closure: computes the gradients, and returns the loss
        :returns: what the closure returned
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._deltas.combined():
            super().step()
        return loss

    step.hooked = True  # type: ignore[attr-defined] # torch's hooks of a step run once, inside
