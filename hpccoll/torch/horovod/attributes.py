# SPDX-License-Identifier: Apache-2.0
"""What every DistributedOptimizer has: attributes under Horovod's names, and groups of parameters that come later."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hpccoll.frontend.compression import Compressor
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.frontend.reductions import Reduction
from hpccoll.torch.adapter import ADAPTER

__all__ = ["Attributes", "Given", "load_exactly", "loading_in_place"]

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object


class Given(NamedTuple):
    """Arguments of DistributedOptimizer."""

    names: dict[torch.Tensor, str]
    """The name of each parameter."""
    compression: Compressor
    op: Reduction
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet


class Attributes(_Base):
    """Attributes under Horovod's names; attributes without a setter are read-only."""

    _given: Given
    _passes: int

    def set_backward_passes_per_step(self, passes: int) -> None:
        """See the classes that have this one as a base."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as the optimizer does. It is combined over the ranks as well, so all ranks call this together.

        :param param_group: as for torch.optim.Optimizer.add_param_group
        """
        super().add_param_group(param_group)
        *before, group = self.param_groups
        added, first = group["params"], sum(len(other["params"]) for other in before)
        names = [f"added.{first + at}" for at in range(len(added))]
        self._given.names.update(zip(added, names, strict=True))
        self.reduce_added(added, names, first)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load as the optimizer does, but in place; see loading_in_place()."""
        with loading_in_place(self):
            super().load_state_dict(*args, **kwargs)

    def reduce_added(self, parameters: Sequence[torch.Tensor], names: Sequence[str], first: int) -> None:
        """Combine these parameters over the ranks, too.

        :param first: the number of parameters before them
        """
        raise NotImplementedError

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes that add to the gradients before a step."""
        return self._passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    @property
    def op(self) -> Reduction:
        """How the ranks' gradients are combined."""
        return self._given.op

    @property
    def gradient_predivide_factor(self) -> float:
        return self._given.gradient_predivide_factor

    @property
    def sparse_as_dense(self) -> bool:
        """Whether sparse gradients are reduced as dense ones."""
        return self._given.sparse_as_dense

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that reduce together."""
        return self._given.process_set

    @property
    def _compression(self) -> Compressor:
        return self._given.compression

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        return self._given.names

    @property
    def _handles(self) -> dict[torch.Tensor, Any]:
        """The parameters whose gradients are being reduced."""
        return {}

    @property
    def _allreduce_delay(self) -> dict[torch.Tensor, int]:
        """The remaining backward passes of each parameter before its gradient is reduced."""
        return dict.fromkeys(self._given.names, self._passes)

    @property
    def _requires_update(self) -> set[torch.Tensor]:
        """The parameters whose gradients synchronize() reduces also where no backward pass has computed them."""
        return {p for group in self.param_groups for p in group["params"] if p.requires_grad}

    @_requires_update.setter
    def _requires_update(self, parameters: Iterable[torch.Tensor]) -> None:
        """Programs assign an empty set. Nothing is reduced here but what each step has changed."""


@contextlib.contextmanager
def loading_in_place(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Let a load_state_dict() inside change the groups and the state themselves, which PyTorch replaces by new ones.

    A DistributedOptimizer shares both with the optimizer that it was made of. That one may have a scheduler, which sets
    the learning rate in its groups.
    """
    groups, state = optimizer.param_groups, optimizer.state
    owned = list(groups)
    yield
    if optimizer.state is not state:
        loaded, optimizer.state = optimizer.state, state
        state.clear()
        state.update(loaded)
    if optimizer.param_groups is not groups:
        for group, new in zip(owned, optimizer.param_groups, strict=True):
            values = dict(new)
            group.clear()
            group.update(values)
        groups[:], optimizer.param_groups = owned, groups


def load_exactly(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state_dict() in place, and keep the types of its tensors, and the tensors of options.

    PyTorch casts the state of a parameter to the parameter's type. It would round the float32 copies of bfloat16
    parameters, so the ranks that load would not go on from the values of the rank that does not. A learning rate may be
    a tensor that the program changes, which goes on to set the rate on that rank.

    :param state: a state_dict() of the same optimizer, on this rank or another
    """
    given = [dict(group) for group in optimizer.param_groups]
    with loading_in_place(optimizer):
        optimizer.load_state_dict(state)
    _keep_options(optimizer.param_groups, given)
    _keep_types(optimizer.state_dict()["state"], state["state"])


def _keep_options(groups: list[dict[str, Any]], given: list[dict[str, Any]]) -> None:
    """Put the values of options that were loaded into the tensors that were there; groups may share one."""
    places: dict[torch.Tensor, list[tuple[dict[str, Any], str]]] = {}
    for group, before in zip(groups, given, strict=True):
        for name, tensor in before.items():
            if isinstance(tensor, torch.Tensor):
                places.setdefault(tensor, []).append((group, name))
    for tensor, where in places.items():
        values = [torch.as_tensor(group[name]) for group, name in where if name in group]
        same = all(value.dtype == tensor.dtype and torch.equal(value, values[0]) for value in values)
        if same and len(values) == len(where) and values[0].shape == tensor.shape:
            ADAPTER.overwrite(tensor, values[0])
            for group, name in where:
                group[name] = tensor


def _keep_types(loaded: Any, exact: Any) -> Any:
    """Replace the tensors in `loaded` that have another type than those of `exact`; return it, or its replacement."""
    if isinstance(loaded, torch.Tensor) and isinstance(exact, torch.Tensor):
        return loaded if loaded.dtype == exact.dtype else exact.to(loaded.device, copy=True)
    if isinstance(loaded, dict) and isinstance(exact, dict):
        for key in loaded.keys() & exact.keys():
            loaded[key] = _keep_types(loaded[key], exact[key])
    elif isinstance(loaded, list) and isinstance(exact, list) and len(loaded) == len(exact):
        loaded[:] = map(_keep_types, loaded, exact)
    return loaded
