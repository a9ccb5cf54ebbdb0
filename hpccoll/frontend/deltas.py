# SPDX-License-Identifier: Apache-2.0
"""An optimizer with op=Adasum: every rank steps alone, then the changes of all ranks are combined.

Adasum combines the changes of the optimizer's step, not the gradients, so that they include the optimizer's momentum
and scaling (S. Maleki et al., MLSys 2021, section 4).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from hpccoll.frontend.adapter import ParameterAdapter
from hpccoll.frontend.compression import Compressor, check_compressor
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.frontend.reductions import Adasum
from hpccoll.frontend.requests import Requests

__all__ = ["Deltas"]

P = TypeVar("P")
T = TypeVar("T")


class Deltas(Generic[P, T]):
    """The changes of some parameters by an optimizer's step."""

    def __init__(
        self,
        adapter: ParameterAdapter[P, T],
        parameters: Sequence[P],
        names: Sequence[str],
        compression: Compressor,
        process_set: ProcessSet,
    ) -> None:
        self._adapter, self._requests = adapter, Requests(adapter)
        self._named: list[tuple[str, P]] = []
        check_compressor(compression)
        self._compression = compression
        self._process_set = process_set
        self.add(parameters, names)

    def add(self, parameters: Sequence[P], names: Sequence[str]) -> None:
        """Combine the changes of these parameters, too."""
        self._named += zip(names, parameters, strict=True)

    @contextlib.contextmanager
    def combined(self) -> Iterator[None]:
        """Combine over the ranks the changes that the statements inside make to the parameters."""
        adapter = self._adapter
        trained = [(name, p, self._copy(p)) for name, p in self._named if adapter.trainable(p)]
        yield
        started = []
        for name, parameter, start in trained:
            delta, context = self._compression.compress(adapter.add(adapter.values(parameter), start, -1.0))
            handle = self._requests.allreduce(
                f"delta.{name}", [delta], Adasum, 1.0, 1.0, self._process_set, group=False, in_place=True
            )
            started.append((parameter, start, handle, context))
        combined = wait_for_all([handle for _, _, handle, _ in started])
        for (parameter, start, _, context), result in zip(started, combined, strict=True):
            delta = self._compression.decompress(result, context)
            adapter.overwrite(adapter.values(parameter), adapter.add(start, delta, 1.0))

    def _copy(self, parameter: P) -> T:
        values = self._adapter.values(parameter)
        copy = self._adapter.empty(values, self._adapter.shape(values))
        self._adapter.overwrite(copy, values)
        return copy
