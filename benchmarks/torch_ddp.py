# SPDX-License-Identifier: Apache-2.0
"""How long do ResNet-50's 161 gradients take under DistributedDataParallel, over hpccoll and over Gloo?

DDP copies gradients into buckets and back with every backend. "nothing sent" measures only these copies, with a hook
that sends nothing; the additional time of another variant is its communication.
"""

import argparse
from collections.abc import Iterator

from harness import TINY, Case, main
from libraries import Library
from shapes import resnet50
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch_gradients import Parameters
from torch_optimizer import alone, reductions, with_ddp


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    shapes = resnet50()[-8:] if options.size == TINY else resnet50()
    label = f"{len(shapes)} gradients, DDP"
    model = Parameters(shapes)
    yield Case("backward alone", label, alone(model), lambda: None, model.nbytes)
    step = with_ddp(library, Parameters(shapes), False, noop_hook)
    yield Case("nothing sent", label, step, lambda: None, model.nbytes)
    yield from reductions(library, shapes, label, with_ddp)


if __name__ == "__main__":
    main(__doc__ or "", cases)
