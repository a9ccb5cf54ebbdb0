# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

ARRIVALS: dict[str, int]

def resnet50() -> list[tuple[str, tuple[int, ...]]]: ...

class Fleet:
    def __init__(
        self, nodes: int, per_node: int, fanout: int, requests: Sequence[tuple[str, Sequence[tuple[int, ...]]]]
    ) -> None: ...
    def step(self, arrival: str) -> dict[str, float]: ...
