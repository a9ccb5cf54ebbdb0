# SPDX-License-Identifier: Apache-2.0
"""The store in which ranks meet that another system starts (Ray, Spark): that of `hpccoll run --launcher ssh`."""

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from typing import Self

from hpccoll import config
from hpccoll.channel import parse
from hpccoll.rendezvous.launcher_store import STORE
from hpccoll.tools.launch.direct.places import variables_of_ranks
from hpccoll.tools.launch.direct.store import StoreServer
from hpccoll.tools.launch.listener import addresses_towards

__all__ = ["JobStore", "variables_at"]


class JobStore:
    """Keeps the store of one job while it is a context, or between `open` and `close`."""

    def __init__(self, hosts: Iterable[str], secret: str = "") -> None:
        """Begin to listen.

        :param hosts: addresses of the machines of the ranks: the store listens on the routes to them
        :param secret: what only the ranks know; "": a new one
        """
        self._listener = StoreServer(addresses_towards(hosts), secret).listener
        self.text = self._listener.variable
        """What a rank needs to connect; secret."""

    def open(self) -> Self:
        """Begin to answer."""
        self._listener.__enter__()
        return self

    def close(self) -> None:
        """Stop. Connections that there are stay until the rank closes them."""
        self._listener.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def variables_at(store: str, machines: Sequence[Hashable], starter: str) -> list[dict[str, str]]:
    """Make the variables by which each rank finds the store and knows its place; they are secret.

    :param store: the `text` of the JobStore
    :param machines: of each rank what names its machine
    :param starter: what starts the ranks, for the line at the start
    """
    secret, _ = parse(store)
    job = hashlib.sha256(secret.encode()).hexdigest()[:8]
    shared = {STORE: store, config.SECRET: secret}
    return [{**place, **shared} for place in variables_of_ranks(machines, job, starter)]
