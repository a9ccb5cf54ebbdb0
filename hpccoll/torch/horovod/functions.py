# SPDX-License-Identifier: Apache-2.0
"""Horovod's functions for the state of a training: broadcasts of parameters and optimizers."""

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hpccoll import errors, objects
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, root_in, world_of
from hpccoll.frontend.variables import compare_named
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.horovod.attributes import load_exactly
from hpccoll.torch.horovod.operations import broadcast_async_

__all__ = ["broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give the root's parameters to all ranks, in place.

    :param params: model.state_dict(), model.named_parameters() or model.parameters(); None is left out
    :param root_rank: global rank of the root, also within a process set
    :param process_set: the ranks that take part
    :raises InvalidArgumentError: (a ValueError) `params` is none of these
    :raises MismatchError: (a RuntimeError) the ranks have other parameters: names, shapes or dtypes differ. The text
        names those that differ, and the ranks
    """
    given = _given(params)
    forms = {"params": f"a {type(params).__name__}"} if given is None else _forms(given)
    compare_named("broadcast_parameters", {"root_rank": repr(root_rank), **forms}, "broadcast_parameters", process_set)
    if given is None:
        raise errors.InvalidArgumentError(f"parameters are a dict or a list, not {type(params)}")
    handles: list[Any] = [broadcast_async_(tensor, root_rank, name, process_set) for name, tensor in given]
    wait_for_all(handles)


def _given(params: Any) -> list[tuple[Any, Any]] | None:
    """Return the parameters that are there with their names, or None for those without; None: no dict and no list."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items(), key=lambda pair: str(pair[0]))
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor):
        pairs = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        return None
    return [(name, tensor) for name, tensor in pairs if tensor is not None]


def _forms(given: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """Describe what must be the same on all ranks, for each parameter under its name, or its place without one."""
    return {
        f"parameter {at if name is None else repr(name)}": _form_of(tensor) for at, (name, tensor) in enumerate(given)
    }


def _form_of(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor) or torch.nn.parameter.is_lazy(tensor):
        return f"a {type(tensor).__name__}"
    usual = tensor.layout is torch.strided and (tensor.is_cpu or tensor.is_cuda)
    return f"{ADAPTER.dtype(tensor)}{list(tensor.shape)}" + ("" if usual else f" {tensor.layout} on {tensor.device}")


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give the state and the options of the root's optimizer to all ranks.

    The other ranks' optimizers need no state before: the form of the root's state is sent first, then its tensors. As
    in Horovod, all gradients are zero afterwards on a rank whose optimizer had no state; but no step is made.

    :param optimizer: of the same class on all ranks
    :param root_rank: global rank of the root, also within a process set
    :param model: to find the sparse gradients of SGD: those of its embeddings with sparse=True
    :param process_set: the ranks that take part
    :raises ObjectError: (a RuntimeError) the root's options cannot be pickled
    :raises MismatchError: (a RuntimeError) the ranks have optimizers of other classes or other groups of parameters
    """
    forms = {"root_rank": repr(root_rank), "optimizer": f"of class {type(optimizer).__name__}"}
    is_one = isinstance(optimizer, torch.optim.Optimizer)
    for at, group in enumerate(optimizer.param_groups if is_one else ()):
        forms[f"param_groups[{at}]"] = f"a group of {len(group['params'])} parameters"
    compare_named("broadcast_optimizer_state", forms, "optimizer_state.groups", process_set)
    if not is_one:
        raise errors.InvalidArgumentError(f"optimizer is {optimizer!r}: give a torch.optim.Optimizer")
    if not optimizer.state_dict()["state"]:
        _zero_gradients(optimizer, model)
    tensors: list[torch.Tensor] = []
    core, root = world_of(process_set).core, root_in(process_set, root_rank)
    form = objects.broadcast(
        core, optimizer, root, "optimizer_state.form", lambda o: pickle.dumps(_form(o.state_dict(), tensors))
    )
    state = None if core.rank == root else _fill(form, tensors)
    broadcast_parameters(
        {f"optimizer_state.{i:06}": tensor for i, tensor in enumerate(tensors)}, root_rank, process_set
    )
    if state is not None:
        load_exactly(optimizer, state)


def _zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    """Give each trainable parameter a gradient of zeros, which is sparse if backward() would make it sparse."""
    sparse: set[torch.Tensor] = set()
    if model is not None and isinstance(optimizer, torch.optim.SGD):
        embeddings = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.sparse]
        sparse.update(p for m in embeddings for p in m.parameters())
    for p in (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad):
        p.grad = torch.zeros_like(p, requires_grad=False)
        if isinstance(optimizer, torch.optim.SparseAdam) or p in sparse:
            p.grad = p.grad.to_sparse(min(p.dim(), 1))


def _form(state: Any, tensors: list[torch.Tensor]) -> bytes:
    """Pickle `state` without the values of its tensors, which go to `tensors`."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if not isinstance(obj, torch.Tensor):
                return None
            tensors.append(obj.detach())
            strided = obj.layout is torch.strided
            order = torch.empty_like(obj, device="meta").stride() if strided else None  # dense, also for a view
            return tuple(obj.shape), obj.dtype, obj.device.type, order

    data = io.BytesIO()
    Pickler(data).dump(state)
    return data.getvalue()


def _fill(form: bytes, tensors: list[torch.Tensor]) -> Any:
    """Undo _form() with new tensors, without values, in the same order.

    Their dimensions have the root's order in memory: fused optimizers go through a parameter's state in that order.
    """

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> torch.Tensor:
            shape, dtype, device, order = pid
            made = torch.empty(shape, dtype=dtype, device=device)
            tensors.append(made if order is None else made.as_strided(shape, order))
            return tensors[-1]

    return Unpickler(io.BytesIO(form)).load()
