# SPDX-License-Identifier: Apache-2.0
"""Variables and objects from one rank to all."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.objects import allgather_object as gather_objects
from hpccoll.frontend.objects import broadcast_object as send_object
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in
from hpccoll.frontend.variables import compare_variables
from hpccoll.tensorflow.adapter import tensor_of
from hpccoll.tensorflow.dispatch import OPERATIONS
from hpccoll.tensorflow.own_errors import public

__all__ = [
    "BroadcastGlobalVariablesHook", "allgather_object", "broadcast_", "broadcast_global_variables",
    "broadcast_object", "broadcast_object_fn", "broadcast_variables", "check_variables",
]  # fmt: skip


@public
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Give the values of the root's variables to all ranks, in place.

    :param variables: tf.Variables, or those of Keras: as many on all ranks, each with the same shape and dtype
    :param root_rank: global rank of the root, also within a process set
    :param name: the prefix of all names
    :param process_set: the ranks that take part
    :returns: tensors of the new values; in a graph, evaluating one of them runs the broadcast
    :raises MismatchError: the ranks have other variables
    :raises HpccollError: see allreduce
    """
    variables = list(variables)
    assigned = broadcast_variables(variables, root_rank, process_set, inplace=True, name=name)
    with tf.control_dependencies([] if assigned is None else [assigned]):
        return [_value_of(variable) for variable in variables]


def _value_of(variable: Any) -> Any:
    """Read the current value of a variable: converting a variable of TensorFlow 1 gives an earlier value."""
    return variable.read_value() if isinstance(variable, tf.Variable) else tf.identity(tensor_of(variable))


@public
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
    *,
    name: str | None = None,
) -> Any:
    """Give the values of the root's variables to all ranks, before the first step or after a checkpoint was read.

    :param variables: those of a model or an optimizer: as many on all ranks, each with the same shape and dtype
    :param root_rank: global rank of the root, also within a process set
    :param process_set: the ranks that take part
    :param inplace: has no effect: each variable is always assigned its new value
    :param name: the prefix of all names; default "broadcast_variables"
    :returns: None; in a graph the operation that assigns the values
    :raises MismatchError: the ranks have other variables
    :raises HpccollError: see allreduce
    """
    del inplace
    variables, name = list(variables), name or "broadcast_variables"
    if not tf.executing_eagerly():
        root_in(process_set, root_rank)
        return _assign_in_graph(variables, root_rank, name, process_set)
    values = [tensor_of(variable) for variable in variables]
    check_variables(values, variables, name, process_set, root_rank)
    root_in(process_set, root_rank)
    handles = [
        OPERATIONS.requests.broadcast(f"{name}[{i}]", value, root_rank, process_set, in_place=False)
        for i, value in enumerate(values)
    ]
    for variable, result in zip(variables, wait_for_all(handles), strict=True):
        variable.assign(result)
    return None


def _assign_in_graph(variables: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet) -> Any:
    return tf.group(
        *(
            variable.assign(OPERATIONS.run_broadcast(tensor_of(variable), root_rank, f"{name}[{i}]", process_set))
            for i, variable in enumerate(variables)
        )
    )


@public
def broadcast_global_variables(root_rank: int) -> Any:
    """Give the values of all of the root's variables to all ranks, in a graph of a session.

    :param root_rank: rank of the root
    :returns: the operation to run
    :raises NotDefinedError: (a RuntimeError) TensorFlow executes eagerly, and knows no such collection
    """
    if tf.executing_eagerly():
        raise errors.NotDefinedError(
            "broadcast_global_variables() is for graphs of sessions: use broadcast_variables(model.variables, root)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives the root's variables to all ranks when a tf.compat.v1.train.MonitoredTrainingSession begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        """
        :param root_rank: rank of the root
        :param device: not used
        """  # noqa: D205, D212
        super().__init__()
        del device
        self.root_rank = root_rank
        self._assigned: Any = None

    def begin(self) -> None:
        self._assigned = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._assigned)


def check_variables(
    values: Sequence[Any], variables: Sequence[Any], name: str, process_set: ProcessSet, root_rank: int
) -> None:
    """Compare the dtypes and shapes of the ranks' variables, and the root.

    :param values: the values of the variables, as tensors or NumPy arrays
    :param variables: the variables, whose names the error contains
    :param name: the name of the operation
    :param process_set: the ranks that compare
    :param root_rank: what the program gave for it
    :raises MismatchError: the ranks have other variables; the same error on all of them
    """
    mine = [f"{tf.as_dtype(value.dtype).name}{list(value.shape)}" for value in values]
    here = [getattr(variable, "path", variable.name) for variable in variables]
    compare_variables(name, mine, f"{name}.variables", process_set, here, root_rank)


@public
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give the root's object to all ranks of the process set.

    :param obj: anything that pickle can send, or cloudpickle if that is installed; only the root's counts
    :param root_rank: global rank of the root, also within a process set
    :param session: has no effect; Horovod has this parameter
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: `obj` itself on the root, a copy of the root's on the other ranks
    :raises ObjectError: the root's object cannot be pickled, or not unpickled on this rank
    :raises InvalidArgumentError: (a ValueError) the root or this rank is not in the process set
    """
    del session
    return send_object(obj, root_rank, name, process_set)


@public
def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Return broadcast_object() with all arguments but the object.

    :param root_rank: global rank of the root, also within a process set
    :param session: has no effect; Horovod has this parameter
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: a function of the object
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


@public
def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Collect one object of each rank of the process set.

    :param obj: anything that pickle can send, or cloudpickle if that is installed
    :param session: has no effect; Horovod has this parameter
    :param name: matches the calls of different ranks, in any order; calls without a name match by their order
    :param process_set: the ranks that take part
    :returns: the objects, in the order of the ranks; a rank that has joined has none
    :raises ObjectError: an object cannot be pickled, or not unpickled on this rank
    :raises InvalidArgumentError: (a ValueError) this rank is not in the process set
    """
    del session
    return gather_objects(obj, name, process_set)
