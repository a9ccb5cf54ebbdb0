# SPDX-License-Identifier: Apache-2.0
"""The store for the rendezvous of ranks that Ray or Spark starts; that of `hpccoll run --launcher ssh`."""

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from typing import Self

from hpccoll import inherited
from hpccoll.channel import parse
from hpccoll.launch_protocol import STORE
from hpccoll.tools.launch.direct.places import variables_of_ranks
from hpccoll.tools.launch.direct.store import StoreServer
from hpccoll.tools.launch.listener import addresses_towards

__all__ = ["JobStore", "variables_at"]


class JobStore:
    """Keeps the store of one job while it is a context, or between `open` and `close`."""

    def __init__(self, hosts: Iterable[str], secret: str = "") -> None:
        """Begin to listen.

        :param hosts: addresses of the machines of the ranks: the store listens on the routes to them
        :param secret: known only to the ranks; "": a new one
        """
        self._listener = StoreServer(addresses_towards([*hosts]), secret).listener
        self.text = self._listener.variable
        """The text that a rank needs to connect; secret."""

    def open(self) -> Self:
        """Begin to answer."""
        self._listener.__enter__()
        return self

    def close(self) -> None:
        """Stop. Open connections stay until the rank closes them."""
        self._listener.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def variables_at(store: str, machines: Sequence[Hashable], starter: str) -> list[dict[str, str]]:
    """Make the variables with which each rank finds the store and its rank and node; they are secret.

    :param store: the `text` of the JobStore
    :param machines: for each rank a name of its machine
    :param starter: the name of the system that starts the ranks, for the line at the start
    """
    secret, _ = parse(store)
    job = hashlib.sha256(secret.encode()).hexdigest()[:8]
    shared = {STORE: store, inherited.SECRET: secret}
    return [{**place, **shared} for place in variables_of_ranks(machines, job, starter)]
