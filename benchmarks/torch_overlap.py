# SPDX-License-Identifier: Apache-2.0
"""How much of the communication of a training step hides behind its backward pass?

A step runs forward and backward through LAYERS dense layers, or MANY small ones, and reduces all gradients, with
DistributedOptimizer (hpccoll, Horovod) or DistributedDataParallel (Gloo). The hidden communication is the time that
computing and communicating together take less than one after the other, as a share of the communication. Dense layers
compute on this rank's core. The layers of a device only wait, like the host of an accelerator, so the communication has
the core for itself.
"""

import argparse
from collections.abc import Callable, Iterator

import torch
from harness import TINY, Case, Remembered, main
from libraries import Gloo, Library
from torch_gradients import Parameters, ddp_for, optimizer_for

LAYERS, MANY = 20, 50
PAUSE = 1e-3  # seconds, of each of the two parameters of a layer


def network(side: int, depth: int = LAYERS) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(side, side) for _ in range(depth)]
    return torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))


def stepper(library: Library | None, model: torch.nn.Module, *inputs: torch.Tensor) -> Callable[[], None]:
    """Return a step: forward, backward, and with a library the reduction of the gradients."""
    optimizer = ddp = None
    if isinstance(library, Gloo):
        ddp = ddp_for(library, model, fp16=False)
    elif library is not None:
        optimizer = optimizer_for(library, model, fp16=False)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        (ddp or model)(*inputs).sum().backward()
        if optimizer is not None:
            optimizer.synchronize()

    return step


def compared(library: Library, label: str, model: torch.nn.Module, *inputs: torch.Tensor) -> Iterator[Case]:
    """Yield the cases: computing alone, communicating alone, both."""
    parts = Parameters([(name, tuple(p.shape)) for name, p in model.named_parameters()])
    size = parts.nbytes
    medians = Remembered()

    def hidden(seconds: float) -> dict[str, float]:
        exposed = seconds - medians["compute"]
        return {"hidden": 1 - exposed / medians["communicate"], "exposed ms": exposed * 1e3}

    compute = stepper(None, model, *inputs)
    yield Case("compute", label, compute, lambda: None, size, figures=medians.figures("compute"))
    communicate = stepper(library, parts)
    verify = parts.verifier(communicate, 1e-5)
    yield Case("communicate", label, communicate, verify, size, figures=medians.figures("communicate"))
    both = stepper(library, model, *inputs)
    yield Case("both", label, both, lambda: None, size, figures=hidden)


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    side, batch = (32, 2) if options.size == TINY else (1024, 64)
    model = network(side)
    waiting = Parameters([(name, tuple(p.shape)) for name, p in model.named_parameters()], PAUSE)
    yield from compared(library, f"{LAYERS} dense layers", model, torch.randn(batch, side))
    yield from compared(library, f"{LAYERS} layers of a device", waiting)
    side, batch = (32, 2) if options.size == TINY else (96, 256)
    yield from compared(library, f"{MANY} small layers", network(side, MANY), torch.randn(batch, side))


if __name__ == "__main__":
    main(__doc__ or "", cases)
