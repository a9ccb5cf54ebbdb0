# SPDX-License-Identifier: Apache-2.0
"""TorchState: a model, an optimizer, samplers and objects, committed and restored together.

A handler saves, restores and synchronizes objects of one class. Programs may register their own handlers.
"""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from hpccoll import errors
from hpccoll.default_world import current
from hpccoll.elastic import ObjectState
from hpccoll.elastic.sampler import ElasticSampler
from hpccoll.elastic.values import check_alike, checked_names
from hpccoll.torch.horovod.attributes import load_exactly
from hpccoll.torch.horovod.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler", "StateHandler", "TorchState",
    "get_handler_registry", "set_handler_registry",
]  # fmt: skip


class StateHandler:
    """Saves, restores and synchronizes one object."""

    source = 0
    """The rank that has the newest commit; TorchState sets it before sync()."""
    keeps_two = False
    """Whether rollback() will be asked for, because the state has sharded values."""

    def __init__(self, value: Any) -> None:
        """:param value: the object"""
        self.value = value

    def save(self) -> None:
        """Keep a copy in host memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take the object of the rank `self.source`; all ranks call this together."""
        raise NotImplementedError

    def rollback(self) -> None:
        """Forget the last copy: restore() goes back to the one before."""
        raise errors.UnsupportedError(f"{type(self).__name__} defines no rollback(): sharded values need it")

    def set_value(self, value: Any) -> None:
        """Replace the object."""
        self.value = value
        self.save()

    def committed(self) -> Any:
        """Give the copy, for a file."""
        raise NotImplementedError

    def take(self, commit: Any) -> None:
        """Continue from the result of committed() in another run."""
        raise NotImplementedError


class _DictHandler(StateHandler):
    """Handles an object with state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self._older: Any = None
        self.save()

    def save(self) -> None:
        if self.keeps_two:
            self._saved, self._older = self._older, self._saved
        self._saved = _copied(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def rollback(self) -> None:
        self._saved, self._older = self._older, self._saved

    def committed(self) -> Any:
        return self._saved

    def take(self, commit: Any) -> None:
        self._saved = commit
        self.restore()


class ModelStateHandler(_DictHandler):
    """Handles a torch.nn.Module."""

    def restore(self) -> None:
        """See StateHandler: in place, as load_state_dict() copies."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=self.source)


class OptimizerStateHandler(_DictHandler):
    """Handles a torch.optim.Optimizer."""

    def restore(self) -> None:
        load_exactly(self.value, copy.deepcopy(self._saved))

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=self.source)


class SamplerStateHandler(_DictHandler):
    """Handles an ElasticSampler."""

    def sync(self) -> None:
        found = current().broadcast_object(self.value.state_dict(), self.source, name="hpccoll.elastic.sampler")
        self.value.load_state_dict(found)


Registry = list[tuple[type, Callable[[Any], StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Return the classes with their handlers; the first matching class counts."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace the classes that have handlers.

    :param registry: pairs of a class and a function that makes the handler of an object of it
    """
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """The state of a training: `TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)`."""

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        path: str | Path = "",
        every: int = 1,
        sharded: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """Make an attribute of each argument.

        :param model: its parameters and buffers are committed in host memory
        :param optimizer: a DistributedOptimizer, or any other
        :param path: see hpccoll.elastic.State
        :param every: see hpccoll.elastic.State
        :param sharded: names of arguments that differ between ranks; see hpccoll.elastic.ObjectState
        :param objects: a Module, an Optimizer, an ElasticSampler, or any other object that pickle takes
        """
        named = {"model": model, "optimizer": optimizer, **objects}
        named = {name: value for name, value in named.items() if value is not None or name in objects}
        self._handlers: dict[str, StateHandler] = {}
        plain = {}
        for name, value in named.items():
            if (handler := _handler(value)) is None:
                plain[name] = value
            else:
                self._handlers[name] = handler
        names = checked_names(ObjectState, sharded, named)
        super().__init__(path=path, every=every, sharded=[name for name in names if name in plain], **plain)
        self.sharded = names
        for name, handler in self._handlers.items():
            super().__setattr__(name, handler.value)
            handler.keeps_two = bool(names)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_handlers" and name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for name, handler in self._handlers.items():
            handler.source = self.source
            if name not in self.sharded:
                handler.sync()
        super().sync()

    def rollback(self) -> None:
        for handler in self._handlers.values():
            handler.rollback()
        super().rollback()

    def _samplers(self) -> list[ElasticSampler]:
        handled = (handler.value for handler in self._handlers.values())
        return [value for value in handled if isinstance(value, ElasticSampler)] + super()._samplers()

    def committed(self) -> Any:
        return super().committed(), {name: handler.committed() for name, handler in self._handlers.items()}

    def take(self, commit: Any) -> None:
        objects, handled = commit
        check_alike(handled, self._handlers)
        super().take(objects)
        for name, handler in self._handlers.items():
            handler.take(handled[name])


def _handler(value: Any) -> StateHandler | None:
    for kind, make in _registry:
        if isinstance(value, kind):
            return make(value)
    return None


def _copied(value: Any, old: Any) -> Any:
    """Return a copy in host memory; it reuses the memory of `old` if that has the same form."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.layout is not torch.strided:
            return value.cpu().clone()
        fits = isinstance(old, torch.Tensor) and (old.shape, old.dtype) == (value.shape, value.dtype)
        if not fits or old.stride() != value.stride():  # fused optimizers need their state's order in memory
            old = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
        return old.copy_(value)
    if isinstance(value, dict):
        olds = old if isinstance(old, dict) else {}
        made = type(value)() if type(value).__module__ == "collections" else {}
        made.update({key: _copied(one, olds.get(key)) for key, one in value.items()})
        return made
    if isinstance(value, list):
        before = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
        return [_copied(one, other) for one, other in zip(value, before, strict=True)]
    return copy.deepcopy(value)
