# SPDX-License-Identifier: Apache-2.0
"""Names of requests: operation and name, so that a broadcast and an allreduce of one tensor do not collide.

A request whose tensor has no name has none either: hpccoll matches such requests by their order, also after a join.
"""

from __future__ import annotations

__all__ = ["member", "part", "request"]


def request(operation: str, name: str | None) -> str | None:
    """Return the name of a request: "allreduce.weights". An empty name is no name, as in Horovod."""
    return f"{operation}.{name}" if name else None


def member(name: str | None, index: int, count: int) -> str | None:
    """Return the name of one tensor of a group that is several requests: "weights_1of3"."""
    return f"{name}_{index + 1}of{count}" if name else None


def part(name: str | None, what: str) -> str | None:
    """Return the name of one of the requests of an operation: "weights.gradient"."""
    return f"{name}.{what}" if name else None
