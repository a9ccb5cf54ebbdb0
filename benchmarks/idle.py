# SPDX-License-Identifier: Apache-2.0
"""What does an idle minute cost a rank: messages, context switches, CPU seconds?

Every thread of the process counts. The main thread sleeps in the kernel all the time.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np
from harness import COMM, TINY, Case, main
from libraries import Hpccoll
from mpi4py import MPI


def usage(library: Hpccoll) -> np.ndarray:
    """Return [messages, context switches, CPU seconds] of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    stats = library.hpccoll.world().stats()
    messages = stats["control_messages_local"] + stats["control_messages_net"] + stats["net_sent_messages"]
    return np.array([messages, used.ru_nvcsw + used.ru_nivcsw, used.ru_utime + used.ru_stime])


def cases(library: Hpccoll, options: argparse.Namespace) -> Iterator[Case]:
    seconds = 1.0 if options.size == TINY else options.idle
    library.hpccoll.allreduce(np.ones(1000))
    time.sleep(0.5)  # until the effects of the operation are over
    before = usage(library)

    def figures(_: float) -> dict[str, float]:
        used = (usage(library) - before).astype(np.float64)
        COMM.Allreduce(MPI.IN_PLACE, used, MPI.MAX)  # of the busiest rank
        messages, switches, cpu = used
        return {
            "messages": messages,
            "switches a second": switches / seconds,
            "% of a core": 100 * cpu / seconds,
        }

    yield Case("asleep", f"{seconds:g} s", lambda: time.sleep(seconds), lambda: None, once=True, figures=figures)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--idle", type=float, default=60, help="seconds")


if __name__ == "__main__":
    main(__doc__ or "", cases, add_arguments)
