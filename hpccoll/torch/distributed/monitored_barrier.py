# SPDX-License-Identifier: Apache-2.0
"""A barrier that names the ranks which did not come, with the words of torch's gloo.

Each rank tells rank 0 that it has come, and rank 0 tells all of them who has not. No rank waits for one that never
comes longer than the time limit.
"""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from hpccoll import _core
from hpccoll.collectives import Handle
from hpccoll.torch.distributed.arguments import moved

__all__ = ["wait_for_all"]

FIRST_TAG = 0xFFF00000
"""Messages of the library have tags of their own; from here on they are those of barriers. Each barrier of a group has
another one, so that none takes a late message of an earlier one."""
TAGS = 0xFFFFF
GRACE = 1.0
"""Seconds beyond the limit in which rank 0's answer may come: its limit ends when the others' does."""

REACHED = "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"


def wait_for_all(core: _core.Set, rank: int, size: int, number: int, seconds: float, wait_all_ranks: bool) -> None:
    """Wait until all ranks have called this.

    :param number: of this barrier in its group
    :param seconds: the time limit
    :param wait_all_ranks: name all missing ranks and not only the first one
    :raises DistBackendError: on all ranks that came, if one did not
    """
    tag = FIRST_TAG + number % TAGS
    if rank:
        missing = _answer_of_rank_0(core, rank, size, tag, seconds)
    else:
        missing = _missing(core, size, tag, seconds, wait_all_ranks)
        answer = torch.tensor([peer in missing for peer in range(size)], dtype=torch.uint8)
        for peer in set(range(1, size)) - set(missing):
            core.send(moved(answer), peer, tag, library=True)
    if missing:
        reached = f"{REACHED.format(rank)}: " if rank else ""
        who = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        failed = f"{who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
        raise dist.DistBackendError(f"[Rank {rank}]: {reached}{failed}")


def _missing(core: _core.Set, size: int, tag: int, seconds: float, wait_all_ranks: bool) -> Sequence[int]:
    """Rank 0: wait for the others; those that have not come in time."""
    deadline = time.monotonic() + seconds
    receives = [_receive(core, torch.empty(1, dtype=torch.uint8), peer, tag) for peer in range(1, size)]
    missing = [peer for peer, handle in enumerate(receives, 1) if not _arrives(handle, deadline - time.monotonic())]
    return missing if wait_all_ranks else missing[:1]


def _answer_of_rank_0(core: _core.Set, rank: int, size: int, tag: int, seconds: float) -> Sequence[int]:
    core.send(moved(torch.zeros(1, dtype=torch.uint8)), 0, tag, library=True)
    answer = torch.empty(size, dtype=torch.uint8)
    if not _arrives(_receive(core, answer, 0, tag), seconds + GRACE):
        raise dist.DistBackendError(f"[Rank {rank}]: {REACHED.format(rank)}: no answer in {seconds * 1000:.0f} ms")
    return [int(peer) for peer in answer.nonzero()]


def _receive(core: _core.Set, into: torch.Tensor, peer: int, tag: int) -> Handle:
    return core.recv(moved(into), peer, tag, exact=True, library=True)


def _arrives(handle: Handle, seconds: float) -> bool:
    """Wait for a message for so long; say whether it has come."""
    try:
        handle.wait(max(seconds, 0.0))
    except TimeoutError:
        return False
    return True
