# SPDX-License-Identifier: Apache-2.0
"""The cuts of a batch: rails, chunks and the number of chunks in flight, as in ext/transport.

hierarchy.c chooses the rails, allreduce.c the size of a chunk, layout.c (shm) how many chunks a node holds. All nodes
have the same number of ranks here, and the same cuts.
"""

from dataclasses import dataclass

from hpccoll.tools.model.messages import SIZES, ceil_div

SHARD_BYTES = 256 << 10
"""Bytes on the wire of a rail's shard of a chunk, where the node can hold it."""
FEW_NODES, LEAST_SHARD_BYTES = 8, 40 << 10
"""On more nodes a chunk is half as long, or the ranks take turns, if a shard keeps so many bytes on the wire."""
TURN_BYTES = 192 << 10
"""Bytes of a chunk on the wire, at most, if the ranks take turns."""
RAIL_BYTES = 64 << 10
CHUNK_MOST, CHUNKS_BYTES, PAGE = 512 << 10, 56 << 20, 4096
SLOTS, RESULTS = 3, 6
"""The longest chunks for which a node has space: of each rank's input, and of the sum."""
LONGEST_UNDER_WAY, FEW_UNDER_WAY, TURNS_UNDER_WAY = 4, 8, 16
ALIGNMENT = 64


@dataclass(frozen=True)
class Cut:
    """The cut of one batch."""

    rails: int
    chunk: int
    """Elements of a chunk."""
    chunks: int
    depth: int
    """Chunks that are under way at once."""
    slots: int
    """Chunks of which a rank's input is in the segment at once."""
    shard: int
    """Elements that a rail has of a full chunk."""
    turns: bool
    """Whether the ranks take turns: one rank drives a whole chunk, the next rank the next one."""


def longest_bytes(per_node: int) -> int:
    """Bytes of the longest chunk that a node can hold."""
    return min(CHUNKS_BYTES // (SLOTS * per_node + RESULTS) // PAGE * PAGE, CHUNK_MOST)


def pages(nbytes: int) -> int:
    """Return the bytes of so many whole pages, at least one."""
    return max(1, ceil_div(nbytes, PAGE)) * PAGE


def length_of(
    count: int, dtype: str, wire: str, rails: int, turns: bool, longest: int, nodes: int, shard_bytes: int
) -> int:
    """Return the elements of a chunk, if the user does not set them.

    :param longest: bytes of the longest chunk that a node can hold
    """
    limit = longest // SIZES[dtype]
    if turns:
        rounds = ceil_div(ceil_div(count, min(TURN_BYTES // SIZES[wire], limit)), rails)
        unit = ALIGNMENT // SIZES[wire]
        return min(ceil_div(ceil_div(count, rounds * rails), unit) * unit, limit)
    if nodes > FEW_NODES and limit // 2 * SIZES[wire] >= LEAST_SHARD_BYTES * rails:
        limit //= 2
    return min(shard_bytes // SIZES[wire] * rails, limit)


def rails_of(per_node: int, rails: int) -> int:
    """Return the ranks of a node that drive the network; `rails`: HPCCOLL_RAILS."""
    return max(1, min(rails or longest_bytes(per_node) // RAIL_BYTES, per_node))


def shard_of(length: int, wire: str, rails: int, turns: bool) -> int:
    """Return the elements that the first rail has of a chunk."""
    unit = ALIGNMENT // SIZES[wire]
    return length if turns or rails == 1 else min(length, ceil_div(ceil_div(length, unit), rails) * unit)


def cut(
    count: int, dtype: str, wire: str, per_node: int, rails: int = 0, chunk_bytes: int = 0, nodes: int = 2,
    shard_bytes: int = SHARD_BYTES, up_a_tree: bool = False,
) -> Cut:  # fmt: skip
    """Cut a batch of `count` elements that goes between nodes.

    :param wire: the dtype between nodes, as HPCCOLL_WIRE makes it
    :param rails: HPCCOLL_RAILS
    :param chunk_bytes: HPCCOLL_CHUNK_BYTES
    :param shard_bytes: of a rail's shard of a chunk, at most; a reduce up a tree may take less
    :param up_a_tree: it has few messages, so the ranks take no turns
    """
    size, longest = SIZES[dtype], longest_bytes(per_node)
    rails = rails_of(per_node, rails)
    turns = not up_a_tree and nodes > FEW_NODES and rails > 1 and count * SIZES[wire] >= LEAST_SHARD_BYTES * rails
    if chunk_bytes:
        chunk = min(max(1, chunk_bytes // size), longest // size)
    else:
        chunk = length_of(count, dtype, wire, rails, turns, longest, nodes, shard_bytes)
    length = min(chunk, count)
    if turns:
        depth = min(RESULTS * longest // pages(length * SIZES[wire]), TURNS_UNDER_WAY)
    else:
        depth = min(LONGEST_UNDER_WAY * longest // pages(length * size), FEW_UNDER_WAY)
    slots = min(SLOTS * longest // pages(length * size), depth)
    shard = shard_of(length, wire, rails, turns)
    return Cut(rails, chunk, max(1, ceil_div(count, chunk)), depth, slots, shard, turns)
