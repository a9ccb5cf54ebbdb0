# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with op=Adasum: every rank steps alone, then what the steps changed is combined.

What Adasum is given are not gradients but the differences that an optimizer's step makes of them, so that its
momentum and its scaling are in them (S. Maleki et al., MLSys 2021, section 4).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hpccoll.gradients import check_passes
from hpccoll.horovod.process_sets import ProcessSet
from hpccoll.horovod.reductions import Adasum
from hpccoll.torch.horovod import requests
from hpccoll.torch.horovod.compression import Compressor

__all__ = ["DeltaSteps", "Deltas"]

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object


class Deltas:
    """What a step changes of some parameters."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        names: Sequence[str],
        compression: type[Compressor],
        process_set: ProcessSet,
    ) -> None:
        self._named = list(zip(names, parameters, strict=True))
        self._compression = compression
        self._process_set = process_set

    @contextlib.contextmanager
    def combined(self) -> Iterator[None]:
        """Combine over the ranks what the inside changes."""
        starts = [(name, p, p.detach().clone()) for name, p in self._named if p.requires_grad]
        yield
        under_way = []
        for name, parameter, start in starts:
            delta, context = self._compression.compress(parameter.detach() - start)
            handle = requests.allreduce(
                f"delta.{name}", [delta], Adasum, 1.0, 1.0, self._process_set, group=False, in_place=True
            )
            under_way.append((parameter, start, handle, context))
        with torch.no_grad():
            for parameter, start, handle, context in under_way:
                parameter.copy_(start + self._compression.decompress(handle.wait(), context))


class DeltaSteps(_Base):
    """What DistributedOptimizer puts before the class of the optimizer for op=Adasum."""

    _deltas: Deltas
    _passes: int

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes before a step: they add up, and nothing happens before step()."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Announce so many backward passes a step."""
        check_passes(passes)
        self._passes = passes

    def synchronize(self) -> None:
        """Do nothing: gradients are never reduced."""

    def skip_synchronize(self) -> Any:
        """Not for Adasum: AssertionError."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step as the optimizer does with this rank's gradients, and combine the changes of all ranks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._deltas.combined():
            super().step()
        return loss

    step.hooked = True  # type: ignore[attr-defined] # torch's own hooks of a step run once, inside
