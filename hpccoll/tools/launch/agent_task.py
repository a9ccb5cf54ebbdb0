# SPDX-License-Identifier: Apache-2.0
"""The start of an agent: it reads its task from standard input and enters the folder of the job.

A failure is one sentence: the host may have lost its connection to the launcher meanwhile.
"""

import json
import os
import platform
import sys
from typing import Any, NoReturn

from hpccoll import text

NOT_STARTED = 127
"""The exit status of an agent that could not begin, as a shell's for a command that cannot be executed."""


def take() -> dict[str, Any]:
    """Read the task and enter the job's folder; if that fails, end the process with a sentence."""
    try:
        task: dict[str, Any] = json.loads(sys.stdin.readline())
    except (OSError, ValueError):
        give_up("the launcher, or the connection to it, ended before it had given a task")
    try:
        os.chdir(task["folder"])
    except OSError as error:
        give_up(f"the folder {task['folder']}, in which the job was started, cannot be entered here: {error.strerror}")
    return task


def give_up(why: str) -> NoReturn:
    """Print why this agent cannot start, and end it."""
    say(why)
    raise SystemExit(NOT_STARTED)


def say(sentence: str) -> None:
    """Print a line of the agent itself."""
    text.say(f"hpccoll run: agent of {platform.node()}: {sentence}")
