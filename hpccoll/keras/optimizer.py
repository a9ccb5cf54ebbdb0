# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for Keras: an optimizer whose gradients are reduced before apply() uses them.

The trainers of all backends call apply(): TensorFlow's and torch's directly, JAX's by stateless_apply(). So one class
serves all of them, inside of compiled programs and outside. Later steps of Keras (clipping, the scale of the loss,
decay and averages of weights) use the reduced gradients.
"""
# ruff: noqa: SLF001 - the members of keras.Optimizer that are used here are those that its subclasses per backend use

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from hpccoll import errors
from hpccoll.default_world import is_initialized
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.gradient_step import GradientStep, Kind, either_groups, gradient_step
from hpccoll.frontend.groups import Variables, check_members
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, has_peers, world_of
from hpccoll.frontend.reducer import check_passes
from hpccoll.frontend.reductions import Adasum, Average, Op
from hpccoll.keras.backends import backend, check_no_distribution, reduce_all, uncompiled
from hpccoll.keras.compiling import watch_compile
from hpccoll.keras.values import key_of, path_of

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer"]


@dataclasses.dataclass
class _Given:
    """The arguments of DistributedOptimizer()."""

    step: GradientStep
    local: set[int] = dataclasses.field(default_factory=set)
    """Ids of the variables whose gradients stay on their rank."""


class _Reducing:
    """The methods that override those of the optimizer's class."""

    _given: _Given

    def register_local_var(self, variable: Any) -> None:
        """Leave the gradient of this variable on its rank.

        :param variable: of the model, on all ranks
        """
        self._given.local.add(key_of(variable))

    def exchanges(self) -> bool:
        """Return whether a step exchanges gradients; a single rank does not."""
        process_set = self._given.step.process_set
        return is_initialized() and process_set.included() is not False and has_peers(process_set)

    def build(self, variables: Sequence[Any]) -> None:
        """See keras.optimizers.Optimizer.

        :raises InvalidArgumentError: (a ValueError) `groups` has a variable that is not among them
        """
        check_members(self._given.step.groups, {*map(key_of, variables)}, key_of)
        super().build(variables)  # type: ignore[misc]

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Reduce the gradients, then update the variables as the optimizer does.

        :param grads: one per variable; None: the variable has none, on any rank
        :param trainable_variables: default: those that the optimizer was built with
        """
        me: Any = self
        variables = me._trainable_variables if trainable_variables is None else list(trainable_variables)
        if len(grads) and not me.built:
            with keras.name_scope(me.name):
                me.build(variables)
        super().apply(_reduced(me, list(grads), variables), trainable_variables)  # type: ignore[misc]

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """See keras.optimizers.Optimizer: fit() calls it at its end.

        JAX computes asynchronously, and Keras checks no result in fit(). An error is raised here at the latest.
        """
        failed = _raised_in(sys._getframe(1))
        kept = [variable._value for variable in var_list]  # None: an error came while Keras held it elsewhere
        backend().finish([value for value in kept if value is not None], failed)
        if failed is None:
            super().finalize_variable_values(var_list)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss_scale_factor" and value is None:
            raise errors.InvalidArgumentError(
                "a LossScaleOptimizer or MultiOptimizer around a DistributedOptimizer decides from the gradients of "
                "one rank: wrap it from outside, DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)), "
                "or set keras.config.set_dtype_policy('mixed_float16') before DistributedOptimizer(optimizer), which "
                "then does so"
            )
        super().__setattr__(name, value)


class _ReducingScaled(_Reducing):
    """For a LossScaleOptimizer, which looks for infinities in reduced gradients, so that all ranks find the same."""

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Any:
        """See keras.optimizers.LossScaleOptimizer, whose code for JAX differs from that for other backends."""
        me: Any = self
        reduced = _reduced(me, list(grads), me._trainable_variables)
        return super().stateless_apply(optimizer_variables, reduced, trainable_variables)  # type: ignore[misc]


def _raised_in(frame: Any) -> BaseException | None:
    """Return the exception that propagates through this frame; not one that its caller handles."""
    error = sys.exception()
    place = error.__traceback__ if error else None
    while place is not None and place.tb_frame is not frame:
        place = place.tb_next
    return error if place else None


_VARIABLES = Variables("keras.Variable", lambda one: hasattr(one, "shape"), key_of)


# ---- from gradients to reduced ones ----------------------------------------------------------------------


@uncompiled
def _reduced(optimizer: Any, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
    """Return the gradients for the wrapped optimizer's apply().

    While Keras adds up gradients over several steps, those of a step stay as they are, except in the step that updates:
    there the accumulated gradients are added, the sum is reduced, and the accumulators are cleared.
    """
    check_no_distribution()
    if len(gradients) != len(variables):
        raise errors.InvalidArgumentError(f"{len(gradients)} gradients for {len(variables)} variables")
    places = [
        at
        for at, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if gradient is not None and optimizer._var_key(variable) in optimizer._trainable_variables_indices
    ]
    chosen, owners = [gradients[at] for at in places], [variables[at] for at in places]
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    chosen = _accumulated(optimizer, chosen, owners, steps) if steps else _exchanged(optimizer, chosen, owners)
    for at, gradient in zip(places, chosen, strict=True):
        gradients[at] = gradient
    return gradients


def _accumulated(optimizer: Any, gradients: list[Any], variables: list[Any], steps: int) -> list[Any]:
    keepers = [optimizer._accumulated_gradients[optimizer._get_variable_index(v)] for v in variables]
    kept = [keras.ops.convert_to_tensor(keeper) for keeper in keepers]
    scale = optimizer.loss_scale_factor or 1.0  # Keras divides by it later, and accumulates the quotients
    dense = [backend().dense(gradient) for gradient in gradients]

    def now() -> tuple[list[Any], list[Any]]:
        whole = [
            keras.ops.maximum(g, k * scale) if getattr(v, "overwrite_with_gradient", False) else g + k * scale
            for g, k, v in zip(dense, kept, variables, strict=True)
        ]
        return _exchanged(optimizer, whole, variables), [keras.ops.zeros_like(k) for k in kept]

    def later() -> tuple[list[Any], list[Any]]:
        return dense, kept

    updates = (optimizer._iterations + 1) % steps == 0
    if keras.backend.backend() == "torch":  # without a copy of the accumulators
        if not updates:
            return gradients
        result, left = now()
    else:
        result, left = keras.ops.cond(updates, now, later)
    for variable, value in zip(keepers, left, strict=True):
        variable.assign(value)
    return list(result)


def _exchanged(optimizer: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
    """Combine the gradients of all ranks."""
    given: _Given = optimizer._given
    step, gradients = given.step, list(gradients)
    kinds = [_kind(gradient, variable) for gradient, variable in zip(gradients, variables, strict=True)]
    plan = step.plan(variables, kinds, lambda at: [_label(optimizer, variables[i]) for i in at], given.local)
    for at in {*range(len(gradients))}.difference(*(sent.members for sent in plan.sent)):  # those that stay here
        divisor = (world_of(step.process_set).size if at in plan.divided else 1) / step.postscale
        if divisor != 1 and kinds[at] is not Kind.LARGEST:
            gradients[at] = backend().divided(gradients[at], divisor)
    for sent in plan.sent:
        for at in sent.members:
            if kinds[at] is Kind.SPARSE and not sent.sparse:
                gradients[at] = backend().dense(gradients[at])
    calls = [(sent.call, sent.compression, [gradients[at] for at in sent.members]) for sent in plan.sent]
    for sent, results in zip(plan.sent, reduce_all(calls), strict=True):
        for at, result in zip(sent.members, results, strict=True):
            gradients[at] = result
    return gradients


def _kind(gradient: Any, variable: Any) -> Kind:
    if getattr(variable, "overwrite_with_gradient", False):  # the ranges of float8 values
        return Kind.LARGEST
    return Kind.SPARSE if backend().sparse(gradient) else Kind.DENSE


def _label(optimizer: Any, variable: Any) -> str:
    """Name a variable by its place in the optimizer, and its path."""
    return f"{optimizer._given.step.name}.{optimizer._get_variable_index(variable)} {path_of(variable)}"


# ---- from an optimizer to a distributed one --------------------------------------------------------------


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Op = Average,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like `optimizer` that updates with gradients reduced over the ranks.

    It shares its variables with `optimizer`; do not use both. It is saved as `optimizer` would be, so that a saved
    model loads without hpccoll. With the policy mixed_float16 it scales the loss, as compile() would have it do.

    :param optimizer: a keras.optimizers.Optimizer
    :param name: what the names of the operations begin with; default: "Distributed" and the name of its class
    :param device_dense: has no effect; Horovod has this parameter
    :param device_sparse: has no effect
    :param compression: what gradients travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param sparse_as_dense: make sparse gradients (TensorFlow's IndexedSlices) dense before they are reduced
    :param gradient_predivide_factor: with Average: divide by it before the sum, multiply by it after
    :param op: Average (default), Sum, Min, Max or Product; Adasum, except with the backend jax
    :param num_groups: the old name of `groups`
    :param groups: so many groups of gradients, or lists of variables; a group is reduced all at once
    :param backward_passes_per_step: gradients of so many steps are added up before they are reduced and used, by
        Keras's own gradient_accumulation_steps, which you may set instead
    :param average_aggregated_gradients: divide what was added up by the number of steps, as Keras does; default: the
        sum is used, as in Horovod
    :param process_set: the ranks that reduce together; on other ranks the optimizer works alone
    :param scale_local_gradients: divide gradients that stay on their rank (register_local_var()) by the number of ranks
    :returns: an instance of a subclass of the optimizer's class
    :raises InvalidArgumentError: (a ValueError) this is no optimizer, it is wrapped already, or an argument is wrong
    :raises UnsupportedError: (a ValueError) keras.distribution or tf.distribute is active
    """
    del device_dense, device_sparse
    _check_optimizer(optimizer)
    check_no_distribution()
    watch_compile()
    passes = backward_passes_per_step
    check_passes(passes)
    step = gradient_step(
        name or f"Distributed{type(optimizer).__name__}", _VARIABLES, op=op, compression=compression,
        predivide=gradient_predivide_factor, groups=either_groups(num_groups, groups),
        sparse_as_dense=sparse_as_dense, process_set=process_set, scales_local=scale_local_gradients,
        factor=1 if average_aggregated_gradients else passes,
    )  # fmt: skip
    if step.op is Adasum and keras.backend.backend() == "jax":
        raise errors.UnsupportedError("hpccoll.jax has no Adasum: use Average, or another backend of Keras")
    if optimizer.built:
        check_members(step.groups, {*map(key_of, optimizer._trainable_variables)}, key_of)
    made = _put_before(_scaling(optimizer), passes)
    vars(made)["_given"] = _Given(step)
    return made


def _from_config(made: Any, config: dict[str, Any], custom_objects: Any) -> Any:
    """Return a new optimizer of a configuration that is distributed as this one is, with all variables shared."""
    again = _put_before(made.__class__.from_config(config, custom_objects), passes=1)  # the configuration has them
    vars(again)["_given"] = dataclasses.replace(made._given, local=set())
    return again


def PartialDistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Op = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a DistributedOptimizer that leaves the gradients of some layers on their rank.

    The other parameters, the result and the errors are those of DistributedOptimizer.

    :param local_layers: a layer, or several; they are built, so that their variables are there
    :param scale_local_gradients: divide the gradients of these layers by the number of ranks
    """
    layers = [] if local_layers is None else local_layers if isinstance(local_layers, Iterable) else [local_layers]
    layers = list(layers)
    if not all(isinstance(layer, keras.layers.Layer) for layer in layers):
        raise errors.InvalidArgumentError(f"local_layers is {local_layers!r}: give layers of Keras")
    unbuilt = [layer.name for layer in layers if not layer.built]
    if unbuilt:
        raise errors.InvalidArgumentError(f"local_layers: {', '.join(unbuilt)} not built yet: build the model before")
    made = DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        groups=groups, backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients, process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    for variable in (variable for layer in layers for variable in layer.trainable_variables):
        made.register_local_var(variable)
    return made


def _check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, _Reducing):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        kind = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
        raise errors.InvalidArgumentError(f"optimizer is of {kind}: give a keras.optimizers.Optimizer of Keras 3")


def _scaling(optimizer: Any) -> Any:
    """Do what compile() does with the policy mixed_float16, which would put its LossScaleOptimizer outside."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales or keras.config.dtype_policy().name != "mixed_float16":
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")


def _put_before(optimizer: Any, passes: int) -> Any:
    """Return an optimizer that shares all state with `optimizer`; its class has the methods of _Reducing first."""
    base: Any = type(optimizer)
    part = _ReducingScaled if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else _Reducing
    if passes > 1:
        if optimizer.built or getattr(optimizer, "gradient_accumulation_steps", None) or part is _ReducingScaled:
            raise errors.InvalidArgumentError(
                "backward_passes_per_step is for an optimizer that was not used, does not scale the loss and has no "
                "gradient_accumulation_steps of its own: set gradient_accumulation_steps where you make the optimizer"
            )
        optimizer.gradient_accumulation_steps = passes
    members = {
        "__doc__": base.__doc__,
        "__class__": property(lambda _: base),  # Keras saves an object under the class in __class__
    }
    made: Any = type(base.__name__, (part, base), members)
    result = made.__new__(made)
    vars(result).update(vars(optimizer))
    made.from_config = staticmethod(
        lambda config, custom_objects=None: _from_config(result, config, custom_objects)
    )  # also of an instance
    return result
