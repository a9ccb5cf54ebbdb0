# SPDX-License-Identifier: Apache-2.0
"""Other load beside the ranks: processes that do nothing but compute, on every core that the ranks of a host may use.

The first rank of each host starts them. They end with it however it ends: each looks several times a second whether its
parent is still that rank.
"""

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

from hpccoll.tools.bench.ranks import Ranks

MOST = 16
"""Processes per core at most."""
PROGRAM = """
import os, sys
parent, core = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
while os.getppid() == parent:
    for _ in range(200_000):
        pass
"""


@contextlib.contextmanager
def beside(ranks: Ranks, per_core: int) -> Iterator[int]:
    """Keep a number of processes per core busy; all ranks call this together.

    :returns: the number of processes of all hosts
    """
    if not per_core:
        yield 0
        return
    hosts = ranks.share((platform.node(), sorted(os.sched_getaffinity(0))))
    mine = [cores for host, cores in hosts if host == platform.node()]
    first = [host for host, _ in hosts].index(platform.node()) == ranks.rank
    cores = sorted({core for several in mine for core in several}) if first else []
    with contextlib.ExitStack() as stack:
        for core in cores * per_core:
            stack.callback(_ended, _started(core))
        yield sum(ranks.share(len(cores) * per_core))


def _started(core: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", "-c", PROGRAM, str(os.getpid()), str(core)], stdin=subprocess.DEVNULL
    )


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
