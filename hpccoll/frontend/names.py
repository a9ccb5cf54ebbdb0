# SPDX-License-Identifier: Apache-2.0
"""What a request is called: operation and name, so that a broadcast and an allreduce of one tensor do not collide.

Requests without a name stay so: hpccoll matches them by their order, also after a join.
"""

from __future__ import annotations

__all__ = ["member", "part", "request"]


def request(operation: str, name: str | None) -> str | None:
    """Name of a request: "allreduce.weights". An empty one is none, as in Horovod."""
    return f"{operation}.{name}" if name else None


def member(name: str | None, index: int, count: int) -> str | None:
    """Name of one tensor of a group that is several requests: "weights_1of3"."""
    return f"{name}_{index + 1}of{count}" if name else None


def part(name: str | None, what: str) -> str | None:
    """Name of one of the requests that an operation is made of: "weights.gradient"."""
    return f"{name}.{what}" if name else None
