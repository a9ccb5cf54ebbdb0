# SPDX-License-Identifier: Apache-2.0
"""DistributedTrainer for Gluon, DistributedOptimizer for modules, and a broadcast of parameters."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import mxnet as mx

from hpccoll import errors
from hpccoll.frontend.compression import Compressor, NoneCompressor, check_compressor
from hpccoll.frontend.gradient_step import Kind, gradient_step
from hpccoll.frontend.gradients import Gradients
from hpccoll.frontend.groups import Variables, is_number_of_groups
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.parameters import distributed_gradients
from hpccoll.frontend.process_sets import ProcessSet, check_process_set, global_process_set
from hpccoll.frontend.reductions import Average
from hpccoll.frontend.variables import compare_variables
from hpccoll.mxnet.adapter import ADAPTER
from hpccoll.mxnet.operations import OPERATIONS

__all__ = ["DistributedOptimizer", "DistributedTrainer", "broadcast_parameters"]


class DistributedTrainer(mx.gluon.Trainer):
    """A gluon.Trainer that steps with gradients averaged over the ranks.

    :param params: as for gluon.Trainer
    :param optimizer: as for gluon.Trainer, its name or an optimizer, not a DistributedOptimizer
    :param optimizer_params: as for gluon.Trainer
    :param compression: what gradients travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param gradient_predivide_factor: divide by it before the sum, multiply by it after
    :param prefix: the beginning of the names of gradients; trainers that step at the same time need different ones
    :param num_groups: so many groups of gradients; a group is reduced all at once; 0: a group for each gradient
    :param process_set: the ranks that reduce together; on other ranks the trainer steps alone
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        compression: Compressor = NoneCompressor,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer takes the optimizer out of the DistributedOptimizer", stacklevel=2)
            optimizer = optimizer.optimizer
        check_compressor(compression)
        check_process_set(process_set)
        _check_groups(num_groups)
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._how: dict[str, Any] = {
            "compression": compression, "passes": 1, "op": Average, "predivide": gradient_predivide_factor,
            "groups": num_groups or len(self._params), "sparse_as_dense": False, "process_set": process_set,
        }  # fmt: skip
        self._prefix = prefix or ""
        self._gradients: Gradients[Any, Any] | None = None
        self._prepared = False

    def _allreduce_grads(self) -> None:
        """Average the gradients of all ranks; gluon.Trainer calls this once per step, when all are computed."""
        if not self._prepared:  # parameters may get their shapes in the first forward pass
            named = [(f"{self._prefix}{at}", parameter) for at, parameter in enumerate(self._params)]
            self._gradients = distributed_gradients(ADAPTER, self._params, named, **self._how)
            self._prepared = True
        if self._gradients is not None:
            for parameter in reversed(self._params):  # as the backward pass computes them
                ADAPTER.computed(parameter)
            self._gradients.synchronize()


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer for `mx.mod.Module` that averages each gradient over the ranks before it updates.

    :param optimizer: any mx.optimizer.Optimizer
    :param gradient_predivide_factor: divide by it before the sum, multiply by it after
    :param num_groups: so many groups of the gradients that one call updates; a group is reduced all at once; 0: a group
        for each gradient. The first call raises a MismatchError if the ranks have different numbers
    :param process_set: the ranks that reduce together
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer) or not isinstance(optimizer, mx.optimizer.Optimizer):
            raise errors.InvalidArgumentError(f"optimizer is a {type(optimizer).__name__}: give an mx.optimizer one")
        _check_groups(num_groups)
        self.optimizer = optimizer
        self._step = gradient_step(
            "gradient", Variables("int", lambda one: isinstance(one, int)), op=Average, compression=NoneCompressor,
            predivide=gradient_predivide_factor, groups=num_groups or None, sparse_as_dense=False,
            process_set=process_set,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped optimizer, such as its learning rate."""
        return getattr(self.__dict__["optimizer"], name)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradients, in place, then update."""
        self._reduce(index, grad)
        self.optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradients, in place, then update."""
        self._reduce(index, grad)
        self.optimizer.update_multi_precision(index, weight, grad, state)

    def _reduce(self, index: Any, grad: Any) -> None:
        indices, grads = (index, grad) if isinstance(index, tuple | list) else ([index], [grad])
        step = self._step if self._step.groups else dataclasses.replace(self._step, groups=len(grads))
        plan = step.plan(indices, [Kind.DENSE] * len(grads), lambda at: [f"{step.name}.{indices[i]}" for i in at])
        handles = [
            OPERATIONS.requests.begin(call, [grads[at] for at in members], in_place=True)
            for members, call, *_ in plan.sent
        ]
        wait_for_all(handles)


def _check_groups(num_groups: int) -> None:
    if num_groups and not is_number_of_groups(num_groups):
        raise errors.InvalidArgumentError(f"num_groups is {num_groups!r}: a number of groups, or 0")


def _of_the_optimizer(name: str) -> Any:
    return lambda self, *args: getattr(self.optimizer, name)(*args)


for _name in ("create_state", "create_state_multi_precision", "set_learning_rate", "set_lr_mult", "set_wd_mult"):
    setattr(DistributedOptimizer, _name, _of_the_optimizer(_name))


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Give the root's parameters to all ranks, in place.

    A parameter whose shape is not known yet is broadcast when MXNet initialises it.

    :param params: what `Module.get_params()` or `Block.collect_params()` gives: arrays or parameters by name
    :param root_rank: the rank that has the values
    :param prefix: the beginning of the names of the operations
    :raises InvalidArgumentError: (a ValueError) `params` is none of these
    :raises MismatchError: the ranks have parameters of other names
    """
    if not isinstance(params, Mapping | mx.gluon.ParameterDict):
        raise errors.InvalidArgumentError(f"parameters are a dict of arrays or parameters, not {type(params)}")
    names = f"{prefix or ''}names of parameters"
    compare_variables("broadcast_parameters", sorted(params), names, global_process_set, root_rank=root_rank)
    handles: list[Any] = []
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        try:
            tensor = ADAPTER.values(value) if isinstance(value, mx.gluon.Parameter) else value
        except mx.gluon.parameter.DeferredInitializationError:
            value._init_impl = _then_broadcast(value, root_rank, name)  # noqa: SLF001 - MXNet has no hook for it
            continue
        handles.append(OPERATIONS.broadcast_async_(tensor, root_rank, name))
    wait_for_all(handles)


def _then_broadcast(parameter: Any, root_rank: int, name: str) -> Any:
    initialise = parameter._init_impl  # noqa: SLF001

    def both(*args: Any, **kwargs: Any) -> None:
        initialise(*args, **kwargs)
        OPERATIONS.broadcast_(ADAPTER.values(parameter), root_rank, name)

    return both
