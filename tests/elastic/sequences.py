# SPDX-License-Identifier: Apache-2.0
"""A state of an elastic job under every sequence of calls on all ranks, compared with a model of all ranks."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS = ("sync", "commit", "restore", "reset")


class Model:
    """The value of each rank, and its value after restore()."""

    def __init__(self, values: list[int], sharded: bool) -> None:
        self.live, self.kept, self.sharded = values, values, sharded

    def call(self, name: str, source: int) -> None:
        if name == "sync" and not self.sharded:
            self.live = [self.live[source]] * len(self.live)
        if name in ("sync", "commit"):
            self.kept = self.live
        elif name == "restore":
            self.live = self.kept


def check(
    state: Any, rank: int, size: int, write: Callable[[int], None], read: Callable[[], Any], length: int = 3
) -> None:
    """Call all sequences of this length one after the other, with other values on each rank before each call.

    :param write: sets all values of the state, or of one form of it, to a number
    :param read: returns the values by name; values that differ between ranks are those of state.sharded
    """
    wrong, step = [], 0
    for calls in itertools.product(CALLS, repeat=length):
        models = {name: Model([step] * size, name in state.sharded) for name in read()}
        write(step)
        state.save()
        for at, name in enumerate(calls):
            step += 1
            source = state.source = step % size
            write(step % 97 * size + rank)
            getattr(state, name)()
            found = read()
            for value, model in models.items():
                model.live = [step % 97 * size + other for other in range(size)]
                model.call(name, source)
                if not np.all(np.asarray(found[value]) == model.live[rank]):
                    wrong.append((calls[: at + 1], value, found[value], model.live[rank]))
        step %= 97
    assert not wrong, f"{len(wrong)} values are wrong; the first (calls, name, found, expected): {wrong[0]}"
