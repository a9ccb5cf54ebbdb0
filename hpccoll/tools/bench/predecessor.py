# SPDX-License-Identifier: Apache-2.0
"""The same step under the predecessor's control plane, counted by its published rules.

Horovod 0.21 and later, MPI controller (`controller.cc`, `response_cache.cc`, `mpi_controller.cc`):

- every tick, 1 ms by default and also when nothing is pending, one MPI_Allreduce of a bit vector over all ranks:
  3 status bits and one bit for every cached tensor, in 64-bit words;
- if any rank has a tensor that is not cached, four more collectives: MPI_Gather of lengths, MPI_Gatherv of the
  requests to rank 0, MPI_Bcast of the length, MPI_Bcast of the responses; rank 0 holds and reads p request lists.

Collectives are counted as MPI libraries do them at these sizes: allreduce by recursive doubling (ranks beyond the
largest power of two are folded in: two messages each), gather and broadcast over a binomial tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

FIXED_BYTES = 48
"""Bytes of a request or response besides its name and shape: a few integers and table offsets."""


@dataclass(frozen=True)
class Count:
    """The cost of one step for all ranks together, and for rank 0 alone."""

    messages: int
    """Messages of all ranks."""
    bytes: int
    """Bytes of all messages."""
    chain: int
    """Longest chain of dependent messages."""
    root_bytes: int
    """Bytes of requests that rank 0 receives and keeps at once."""


def bit_vector(ranks: int, cached: int) -> Count:
    """Count one tick: the allreduce of the bit vector. The memory of a rank does not grow with p."""
    doublings = ranks.bit_length() - 1
    folded = ranks - 2**doublings
    messages = 2**doublings * doublings + 2 * folded
    size = 8 * ceil((3 + cached) / 64)
    return Count(messages, messages * size, doublings + 2 * bool(folded), 0)


def first_announcement(ranks: int, names: Sequence[tuple[str, int]]) -> Count:
    """Count the tick in which nothing is cached yet; `names` are (name, dimensions) of every tensor."""
    tick = bit_vector(ranks, 0)
    requests = sum(len(name) + 8 * ndim + FIXED_BYTES for name, ndim in names)
    depth = ceil(log2(ranks))
    # In a binomial tree a rank forwards all that it has gathered: at level l the ranks 2^l, 3 * 2^l, 5 * 2^l, ...
    passed_on = (
        min(2**level, ranks - sender) for level in range(depth) for sender in range(2**level, ranks, 2 ** (level + 1))
    )
    gathered = requests * sum(passed_on)
    broadcast = (ranks - 1) * (requests + 4)
    return Count(
        messages=tick.messages + 4 * (ranks - 1),
        bytes=tick.bytes + gathered + 4 * (ranks - 1) + broadcast,
        chain=tick.chain + 4 * depth,
        root_bytes=(ranks - 1) * requests,
    )
