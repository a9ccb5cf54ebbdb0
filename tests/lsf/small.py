# SPDX-License-Identifier: Apache-2.0
"""small.py [STEPS FILE [PATH]]: the program of the jobs here.

Each rank says where it is. With a file, whose length is the number of steps done, the ranks go on from there until they
have done STEPS or are told to stop; then they ask to run again, with PATH as their search path.
"""

import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

import hpccoll
from hpccoll import detect

world = hpccoll.init()
place, job = detect.place(os.environ), detect.allocation(os.environ)
total = hpccoll.allreduce(np.full(1000, world.rank + 1.0))[0]
said = f"{place.launcher}, {place.rank} of {place.size}, {place.local_rank} of {place.local_size}"
print(f"<{world.rank} of {world.size} on {platform.node()} of {world.cross_size}: {total:g}>", end=" ")
print(f"<{said}; {' '.join(job.hosts)}>", flush=True)
if len(sys.argv) > 2:
    os.environ["PATH"] = sys.argv[3] if len(sys.argv) > 3 else os.environ["PATH"]
    steps = Path(sys.argv[2])
    done = int(hpccoll.broadcast(np.array([steps.stat().st_size if steps.exists() else 0]))[0])
    with hpccoll.preemption() as job:
        while done < int(sys.argv[1]):
            done += int(hpccoll.allreduce(1, hpccoll.MAX, name="step"))
            if world.rank == 0:
                with steps.open("a") as file:
                    file.write(".")
            time.sleep(0.1)
            if job.should_stop():
                print(f"<stopped after {done}>", flush=True)
                job.requeue()
                break
hpccoll.shutdown()
