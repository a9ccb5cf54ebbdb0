# SPDX-License-Identifier: Apache-2.0
"""A worker of an elastic job of Spark: receives the function, calls it, and sends back its result or exception."""

import pickle
import sys

from hpccoll import channel, inherited
from hpccoll.default_world import shutdown
from hpccoll.launch_protocol import WORKER
from hpccoll.tools.launch.call import answer, problem
from hpccoll.tools.launch.function import CALLER, LARGEST


def main() -> int:
    """Call the function, and shut the World down.

    :returns: the exit status: 0, or 1 if the function raised
    """
    env = inherited.environment()
    secret, addresses = channel.parse(env[CALLER])
    caller = channel.connect(addresses, secret)
    caller.send(pickle.dumps((int(env[WORKER]), 0)))
    function, args, kwargs = pickle.loads(caller.receive(LARGEST))
    value, error = None, None
    try:
        value = function(*args, **kwargs)
        shutdown()
    except SystemExit as end:
        if not end.code:
            return 0  # the job has released this worker
        error = problem(end)
    except BaseException as raised:  # noqa: BLE001 - the driver raises it
        error = problem(raised)
    caller.send(answer(value, error))
    caller.receive()
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
