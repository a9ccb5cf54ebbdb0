# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: any torch optimizer, with gradients that are reduced over the ranks."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from hpccoll import errors
from hpccoll.frontend.buckets import one_bucket_each
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.deltas import Deltas
from hpccoll.frontend.gradient_step import either_groups
from hpccoll.frontend.gradients import Gradients
from hpccoll.frontend.groups import Groups
from hpccoll.frontend.parameters import distributed_gradients, names_of
from hpccoll.frontend.process_sets import ProcessSet, check_process_set, global_process_set, has_peers
from hpccoll.frontend.reducer import check_passes
from hpccoll.frontend.reductions import Adasum, Average, Op, choose
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.horovod.adasum_steps import AdasumSteps
from hpccoll.torch.horovod.attributes import Attributes, Given

__all__ = ["DistributedOptimizer"]

LOSS = "gradient, loss of the closure"


class _Reducing(Attributes):
    """The methods that DistributedOptimizer puts before those of the optimizer's class."""

    _gradients: Gradients[torch.Tensor, torch.Tensor] | None
    """None: this rank reduces with no other."""
    _synchronized: bool
    _should_synchronize: bool
    _scaler_asked: bool

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce after another number of backward passes from now on.

        :param passes: backward passes per step
        :raises InvalidArgumentError: (a ValueError) it is not 1 or more
        :raises AssertionError: gradients are being reduced
        """
        check_passes(passes)
        if self._gradients:
            self._gradients.set_passes(passes)
        self._passes = passes

    def synchronize(self) -> None:
        """Wait until all gradients are reduced. Then you may change them before step() inside of skip_synchronize().

        :raises MismatchError: (a RuntimeError) the ranks have different gradients under one name
        :raises AssertionError: a gradient was changed while it was being reduced
        """
        if self._gradients:
            self._gradients.synchronize()
        self._synchronized, self._scaler_asked = True, False

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let step() inside not synchronize, because synchronize() was called before.

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
        """Synchronize, then step as the optimizer does.

        :param closure: computes gradients, which are reduced, and returns the loss
        :returns: what the optimizer's step() returns
        """
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

    step.hooked = True  # type: ignore[attr-defined] # torch's hooks of a step run once, inside, on reduced gradients

    def _reduced(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that reduces the gradients.

        For LBFGS it averages the loss, too: LBFGS decides by the loss how often it calls, so all ranks need the same
        one.
        """

        def evaluate() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            if self._gradients and isinstance(self, torch.optim.LBFGS):
                spec = self._gradients.spec
                value = torch.as_tensor(loss).detach()
                return spec.world.allreduce(value, spec.op, name=LOSS)
            return loss

        return evaluate

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Zero the gradients as the optimizer does. AssertionError while some of them are being reduced."""
        if self._pending:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        if self._gradients:
            self._gradients.finish_interrupted()
        self._synchronized = False
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load as the optimizer does; reductions in flight are abandoned."""
        if self._gradients:
            self._gradients.abandon()
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)

    def reduce_added(self, parameters: Sequence[torch.Tensor], names: Sequence[str], first: int) -> None:
        if self._gradients:
            self._gradients.add(parameters, names, one_bucket_each(names, first))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """GradScaler.step() reads this just before it looks for infinities, so the gradients are reduced here."""
        if self._pending and self._should_synchronize:
            self.synchronize()
            self._scaler_asked = True
        return bool(
            self.__dict__.get("_step_supports_amp_scaling", getattr(super(), "_step_supports_amp_scaling", False))
        )

    @property
    def _handles(self) -> dict[torch.Tensor, Any]:
        gradients = self._gradients
        return {gradients.parameters[m]: (h, None) for m, h in gradients.in_flight().items()} if gradients else {}

    @property
    def _allreduce_delay(self) -> dict[torch.Tensor, int]:
        if not self._gradients:
            return super()._allreduce_delay
        return dict(zip(self._gradients.parameters, self._gradients.passes_left(), strict=True))

    @property
    def _requires_update(self) -> set[torch.Tensor]:
        return set(self._gradients.required()) if self._gradients else super()._requires_update

    @_requires_update.setter
    def _requires_update(self, parameters: Iterable[torch.Tensor]) -> None:
        if self._gradients:
            self._gradients.require(parameters)

    @property
    def _pending(self) -> bool:
        return self._gradients is not None and self._gradients.active


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Compressor = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: Op = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups[torch.Tensor] = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer like `optimizer` that steps with gradients reduced over the ranks.

    A hook of each parameter begins to reduce its gradient, in place, while backward() still computes others; step()
    waits for all of them. See docs/gradients.md.

    :param optimizer: any torch optimizer; do not use it beside the returned one
    :param named_parameters: pairs such as `model.named_parameters()` gives; names must be the same on all ranks
    :param compression: the type of gradients between ranks: Compression.none, .fp16, .bf16, or a Compressor
    :param backward_passes_per_step: how many backward passes add up, as a sum, before gradients are reduced
    :param op: Average (default), Sum, Min, Max or Product of gradients; Adasum of the changes of each rank's step
    :param gradient_predivide_factor: with Average: divide by it before the sum, multiply by it after
    :param num_groups: the old name of `groups`
    :param groups: so many groups of gradients, or lists of parameters; a group is reduced all at once
    :param sparse_as_dense: make sparse gradients dense before they are reduced, and sparse again afterwards
    :param process_set: the ranks that reduce together; on other ranks the optimizer steps alone
    :returns: an instance of a new class of the same name, a subclass of the optimizer's, with its state and groups
    :raises InvalidArgumentError: (a ValueError) names or groups make no sense
    :raises MismatchError: (a RuntimeError) ranks have different groups
    """
    groups = either_groups(num_groups, groups)
    if isinstance(optimizer, _Reducing | AdasumSteps):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    reduction, passes = choose(op), backward_passes_per_step
    check_process_set(process_set)
    named = _named(optimizer, named_parameters)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if reduction is Adasum and process_set.included() is not False and has_peers(process_set):
        check_passes(passes)
        names = names_of(ADAPTER, parameters, named)
        if gradient_predivide_factor != 1.0 or groups is not None:
            raise errors.InvalidArgumentError("gradient_predivide_factor and groups are not for Adasum")
        deltas = Deltas(ADAPTER, parameters, names, compression, process_set)
        given = Given({p: name for name, p in named}, compression, reduction, 1.0, sparse_as_dense, process_set)
        return _put_before(optimizer, AdasumSteps, _given=given, _passes=passes, _deltas=deltas)
    gradients = distributed_gradients(
        ADAPTER, parameters, named, compression=compression, passes=passes, op=reduction,
        predivide=gradient_predivide_factor, groups=groups, sparse_as_dense=sparse_as_dense, process_set=process_set,
    )  # fmt: skip
    given = Given(
        {p: name for name, p in named}, compression, reduction, gradient_predivide_factor, sparse_as_dense, process_set
    )
    return _put_before(
        optimizer, _Reducing, _given=given, _passes=passes, _gradients=gradients, _synchronized=False,
        _should_synchronize=True, _scaler_asked=False,
    )  # fmt: skip


def _named(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise errors.InvalidArgumentError(f"optimizer is {optimizer!r}: give a torch.optim.Optimizer")
    if not isinstance(named, Iterable | None):
        raise errors.InvalidArgumentError(f"named_parameters is {named!r}: give model.named_parameters()")
    return _numbered(optimizer) if named is None else list(named)


def _numbered(optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
    """Name the parameters by their indices, as Horovod does."""
    return [
        (f"allreduce.noname.{i}.{j}", p)
        for i, group in enumerate(optimizer.param_groups)
        for j, p in enumerate(group["params"])
    ]


def _put_before(optimizer: torch.optim.Optimizer, part: type, **attributes: Any) -> Any:
    """Return an optimizer that shares all state with `optimizer`; its class has the methods of `part` first."""
    given = type(optimizer)
    made: Any = type(given.__name__, (part, given), {"__doc__": given.__doc__, "__reduce_ex__": _refuse_to_be_copied})
    result = made.__new__(made)
    own = {name: value for name, value in optimizer.__dict__.items() if name != "step"}  # a scheduler may patch it
    result.__dict__.update(own, **attributes)
    return result


def _refuse_to_be_copied(optimizer: torch.optim.Optimizer, _: Any) -> NoReturn:
    """Refuse copy and pickle, which call this: the copy would get no gradients."""
    raise TypeError(
        f"{type(optimizer).__name__} is a DistributedOptimizer and cannot be copied or pickled: save its state_dict()"
    )
