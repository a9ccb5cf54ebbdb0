# SPDX-License-Identifier: Apache-2.0
"""interrupted.py STEP SIGNAL program.py ...: runs a program whose last rank gets a signal after STEP steps.

A step ends where the program asks whether to stop. The rank sends itself the signal just before.
"""

import os
import runpy
import sys
from pathlib import Path

import hpccoll
from hpccoll.stopping import Preemption

step, number, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
should_stop = Preemption.should_stop
asked = 0


def interrupted(self: Preemption) -> bool:
    global asked
    asked += 1
    if asked == step and hpccoll.rank() == hpccoll.size() - 1:
        os.kill(os.getpid(), number)
    return should_stop(self)


Preemption.should_stop = interrupted
sys.argv[:] = sys.argv[3:]
sys.path[0] = str(Path(program).parent)
runpy.run_path(program, run_name="__main__")
