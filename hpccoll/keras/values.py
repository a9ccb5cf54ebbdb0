# SPDX-License-Identifier: Apache-2.0
"""Values and variables between ranks, outside of the gradients of an optimizer."""

import re
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from hpccoll import errors
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.reductions import Average, Op, choose
from hpccoll.frontend.variables import all_built, compare_variables
from hpccoll.keras.backends import backend, reduce_all

__all__ = [
    "allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_model", "broadcast_variables",
    "reducescatter",
]  # fmt: skip

_NUMBERED = re.compile(r"_\d+(?=/|$)")
"""The suffix that Keras adds to the name of a layer; it depends on earlier models of this process."""
_VARIABLES = "hpccoll.keras.variables"


def _is_tensor(value: Any) -> bool:
    return bool(keras.backend.is_keras_tensor(value) or keras.ops.is_tensor(value))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, keras.Variable) else value


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Op | None = None,
    compression: Compressor = NoneCompressor,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Combine the values of all ranks element by element.

    :param value: a tensor of the backend, also inside of a compiled program; or a number, list or NumPy array: the same
        shape and dtype on all ranks
    :param name: matches the calls of different ranks; inside of compiled programs give one
    :param average: deprecated: True for op=Average, False for op=Sum
    :param prescale_factor: factor of each rank's value
    :param postscale_factor: factor of the result
    :param op: Average (default), Sum, Min, Max or Product
    :param compression: what tensors of floating-point values travel as
    :param process_set: the ranks that take part
    :returns: the result: a tensor for a tensor, else NumPy
    :raises HpccollError: what is wrong on this rank is a ValueError
    """
    chosen, value = choose(op, average), _plain(value)
    if not _is_tensor(value):
        array = np.asarray(value)
        if chosen is Average and not np.issubdtype(array.dtype, np.inexact):
            array = array.astype(np.float64)
        return world_of(process_set).allreduce(
            array, chosen, name=name, prescale=prescale_factor, postscale=postscale_factor,
        )  # fmt: skip
    if name is None and compression is NoneCompressor:
        return backend().operations().allreduce(
            value, op=chosen, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
            process_set=process_set,
        )  # fmt: skip
    call = Allreduce(
        name or "keras.allreduce", chosen, prescale_factor, postscale_factor, process_set, group=False
    )  # fmt: skip
    (result,) = reduce_all([(call, compression, [keras.ops.copy(value)])])[0]
    return result


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenate the values of all ranks along their first dimension.

    :param value: as for allreduce(); the first dimension may differ between ranks, except inside of compiled programs
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the rows of all ranks, in the order of the ranks: a tensor for a tensor, else NumPy
    """
    value = _plain(value)
    if not _is_tensor(value):
        return world_of(process_set).allgather(np.asarray(value), name=name)
    return backend().operations().allgather(value, name=name, process_set=process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Give the root's value to all ranks.

    :param value: as for allreduce()
    :param root_rank: global rank of the root, also within a process set
    :param name: matches the calls of different ranks
    :param process_set: the ranks that take part
    :returns: the root's value: a tensor for a tensor, else NumPy
    """
    value = _plain(value)
    if not _is_tensor(value):
        root = root_in(process_set, root_rank)
        return world_of(process_set).broadcast(np.asarray(value), root, name=name)
    return backend().operations().broadcast(value, root_rank, name=name, process_set=process_set)


def reducescatter(
    value: Any, name: str | None = None, op: Op = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Combine the values of all ranks; each rank gets its share of the rows.

    :param value: as for allreduce(), with at least one dimension
    :param name: matches the calls of different ranks
    :param op: Average (default), Sum, Min, Max or Product
    :param process_set: the ranks that take part
    :returns: this rank's rows of the result: a tensor for a tensor, else NumPy
    """
    value = _plain(value)
    if not _is_tensor(value):
        chosen = choose(op)
        return world_of(process_set).reducescatter(np.asarray(value), chosen, name=name)
    return backend().operations().reducescatter(value, name=name, op=op, process_set=process_set)


# ---- variables -------------------------------------------------------------------------------------------


def broadcast_variables(
    variables: Iterable[Any], root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Give the root's values to the variables of all ranks; outside of compiled programs.

    :param variables: of a model or an optimizer: as many on all ranks, with the same shapes and dtypes
    :param root_rank: global rank of the root, also within a process set
    :param process_set: the ranks that take part
    :raises MismatchError: the ranks have other variables
    """
    present = [variable for variable in variables if variable is not None]
    world = world_of(process_set)
    if world.size == 1:
        root_in(process_set, root_rank)
        return
    forms = [_form(variable) for variable in present]
    compare_variables("broadcast of variables", forms, f"{_VARIABLES}.forms", process_set, root_rank=root_rank)
    root = root_in(process_set, root_rank)
    given = [np.array(keras.ops.convert_to_numpy(variable), order="C") for variable in present]
    handles = [world.broadcast_async(array, root, name=f"{_VARIABLES}.{at}") for at, array in enumerate(given)]
    for variable, result in zip(present, wait_for_all(handles), strict=True):
        if world.rank != root:
            variable.assign(result)


def broadcast_model(model: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
    """Give the root's weights and the variables of its optimizer to the models of all ranks, before the first step.

    The states of random numbers (of Dropout, say) stay those of each rank.

    :param model: a built keras.Model; its optimizer is built where it is not
    :param root_rank: global rank of the root, also within a process set
    :param process_set: the ranks that take part
    :raises InvalidArgumentError: (a ValueError) the model has no variables yet
    :raises MismatchError: the ranks have other models
    """
    if not all_built(model):
        raise errors.InvalidArgumentError(
            f"{model.name} is not built: call it, or model.build(), before broadcast_model()"
        )
    broadcast_variables(variables_of(model), root_rank, process_set)


def variables_of(model: Any) -> list[Any]:
    """Return the weights of a built model and the variables of its optimizer, which is built."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return list(model.weights)
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return [*model.weights, *optimizer.variables]


def broadcast_global_variables(root_rank: int) -> None:
    """Raise NotDefinedError, a RuntimeError: Keras has no list of all variables, as TensorFlow's graphs had.

    :param root_rank: global rank of the root
    """
    raise errors.NotDefinedError(
        f"Keras keeps no list of global variables: call broadcast_model(model, {root_rank}), or give fit() the "
        f"callback BroadcastGlobalVariablesCallback({root_rank})"
    )


def key_of(variable: Any) -> int:
    """Return what tells variables apart; with TensorFlow a keras.Variable and the tf.Variable inside are the same."""
    inside = keras.backend.backend() == "tensorflow" and isinstance(variable, keras.Variable)
    return id(variable.value if inside else variable)  # value is a method of a tf.Variable: a new object each time


def path_of(variable: Any) -> str:
    """Return the names of a variable and its layer, without the numbers that Keras counts: the same on all ranks.

    What comes before them in the path differs: a model that was loaded from a file does not have its own name there.
    """
    return "/".join(_NUMBERED.sub("", str(getattr(variable, "path", variable.name))).split("/")[-2:])


def _form(variable: Any) -> str:
    """Describe the properties that must be the same on all ranks.

    The name of an optimizer's variable has the whole path of the model's before the last "_".
    """
    *layer, name = path_of(variable).split("/")
    short = "/".join([*layer, name.rsplit("_", 1)[-1]])
    return f"{short} {keras.backend.standardize_dtype(variable.dtype)}{list(variable.shape)}"
