# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: any torch optimizer, stepping with gradients that were reduced over the ranks."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from hpccoll import collectives, errors
from hpccoll.gradients import Item, Recipe, check_names, check_passes, in_groups, in_parts, one_each
from hpccoll.horovod.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.horovod.reductions import Adasum, Average, Sum, choose, reduction
from hpccoll.torch.horovod.compression import Compression, Compressor
from hpccoll.torch.horovod.deltas import Deltas, DeltaSteps
from hpccoll.torch.horovod.gradients import Gradients
from hpccoll.world import World

__all__ = ["DistributedOptimizer"]

LOSS = "gradient, loss of the closure"

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object


class _Reducing(_Base):
    """What DistributedOptimizer puts before the class of the optimizer that it was given."""

    _gradients: Gradients | None
    """None: this rank reduces with nobody."""
    _synchronized: bool
    _should_synchronize: bool
    _scaler_asked: bool
    _passes: int

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes that add to the gradients before they are reduced."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce after so many backward passes from now on."""
        check_passes(passes)
        if self._gradients:
            self._gradients.reducer.set_passes(passes)
        self._passes = passes

    def synchronize(self) -> None:
        """Wait until all gradients are reduced. Then they may be changed, before step() in skip_synchronize()."""
        if self._gradients:
            self._gradients.synchronize()
        self._synchronized, self._scaler_asked = True, False

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Say that step() inside shall not synchronize, because synchronize() was called before.

        ::

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Synchronize, then step as the optimizer does; gradients that a closure computes are reduced as well."""
        if not self._should_synchronize:
            self._synchronized = False
            return super().step(closure)
        if closure is not None:
            self._synchronized = False
            return super().step(self._reduced(closure))
        if not self._synchronized or self._pending:
            self.synchronize()
        elif not self._scaler_asked:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(): gradients are not reduced a second time. Use "
                "optimizer.skip_synchronize() if you use optimizer.synchronize() in your code.",
                stacklevel=2,
            )
        self._synchronized = False
        return super().step()

    step.hooked = True  # type: ignore[attr-defined] # torch's own hooks of a step run once, inside, on reduced gradients

    def _reduced(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """LBFGS decides by the loss how often it calls the closure: it must be the same loss on all ranks."""

        def evaluate() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            if self._gradients and isinstance(self, torch.optim.LBFGS):
                recipe = self._gradients.recipe
                value = torch.as_tensor(loss).detach()
                return collectives.allreduce(value, recipe.op, name=LOSS, world=recipe.world)
            return loss

        return evaluate

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Zero the gradients as the optimizer does. AssertionError while some of them are being reduced."""
        if self._pending:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._synchronized = False
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load as the optimizer does; gradients that are being reduced are given up."""
        if self._gradients:
            self._gradients.reducer.abandon()
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as the optimizer does; its gradients are reduced as well. All ranks call it together."""
        super().add_param_group(param_group)
        if self._gradients:
            first = len(self._gradients.parameters)
            added = self.param_groups[-1]["params"]
            names = [f"added.{first + at}" for at in range(len(added))]
            self._gradients.add(added, names, one_each(names, first))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by torch's GradScaler.step() just before it looks for infinities: they must be everybody's by then."""
        if self._pending and self._should_synchronize:
            self.synchronize()
            self._scaler_asked = True
        return bool(
            self.__dict__.get(
                "_step_supports_amp_scaling", getattr(super(), "_step_supports_amp_scaling", False)
            )
        )

    @property
    def _pending(self) -> bool:
        return self._gradients is not None and self._gradients.reducer.pending


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer like `optimizer` that steps with gradients reduced over the ranks.

    A hook of each parameter begins to reduce its gradient, in place, while backward() still computes others; step()
    waits for all of them. See docs/gradients.md.

    :param named_parameters: pairs such as `model.named_parameters()` gives; names must be the same on all ranks
    :param compression: what gradients travel as
    :param backward_passes_per_step: how many backward passes add up, as a sum, before gradients are reduced
    :param gradient_predivide_factor: with Average: divide by it before the sum, multiply by it after
    :param num_groups: the old name of `groups`
    :param groups: so many groups of gradients, or lists of parameters; a group is reduced all at once
    :param sparse_as_dense: make sparse gradients dense before they are reduced
    :param process_set: the ranks that reduce together
    :returns: an instance of a new class of the same name, a subclass of the optimizer's, with its state and groups
    :raises InvalidArgumentError: a ValueError: names or groups make no sense
    :raises MismatchError: ranks have different groups
    """
    if num_groups:
        warnings.warn("num_groups is the old name of groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if isinstance(optimizer, _Reducing | DeltaSteps):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    world = world_of(process_set) if process_set.included() is not False else None
    check_passes(backward_passes_per_step)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names = _names(parameters, named_parameters)
    if choose(op) is Adasum and world is not None and world.size > 1:
        if gradient_predivide_factor != 1.0 or groups:
            raise errors.InvalidArgumentError("gradient_predivide_factor and groups are not for Adasum")
        return _put_before(
            optimizer, DeltaSteps, _passes=backward_passes_per_step,
            _deltas=Deltas(parameters, names, compression, process_set),
        )  # fmt: skip
    gradients = None
    if world is not None:
        own = Sum if choose(op) is Adasum else choose(op)
        recipe = Recipe(world, reduction(own), gradient_predivide_factor, getattr(compression, "wire", None))
        items = _items(parameters, names, groups, world)
        custom = None if compression is Compression.none or recipe.compression else compression
        if world.size > 1:
            gradients = Gradients(
                parameters, names, items, recipe, process_set, backward_passes_per_step, custom, sparse_as_dense,
            )  # fmt: skip
    return _put_before(
        optimizer, _Reducing, _passes=backward_passes_per_step, _gradients=gradients, _synchronized=False,
        _should_synchronize=True, _scaler_asked=False,
    )  # fmt: skip


def _put_before(optimizer: torch.optim.Optimizer, part: type, **attributes: Any) -> Any:
    """An optimizer that shares everything with `optimizer` and whose class has `part` before the other's methods."""
    given = type(optimizer)
    made: Any = type(
        given.__name__, (part, given), {"__doc__": given.__doc__, "__reduce_ex__": _refuse_to_be_copied}
    )
    result = made.__new__(made)
    own = {
        name: value for name, value in optimizer.__dict__.items() if name != "step"
    }  # a scheduler may patch it
    result.__dict__.update(own, **attributes)
    return result


def _refuse_to_be_copied(optimizer: torch.optim.Optimizer, _: Any) -> NoReturn:
    """What copy and pickle ask for: a copy would listen to nobody's gradients."""
    raise TypeError(
        f"{type(optimizer).__name__} is a DistributedOptimizer and cannot be copied or pickled: save its state_dict()"
    )


def _names(parameters: Sequence[torch.Tensor], named: Iterable[tuple[str, torch.Tensor]] | None) -> list[str]:
    """The name of each of the optimizer's parameters."""
    if named is None:
        return [f"noname.{at}" for at in range(len(parameters))]
    pairs = list(named)
    if not all(isinstance(pair, tuple) for pair in pairs):
        raise errors.InvalidArgumentError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    check_names([name for name, _ in pairs])
    name_of = {id(parameter): name for name, parameter in pairs}
    unnamed = [at for at, parameter in enumerate(parameters) if id(parameter) not in name_of]
    if unnamed:
        shown = ", ".join(f"{at} of shape {tuple(parameters[at].shape)}" for at in unnamed[:8])
        raise errors.InvalidArgumentError(
            "named_parameters was specified, but one or more model parameters were not named: of the optimizer's "
            f"parameters, number {shown}"
        )
    return [name_of[id(parameter)] for parameter in parameters]


def _items(
    parameters: Sequence[torch.Tensor],
    names: Sequence[str],
    groups: int | Sequence[Sequence[torch.Tensor]] | None,
    world: World,
) -> list[Item]:
    """One request a gradient or a group."""
    if not groups and not isinstance(groups, bool):
        return one_each(names)
    number = {id(p): at for at, p in enumerate(parameters) if p.requires_grad}
    if isinstance(groups, int):
        if isinstance(groups, bool) or groups < 0:
            raise errors.InvalidArgumentError(
                "groups should be a non-negative integer or a list of list of torch.Tensor."
            )
        return in_parts(names, list(number.values()), groups, world)
    members = [p for group in groups or () for p in group]
    if not all(isinstance(p, torch.Tensor) for p in members):
        raise errors.InvalidArgumentError("groups must consist of torch.Tensor.")
    if len({id(p) for p in members}) != len(members):
        raise errors.InvalidArgumentError("A parameter can only appear once in groups.")
    return in_groups(
        names, [[number[id(p)] for p in group if id(p) in number] for group in groups or ()], world
    )
