# SPDX-License-Identifier: Apache-2.0
"""Tapes whose gradients are those of all ranks."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.gradient_step import GradientStep, either_groups, gradient_step
from hpccoll.frontend.groups import Groups
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Average, Op
from hpccoll.tensorflow.own_errors import public
from hpccoll.tensorflow.reducing import VARIABLES, combine

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


class _Distributed:
    """The methods that are added to the class of a tape."""

    _hpccoll_step: GradientStep
    _hpccoll_local: dict[int, Any]

    @public
    def register_local_source(self, source: Any) -> None:
        """Keep the gradient of a variable on this rank.

        :param source: the variable
        """
        self._hpccoll_local[id(source)] = source

    @public
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        """Compute the gradients, and combine them over the ranks.

        :param target: see tf.GradientTape
        :param sources: see tf.GradientTape
        :param output_gradients: see tf.GradientTape
        :param options: see tf.GradientTape; and `use_generic_names=True`: gradients are named by their positions in
            `sources`, because variables have other names on other ranks
        :returns: the gradients, in the form of `sources`
        """
        generic = options.pop("use_generic_names", False)
        gradients = super().gradient(target, sources, output_gradients, **options)  # type: ignore[misc]
        combined = combine(
            self._hpccoll_step, tf.nest.flatten(gradients), tf.nest.flatten(sources), self._hpccoll_local,
            generic_names=generic,
        )  # fmt: skip
        return tf.nest.pack_sequence_as(sources, combined)

    @public
    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], output_gradients: Any = None, **options: Any
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Compute the gradients as gradient() does, and say which have stayed on this rank.

        :param target: see gradient()
        :param sources: variables
        :param output_gradients: see gradient()
        :param options: see gradient()
        :returns: pairs of a variable and its gradient: those that have stayed, then those of all ranks
        """
        gradients = self.gradient(target, sources, output_gradients, **options)
        pairs = list(zip(sources, gradients, strict=True))
        return (
            [pair for pair in pairs if id(pair[0]) in self._hpccoll_local],
            [pair for pair in pairs if id(pair[0]) not in self._hpccoll_local],
        )


@functools.cache
def _class_of(base: type) -> type:
    return type(base.__name__, (_Distributed, base), {})


def DistributedGradientTape(  # noqa: N802 - Horovod's name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    op: Op = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups[Any] = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make a tape whose gradient() combines the gradients of all ranks.

    :param gradtape: a tf.GradientTape, before or after it has recorded
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param sparse_as_dense: turn a tf.IndexedSlices into a dense tensor first
    :param op: Average (default), Sum, Adasum, Min, Max or Product
    :param gradient_predivide_factor: with Average: divide by it before the sum, and by the rest after it
    :param num_groups: deprecated: as `groups`
    :param groups: the number of groups of gradients, or lists of variables; the gradients of a group are finished
        together. None: no groups; the library still fuses small gradients
    :param process_set: the ranks that take part
    :param scale_local_gradients: divide the gradients that stay on their rank by the number of ranks
    :returns: a tape of the class of `gradtape`, with register_local_source()
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or the tape is distributed already
    """
    del device_dense, device_sparse
    if not isinstance(gradtape, tf.GradientTape):
        raise errors.InvalidArgumentError(f"gradtape is {gradtape!r}, no tf.GradientTape")
    if "_hpccoll_step" in vars(gradtape):
        raise errors.InvalidArgumentError("the tape is a DistributedGradientTape already")
    step = gradient_step(
        "gradient", VARIABLES, op=op, compression=compression, predivide=gradient_predivide_factor,
        groups=either_groups(num_groups, groups), sparse_as_dense=sparse_as_dense, process_set=process_set,
        scales_local=scale_local_gradients,
    )  # fmt: skip
    base: Any = type(gradtape)
    cls: Any = _class_of(base)
    made = cls.__new__(cls)
    made.__dict__ = gradtape.__dict__  # both tapes have one recording
    made._hpccoll_step = step  # noqa: SLF001
    made._hpccoll_local = {}  # noqa: SLF001
    return made


def PartialDistributedGradientTape(  # noqa: N802 - Horovod's name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    op: Op = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups[Any] = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make a DistributedGradientTape that keeps the gradients of some layers on their rank.

    The other parameters are those of DistributedGradientTape().

    :param gradtape: a tf.GradientTape
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: see DistributedGradientTape()
    :param sparse_as_dense: see DistributedGradientTape()
    :param op: see DistributedGradientTape()
    :param gradient_predivide_factor: see DistributedGradientTape()
    :param num_groups: see DistributedGradientTape()
    :param groups: see DistributedGradientTape()
    :param process_set: the ranks that take part
    :param local_layers: layers of Keras, or one
    :param scale_local_gradients: see DistributedGradientTape()
    :returns: the tape
    :raises InvalidArgumentError: (a ValueError) an argument is wrong
    """
    layers: Sequence[Any] = (
        [] if local_layers is None else [local_layers] if hasattr(local_layers, "trainable_weights") else local_layers
    )
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise errors.InvalidArgumentError(f"local_layers is {local_layers!r}: a list of Keras layers")
    made = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
        groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_source(variable)
    return made
