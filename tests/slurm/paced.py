# SPDX-License-Identifier: Apache-2.0
"""paced.py program.py ...: runs a program that sleeps where it asks whether to stop.

A job that only waits for its time limit then leaves the processors to the other tests.
"""

import runpy
import sys
import time
from pathlib import Path

from hpccoll.stopping import Preemption

should_stop = Preemption.should_stop


def rested(self: Preemption) -> bool:
    time.sleep(0.3)
    return should_stop(self)


Preemption.should_stop = rested
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
