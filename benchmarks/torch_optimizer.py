# SPDX-License-Identifier: Apache-2.0
"""How long do ResNet-50's 161 gradients take from the hooks of a torch optimizer until all are reduced?

Each library is used as its users do: DistributedOptimizer of hpccoll and Horovod, DistributedDataParallel over Gloo.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from harness import TINY, Case, main
from libraries import Gloo, Library
from shapes import resnet50
from torch_gradients import Parameters, Step, ddp_for, optimizer_for

Hook = Callable[[Any, Any], Any]
"""A communication hook of DDP: (state, bucket) -> future of the reduced bucket."""


def alone(model: Parameters) -> Step:
    """Return a step with the backward pass alone, which all variants have in common."""

    def step() -> None:
        model.forget()
        model().backward()

    return step


def with_optimizer(library: Library, model: Parameters, fp16: bool) -> Step:
    optimizer = optimizer_for(library, model, fp16)

    def step() -> None:
        model.forget()
        model().backward()
        optimizer.synchronize()

    return step


def with_ddp(library: Library, model: Parameters, fp16: bool, hook: Hook | None = None) -> Step:
    ddp = ddp_for(library, model, fp16)
    if hook is not None:
        ddp.register_comm_hook(None, hook)

    def step() -> None:
        model.forget()
        ddp().backward()

    return step


def reductions(
    library: Library, shapes: list[tuple[str, tuple[int, ...]]], label: str, reduced: Callable[..., Step]
) -> Iterator[Case]:
    """Yield a case for each wire type, of steps that `reduced` makes."""
    for variant, fp16, tolerance in (("fp32", False, 1e-5), ("fp16", True, 1e-2)):
        model = Parameters(shapes)
        step = reduced(library, model, fp16)
        yield Case(variant, label, step, model.verifier(step, tolerance), model.nbytes)


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    shapes = resnet50()[-8:] if options.size == TINY else resnet50()
    label = f"{len(shapes)} gradients"
    model = Parameters(shapes)
    yield Case("backward alone", label, alone(model), lambda: None, model.nbytes)
    yield from reductions(library, shapes, label, with_ddp if isinstance(library, Gloo) else with_optimizer)


if __name__ == "__main__":
    main(__doc__ or "", cases)
