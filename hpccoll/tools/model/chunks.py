# SPDX-License-Identifier: Apache-2.0
"""The cuts of a batch: rails, chunks and the number of chunks in flight, as in ext/transport.

hierarchy.c chooses the rails, allreduce.c the size of a chunk, layout.c (shm) how many chunks a node holds. All nodes
have the same number of ranks here, and the same cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpccoll.tools.model.messages import SIZES, ceil_div

SHARD_BYTES = 256 << 10
"""Bytes on the wire of a rail's shard of a chunk, where the node can hold it."""
FEW_NODES, LEAST_SHARD_BYTES = 8, 40 << 10
"""On more nodes a chunk is half as long, if a shard keeps so many bytes on the wire."""
RAIL_BYTES = 64 << 10
REGION_MOST, REGIONS_BYTES, PAGE = 2 << 20, 56 << 20, 4096
LEAST_DEPTH, DEPTH_WITH_NET = 4, 8
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
    shard: int
    """Elements that a rail has of a full chunk."""


def region_bytes(per_node: int) -> int:
    """Bytes of one rank in the node's segment."""
    step = LEAST_DEPTH * PAGE
    return min(REGIONS_BYTES // (per_node + 1) // step * step, REGION_MOST)


def cut(count: int, dtype: str, wire: str, per_node: int, rails: int = 0, chunk_bytes: int = 0, nodes: int = 2) -> Cut:
    """Cut a batch of `count` elements that goes between nodes.

    :param wire: the dtype between nodes, as HPCCOLL_WIRE makes it
    :param rails: HPCCOLL_RAILS
    :param chunk_bytes: HPCCOLL_CHUNK_BYTES
    """
    size, region = SIZES[dtype], region_bytes(per_node)
    most = region // LEAST_DEPTH
    rails = max(1, min(rails or most // RAIL_BYTES, per_node))
    wanted = max(1, chunk_bytes // size) if chunk_bytes else SHARD_BYTES // SIZES[wire] * rails
    limit = most // size
    if not chunk_bytes and nodes > FEW_NODES and limit // 2 * SIZES[wire] >= LEAST_SHARD_BYTES * rails:
        limit //= 2
    chunk = min(wanted, limit)
    stride = max(1, ceil_div(min(chunk, count) * size, PAGE)) * PAGE
    depth = min(region // stride, DEPTH_WITH_NET)
    unit = ALIGNMENT // SIZES[wire]
    length = min(chunk, count)
    shard = min(length, ceil_div(ceil_div(length, unit), rails) * unit)
    return Cut(rails, chunk, max(1, ceil_div(count, chunk)), depth, shard if rails > 1 else length)
