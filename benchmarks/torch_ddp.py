# SPDX-License-Identifier: Apache-2.0
"""How long do ResNet-50's 161 gradients take under DistributedDataParallel, over hpccoll and over Gloo?

DDP copies gradients into buckets and back whatever the backend does; "nothing sent" is that, with a hook that sends
nothing. What a way takes beyond it is its communication.
"""

import argparse
from collections.abc import Iterator

from harness import TINY, Case, main
from libraries import Library
from shapes import resnet50
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch_gradients import Parameters
from torch_optimizer import alone, with_ddp


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    shapes = resnet50()[-8:] if options.size == TINY else resnet50()
    label = f"{len(shapes)} gradients, DDP"
    model = Parameters(shapes)
    size = sum(memory.nbytes for memory in model.memory)
    yield Case("backward alone", label, alone(model), lambda: None, size)
    step = with_ddp(library, Parameters(shapes), False, noop_hook)
    yield Case("nothing sent", label, step, lambda: None, size)
    for variant, fp16, tolerance in (("fp32", False, 1e-5), ("fp16", True, 1e-2)):
        model = Parameters(shapes)
        step = with_ddp(library, model, fp16)
        yield Case(variant, label, step, model.verifier(step, tolerance), size)


if __name__ == "__main__":
    main(__doc__ or "", cases)
