# SPDX-License-Identifier: Apache-2.0
"""A rank of `hpccoll.run`: gets the function, calls it, and sends back what it returned or raised."""

import pickle
import platform
import sys
import traceback
from typing import Any

from hpccoll import channel, detect, inherited
from hpccoll.tools.launch.function import CALLER, LARGEST, pickler


def main() -> int:
    """Call the function.

    :returns: the exit status of this rank: 0, or 1 if the function raised
    """
    env = inherited.environment()
    place = detect.place(env)
    rank, size = (place.rank or 0, place.size or 1) if place else (0, 1)
    secret, addresses = channel.parse(env[CALLER])
    caller = channel.connect(addresses, secret)
    caller.send(pickle.dumps((rank, size)))
    task = caller.receive(LARGEST)
    value, error = call(task)
    caller.send(answer(value, error))
    caller.receive()  # the caller has the result, so this rank may end now
    return 1 if error else 0


def call(task: bytes) -> tuple[Any, Any]:
    """Unpickle the function and call it.

    :returns: its result, and None or the failure: the host, the traceback as text, the pickled exception
    """
    try:
        function, args, kwargs = pickle.loads(task)
        return function(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - sys.exit() gives no result, too
        return None, problem(error)


def problem(error: BaseException) -> tuple[str, str, bytes]:
    """Describe an exception for the process that called `hpccoll.run`."""
    text = "".join(traceback.format_exception(error))
    try:
        return platform.node(), text, pickler().dumps(error)
    except Exception:  # noqa: BLE001 - pickling an exception may raise any exception
        return platform.node(), text, b""


def answer(value: Any, error: Any) -> bytes:
    """Pickle the result; a result that cannot be pickled is an error."""
    try:
        return bytes(pickler().dumps((value, error)))
    except Exception as refused:  # noqa: BLE001 - as above
        return pickle.dumps((None, problem(refused)))


if __name__ == "__main__":
    sys.exit(main())
