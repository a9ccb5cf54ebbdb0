# SPDX-License-Identifier: Apache-2.0
"""Backend "hpccoll" of torch.distributed, and a communication hook for DDP over any backend.

backend.py         registers the backend with torch
rendezvous.py      how the ranks of a process group find each other
process_group.py   torch's process group over a World; arguments.py converts what torch passes
sparse.py          sums of sparse tensors
monitored_barrier.py   a barrier that names the missing ranks
by_name.py         functions of torch that would serve other backends only
work.py            torch's Work over handles; futures.py is its future, whose callbacks may call collectives
ddp_hook.py        DDP's gradients through hpccoll while the program keeps its backend

docs/with-ddp.md shows how programs use it.
"""

from hpccoll.torch.distributed import ddp_hook
from hpccoll.torch.distributed.backend import register

__all__ = ["ddp_hook", "register"]
