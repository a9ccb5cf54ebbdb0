# SPDX-License-Identifier: Apache-2.0
"""The store in which the ranks of a job without MPI meet, kept by its launcher.

Each rank has an authenticated connection (hpccoll.channel) and sends one message per question, which is answered by
one: hpccoll.rendezvous.launcher_store has the other end.
"""

import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from hpccoll.channel import Channel
from hpccoll.rendezvous.launcher_store import LONGEST
from hpccoll.tools.launch.listener import Listener


class StoreServer:
    """Values by their keys. The caller enters `listener`, whose `variable` is what a rank needs."""

    def __init__(self, addresses: Iterable[str], secret: str = "") -> None:
        """Begin to listen.

        :param addresses: addresses of this machine that the ranks can reach
        :param secret: what the ranks know; "": a new one
        """
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self.listener = Listener(addresses, self._serve, secret)

    def _serve(self, channel: Channel) -> None:
        while True:
            question = json.loads(channel.receive(LONGEST))
            channel.send(json.dumps(self._answer(question)).encode())

    def _answer(self, question: dict[str, Any]) -> Any:
        with self._changed:
            if "set" in question:
                self._values[str(question["set"])] = str(question["value"])
                self._changed.notify_all()
                return True
            if "get" in question:
                return self._values.get(str(question["get"]))
            keys = [str(key) for key in question["check"]]
            until = time.monotonic() + float(question["seconds"])
            while not (there := all(key in self._values for key in keys)):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return there
