# SPDX-License-Identifier: Apache-2.0
"""A process that may open no more files: why its World is not made, wherever it runs out of them."""

import subprocess
import sys

FEW = """
import os, resource, hpccoll
hpccoll.World(verbose=0).shutdown()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.dup(2))
except OSError:
    pass
said = ""
while said != "made":
    try:
        hpccoll.World(verbose=0).shutdown()
        said = "made"
    except (hpccoll.HpccollError, OSError) as error:
        said = str(error)
    os.close(held.pop())
    print(said)
"""


def test_the_reason_is_given_wherever_the_files_end() -> None:
    """One more file is free at each try, until the World can be made."""
    done = subprocess.run([sys.executable, "-P", "-c", FEW], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *reasons, made = done.stdout.splitlines()
    assert made == "made" and all("Too many open files" in reason for reason in reasons), done.stdout
    shared = [reason for reason in reasons if "shared memory" in reason]
    assert shared and all("raise the limit of open files (ulimit -n)" in reason for reason in shared), done.stdout
    assert any("process sets" in reason for reason in shared), done.stdout
