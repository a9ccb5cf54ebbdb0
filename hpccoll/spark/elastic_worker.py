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

    What the function raises also ends this process, as in a program: so the other ranks learn that this one has raised,
    and go on without it.

    :returns: the exit status, 0
    """
    env = inherited.environment()
    secret, addresses = channel.parse(env[CALLER])
    caller = channel.connect(addresses, secret)
    caller.send(pickle.dumps((int(env[WORKER]), 0)))
    function, args, kwargs = pickle.loads(caller.receive(LARGEST))
    try:
        value = function(*args, **kwargs)
        shutdown()
    except BaseException as raised:
        if isinstance(raised, SystemExit) and not raised.code:
            return 0  # the job has released this worker
        caller.send(answer(None, problem(raised)))  # the driver raises it if the job cannot go on
        caller.receive()
        raise
    caller.send(answer(value, None))
    caller.receive()
    return 0


if __name__ == "__main__":
    sys.exit(main())
