# SPDX-License-Identifier: Apache-2.0
"""The key-value store of a job without MPI, for its rendezvous; its launcher keeps it.

Each rank has an authenticated connection (hpccoll.channel). Each question is one message, and so is its answer;
hpccoll.rendezvous.launcher_store is the client.
"""

import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from hpccoll.channel import Channel
from hpccoll.launch_protocol import LONGEST
from hpccoll.tools.launch.listener import Listener


class StoreServer:
    """Values by their keys. The caller enters `listener`; a rank needs its `variable`."""

    def __init__(self, addresses: Iterable[str], secret: str = "") -> None:
        """Begin to listen.

        :param addresses: addresses of this machine that the ranks can reach
        :param secret: shared with the ranks; "": a new one
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
